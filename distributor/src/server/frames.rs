use bytes::{Buf, Bytes, BytesMut};
use tonic::Status;

/// Finds the messages of a gRPC body: a flag for "compressed", four bytes of length, and the message. The memory of a
/// message is freed with it; a buffer that grew with the largest one, which is the first, would stay for as long as the
/// stream does.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The message that is being received, with its prefix.
    partial: BytesMut,
    /// What came beyond it, or is not yet part of it.
    rest: Bytes,
}

/// A delta reconnect lists every name and version that the client holds.
const MESSAGE_LIMIT: usize = 32 << 20;
const PREFIX: usize = 5;

impl Frames {
    /// Takes a piece of the body. To be called when there is no message left.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.rest.is_empty() {
            self.rest = piece;
        } else {
            self.rest = [&self.rest[..], &piece].concat().into();
        }
    }

    /// The bytes after the last message, which are to be pushed again.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// The next message, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if !self.fill(PREFIX) {
            return Ok(None);
        }
        let mut prefix = &self.partial[..];
        let (flag, length) = (prefix.get_u8(), prefix.get_u32() as usize);
        if flag != 0 {
            return Err(Status::unimplemented(
                "compressed requests are not supported: send them without grpc-encoding",
            ));
        }
        if length > MESSAGE_LIMIT {
            return Err(Status::resource_exhausted(format!(
                "a request of {length} bytes: at most {MESSAGE_LIMIT} are read"
            )));
        }
        // Until there is room for a message that is not complete, nothing is set aside for it.
        let is_accepted = self.partial.capacity() >= PREFIX + length;
        let is_complete = PREFIX + length <= self.partial.len() + self.rest.len();
        if !(is_accepted || is_complete) || !self.fill(PREFIX + length) {
            return Ok(None);
        }
        let mut message = std::mem::take(&mut self.partial).freeze();
        message.advance(PREFIX);
        Ok(Some(message))
    }

    /// How long the message will be that is being received.
    pub(crate) fn announced(&self) -> Option<usize> {
        let length = self.partial.get(1..PREFIX)?;
        Some(length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    /// Sets memory aside for the message that is announced. To be called once there is room for it.
    pub(crate) fn accept(&mut self) {
        if let Some(length) = self.announced() {
            // At once: to grow with each piece would take twice as much, and copy it.
            self.partial.reserve((PREFIX + length).saturating_sub(self.partial.len()));
            self.fill(PREFIX + length);
        }
    }

    /// Whether the body may end here.
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.rest.is_empty()
    }

    /// Whether the message has so many bytes, now or already.
    fn fill(&mut self, length: usize) -> bool {
        let missing = length.saturating_sub(self.partial.len());
        if !self.rest.is_empty() {
            self.partial.reserve(missing);
        }
        let piece = self.rest.split_to(missing.min(self.rest.len()));
        self.partial.extend_from_slice(&piece);
        self.partial.len() >= length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(0);
            bytes.extend((message.len() as u32).to_be_bytes());
            bytes.extend(*message);
        }
        bytes
    }

    /// The messages of a body that comes in pieces of this size.
    fn received(body: &[u8], size: usize) -> (Vec<Bytes>, Frames) {
        let (mut found, mut frames) = (Vec::new(), Frames::default());
        for piece in body.chunks(size) {
            frames.push(Bytes::copy_from_slice(piece));
            while let Some(message) = frames.next().unwrap() {
                found.push(message);
            }
        }
        (found, frames)
    }

    #[test]
    fn messages_are_found_however_the_body_is_cut() {
        let messages: [&[u8]; 4] = [b"first", b"", b"a longer one", b"last"];
        let body = framed(&messages);
        for size in 1..=body.len() {
            let (found, frames) = received(&body, size);
            assert_eq!(found, messages, "in pieces of {size}");
            assert!(frames.is_empty());
        }
    }

    #[test]
    fn pieces_that_come_before_they_are_asked_for_are_kept() {
        let body = framed(&[b"one", b"two"]);
        let mut frames = Frames::default();
        for piece in body.chunks(3) {
            frames.push(Bytes::copy_from_slice(piece));
        }
        assert_eq!(frames.announced(), None);
        assert_eq!(frames.next().unwrap().unwrap(), "one");
        assert_eq!(frames.next().unwrap().unwrap(), "two");
        assert!(frames.next().unwrap().is_none() && frames.is_empty());
    }

    #[test]
    fn a_body_that_ends_within_a_message_is_noticed() {
        let body = framed(&[b"whole", b"cut"]);
        for cut in 1..8 {
            let (found, frames) = received(&body[..body.len() - cut], 7);
            assert_eq!(found, ["whole"]);
            assert!(!frames.is_empty(), "without the last {cut} bytes");
            assert_eq!(frames.announced(), (cut <= 3).then_some(3));
        }
    }

    #[test]
    fn large_and_compressed_messages_are_refused_by_their_prefix() {
        let refused = |prefix: [u8; 5]| {
            let mut frames = Frames::default();
            frames.push(Bytes::copy_from_slice(&prefix));
            frames.next().map_err(|status| status.code())
        };
        assert_eq!(refused([0, 2, 0, 0, 0]), Ok(None));
        assert_eq!(refused([0, 2, 0, 0, 1]), Err(Code::ResourceExhausted));
        assert_eq!(refused([1, 0, 0, 0, 0]), Err(Code::Unimplemented));
    }

    #[test]
    fn nothing_is_set_aside_for_a_message_before_there_is_room_for_it() {
        let body = framed(&[&[7; 1 << 20]]);
        let mut pieces = body.chunks(16 << 10).map(Bytes::copy_from_slice);
        let mut frames = Frames::default();
        frames.push(pieces.next().unwrap());
        assert!(frames.next().unwrap().is_none());
        assert_eq!(frames.announced(), Some(1 << 20));
        assert!(frames.partial.capacity() < 1 << 10, "{}", frames.partial.capacity());
        frames.accept();
        let (start, capacity) = (frames.partial.as_ptr(), frames.partial.capacity());
        assert!(capacity >= body.len() && frames.rest.is_empty());
        for piece in pieces {
            assert!(frames.next().unwrap().is_none());
            frames.push(piece);
        }
        let message = frames.next().unwrap().unwrap();
        assert_eq!((message.len(), message.as_ptr()), (1 << 20, start.wrapping_add(PREFIX)));
    }

    #[test]
    fn nothing_is_kept_of_a_message() {
        let large = vec![7; 1 << 20];
        let (found, mut frames) = received(&framed(&[&large]), 16 << 10);
        assert_eq!(found, [&large[..]]);
        assert_eq!((frames.partial.capacity(), frames.rest.len()), (0, 0));
        // Nor after a small one behind it.
        frames.push(framed(&[b"small"]).into());
        assert_eq!(frames.next().unwrap().unwrap(), "small");
        assert_eq!(frames.partial.capacity(), 0);
    }
}

use super::content::{MessageContent, Pool};
use crate::request::HEADER;

/// Assembles gRPC messages from bytes as they arrive, and takes the nonce out of each: the rest is equal for all clients
/// that receive the same.
#[derive(Debug, Default)]
pub(crate) struct MessageAssembly {
    header: [u8; HEADER],
    header_filled: usize,
    message: Option<Box<Partial>>,
}

/// A message without its nonce.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) nonce: Vec<u8>,
    pub(crate) content: MessageContent,
    /// On the wire, with its header.
    pub(crate) length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misframed {
    #[error("a compressed message, though none was asked for")]
    Compressed,
    #[error("a message of {0} bytes")]
    TooLarge(usize),
}

#[derive(Debug)]
struct Partial {
    length: usize,
    left: usize,
    at: At,
    nonce: Vec<u8>,
    content: MessageContent,
}

/// The position of the next byte in a protobuf message. Malformed bytes are left to the decoder of the whole message.
#[derive(Debug, Clone, Copy)]
enum At {
    Key(Varint),
    Number,
    Length(Varint),
    NonceLength(Varint),
    Bytes(u64),
    Nonce(u64),
    Broken,
}

#[derive(Debug, Clone, Copy, Default)]
struct Varint {
    value: u64,
    shift: u32,
}

/// The nonce of either kind of response: field 5, a string.
const NONCE_KEY: u64 = 5 << 3 | 2;
/// More than any snapshot, and less than what a wrong length would make the client wait for.
const MAX_LENGTH: usize = 1 << 30;
const MAX_NONCE: u64 = 64 * 1024;

impl MessageAssembly {
    /// Takes bytes from the front until a message is complete.
    pub(crate) fn push(
        &mut self,
        bytes: &mut &[u8],
        pool: &Pool,
    ) -> Result<Option<Assembled>, Misframed> {
        loop {
            let Some(partial) = &mut self.message else {
                if !self.fill_header(bytes) {
                    return Ok(None);
                }
                self.message = Some(Box::new(Partial::after(self.header)?));
                self.header_filled = 0;
                continue;
            };
            let now = cut(bytes, partial.left);
            partial.left -= now.len();
            partial.push(now, pool);
            if partial.left > 0 {
                return Ok(None);
            }
            // Of what is broken, the field that has no end.
            partial.content.end_field(pool);
            return Ok(self.message.take().map(|partial| Assembled {
                nonce: partial.nonce,
                content: partial.content,
                length: partial.length + HEADER,
            }));
        }
    }

    fn fill_header(&mut self, bytes: &mut &[u8]) -> bool {
        let room = self.header.get_mut(self.header_filled..).unwrap_or_default();
        let now = cut(bytes, room.len());
        for (to, from) in room.iter_mut().zip(now) {
            *to = *from;
        }
        self.header_filled += now.len();
        self.header_filled == HEADER
    }
}

impl Partial {
    fn after([compressed, length @ ..]: [u8; HEADER]) -> Result<Self, Misframed> {
        if compressed != 0 {
            return Err(Misframed::Compressed);
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_LENGTH {
            return Err(Misframed::TooLarge(length));
        }
        Ok(Self {
            length,
            left: length,
            at: At::Key(Varint::default()),
            nonce: Vec::new(),
            content: MessageContent::default(),
        })
    }

    fn push(&mut self, bytes: &[u8], pool: &Pool) {
        // Content is copied in runs, each up to the next nonce.
        let (mut run, mut next) = (bytes, bytes);
        loop {
            match self.at {
                At::Bytes(left) => {
                    let now = cut(&mut next, left.try_into().unwrap_or(usize::MAX));
                    self.at = match left - now.len() as u64 {
                        0 => At::Key(Varint::default()),
                        left => At::Bytes(left),
                    };
                    if !matches!(self.at, At::Key(_)) {
                        break;
                    }
                    run = self.end_field(run, next, pool);
                }
                At::Nonce(left) => {
                    let now = cut(&mut next, left.try_into().unwrap_or(usize::MAX));
                    self.nonce.extend_from_slice(now);
                    run = next;
                    match left - now.len() as u64 {
                        0 => self.at = At::Key(Varint::default()),
                        left => {
                            self.at = At::Nonce(left);
                            break;
                        }
                    }
                }
                At::Broken => {
                    next = &[];
                    break;
                }
                At::Key(_) | At::Number | At::Length(_) | At::NonceLength(_) => {
                    let before = next;
                    let Some((byte, after)) = next.split_first() else { break };
                    next = after;
                    let at = self.at.after(*byte);
                    match (self.at, at) {
                        // The run ends before the key of a nonce, which is one byte.
                        (At::Key(_), At::NonceLength(_)) => {
                            self.content.push(before_of(run, before), pool);
                            self.nonce.clear();
                            run = next;
                        }
                        (At::NonceLength(_), _) => run = next,
                        (At::Number | At::Length(_), At::Key(_)) => {
                            run = self.end_field(run, next, pool);
                        }
                        _ => {}
                    }
                    self.at = at;
                }
            }
        }
        self.content.push(before_of(run, next), pool);
    }

    /// A field of the content ends with `run`, before `next`, which is what follows.
    fn end_field<'a>(&mut self, run: &[u8], next: &'a [u8], pool: &Pool) -> &'a [u8] {
        self.content.push(before_of(run, next), pool);
        self.content.end_field(pool);
        next
    }
}

impl At {
    /// After one more byte of a number.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Key(key) => match key.after(byte) {
                Err(key) if key.shift >= 64 => Self::Broken,
                Err(key) => Self::Key(key),
                Ok(NONCE_KEY) if key.shift == 0 => Self::NonceLength(Varint::default()),
                Ok(key) => match key & 7 {
                    0 => Self::Number,
                    1 => Self::Bytes(8),
                    2 => Self::Length(Varint::default()),
                    5 => Self::Bytes(4),
                    _ => Self::Broken,
                },
            },
            Self::Number if byte < 0x80 => Self::Key(Varint::default()),
            Self::Length(length) => match length.after(byte) {
                Err(length) if length.shift >= 64 => Self::Broken,
                Err(length) => Self::Length(length),
                Ok(0) => Self::Key(Varint::default()),
                Ok(length) => Self::Bytes(length),
            },
            Self::NonceLength(length) => match length.after(byte) {
                Err(length) if length.shift >= 64 => Self::Broken,
                Err(length) => Self::NonceLength(length),
                Ok(0) => Self::Key(Varint::default()),
                Ok(length) if length > MAX_NONCE => Self::Broken,
                Ok(length) => Self::Nonce(length),
            },
            _ => self,
        }
    }
}

impl Varint {
    /// `Ok` is the whole number.
    fn after(self, byte: u8) -> Result<u64, Self> {
        let value = self.value | u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
        if byte < 0x80 { Ok(value) } else { Err(Self { value, shift: self.shift + 7 }) }
    }
}

/// The first `count` bytes, or all; they are taken away.
fn cut<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (now, later) = bytes.split_at(count.min(bytes.len()));
    *bytes = later;
    now
}

/// The part of `run` before `rest`, its end.
fn before_of<'a>(run: &'a [u8], rest: &[u8]) -> &'a [u8] {
    run.split_at(run.len() - rest.len()).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
    use prost::Message;

    fn response(nonce: &str, resources: usize) -> DeltaDiscoveryResponse {
        let resource = |number| Resource {
            name: format!("resource-{number}"),
            version: "x".repeat(number * 7),
            ..Default::default()
        };
        DeltaDiscoveryResponse {
            system_version_info: "1".to_owned(),
            type_url: "a type".to_owned(),
            resources: (0..resources).map(resource).collect(),
            removed_resources: vec!["gone".to_owned()],
            nonce: nonce.to_owned(),
            ..Default::default()
        }
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    /// All messages in chunks.
    fn assemble<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Assembled> {
        let (mut assembly, pool) = (MessageAssembly::default(), Pool::default());
        let mut messages = Vec::new();
        for mut chunk in chunks {
            while let Some(message) = assembly.push(&mut chunk, &pool).unwrap() {
                messages.push(message);
            }
            assert!(chunk.is_empty());
        }
        messages
    }

    #[test]
    fn a_message_is_the_same_wherever_it_is_split() {
        let first = response("nonce-1", 3);
        let second = response("", 0);
        let bytes = [framed(&first.encode_to_vec()), framed(&second.encode_to_vec())].concat();
        for split in 0..=bytes.len() {
            let (front, back) = bytes.split_at(split);
            let messages = assemble([front, back]);
            assert_eq!(messages.len(), 2, "split at {split}");
            assert_eq!(messages[0].nonce, b"nonce-1");
            assert_eq!(messages[1].nonce, b"");
            assert_eq!(messages[0].length + messages[1].length, bytes.len());
            let without = DeltaDiscoveryResponse { nonce: String::new(), ..first.clone() };
            assert_eq!(messages[0].content.bytes(), without.encode_to_vec());
            assert_eq!(messages[1].content.bytes(), second.encode_to_vec());
        }
    }

    #[test]
    fn a_digest_depends_on_the_content_alone() {
        let digest = |nonce: &str, resources, step| {
            let bytes = framed(&response(nonce, resources).encode_to_vec());
            assemble(bytes.chunks(step))[0].content.digest()
        };
        // 100 resources are several pieces.
        for resources in [3, 100] {
            let one = digest("a", resources, 1);
            assert_eq!(one, digest("another nonce", resources, 1));
            assert_eq!(one, digest("a", resources, 4096));
            assert_eq!(one, digest("a", resources, usize::MAX));
            assert_ne!(one, digest("a", resources + 1, usize::MAX));
        }
    }

    #[test]
    fn a_digest_does_not_depend_on_the_order_of_resources() {
        let (one, mut other) = (response("a", 100), response("b", 100));
        other.resources.reverse();
        let digest = |response: &DeltaDiscoveryResponse| {
            assemble(framed(&response.encode_to_vec()).chunks(100))[0].content.digest()
        };
        assert_eq!(digest(&one), digest(&other));
        // Those that are larger than a piece are not mistaken for others of the same pieces.
        let version = |parts: [&str; 3]| parts.map(|part| part.repeat(4096)).concat();
        let (mut one, mut other) = (response("a", 1), response("a", 1));
        one.resources[0].version = version(["x", "y", "z"]);
        other.resources[0].version = version(["y", "x", "z"]);
        assert_ne!(digest(&one), digest(&other));
    }

    #[test]
    fn a_nonce_may_come_anywhere() {
        let content = DeltaDiscoveryResponse { nonce: String::new(), ..response("", 2) };
        let nonce = DeltaDiscoveryResponse { nonce: "first".to_owned(), ..Default::default() };
        let message = [nonce.encode_to_vec(), content.encode_to_vec()].concat();
        for step in [1, 3, usize::MAX] {
            let messages = assemble(framed(&message).chunks(step));
            assert_eq!(messages[0].nonce, b"first");
            assert_eq!(messages[0].content.bytes(), content.encode_to_vec());
        }
    }

    #[test]
    fn thousands_of_unfinished_messages_share_what_they_have() {
        let bytes = framed(&response("n", 200).encode_to_vec());
        let pool = Pool::default();
        let partial = || {
            let mut assembly = MessageAssembly::default();
            assert!(assembly.push(&mut &bytes[..bytes.len() - 1], &pool).unwrap().is_none());
            assembly.message.unwrap().content
        };
        assert!(bytes.len() > 100_000);
        let (one, another) = (partial(), partial());
        assert!(one.shares_with(&another));
    }

    #[test]
    fn what_is_no_message_is_not_waited_for() {
        let pool = Pool::default();
        let refused =
            |bytes: &[u8]| MessageAssembly::default().push(&mut &*bytes, &pool).unwrap_err();
        assert_eq!(refused(&[1, 0, 0, 0, 1, 0]), Misframed::Compressed);
        assert_eq!(refused(&[0, 255, 255, 255, 255]), Misframed::TooLarge(0xffff_ffff));
        // Bytes that are not protobuf are passed on whole, for the decoder to reject.
        for noise in [&[0xff; 20][..], &[0x2a, 0xff, 0xff, 0xff, 0xff, 0x7f, 1], &[7, 1, 2]] {
            assert_eq!(assemble([&framed(noise)[..]]).len(), 1);
        }
    }
}

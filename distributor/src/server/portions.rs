use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that hands large DATA frames on as several small ones, which says the same in HTTP/2.
///
/// The connection reads into a buffer of 8 KB that grows to hold the largest frame and whatever came before it, up to 32 KB
/// after a client that lists once all it holds, and stays so for as long as the client is connected. With frames of half of
/// the buffer it does not grow. It also has a list of frames that their stream did not take yet, which never shrinks: so
/// after each large frame there is a pause, for the stream to take it.
#[derive(Debug)]
pub(super) struct Portioned<IO> {
    io: IO,
    cutter: Cutter,
    /// What was read and is not handed on yet.
    kept: Vec<u8>,
}

/// Where in the frames the reader is. It sees every byte once, in order.
#[derive(Debug)]
struct Cutter {
    /// Bytes that are handed on as they are, before the next header.
    pass: usize,
    /// What follows them of a frame that is cut.
    cut: Option<Cut>,
    /// Whether they are the last of a frame that was cut, and a pause follows them.
    then_pause: bool,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct Cut {
    stream: [u8; 4],
    flags: u8,
    /// The payload that is left, and in how many portions it comes.
    left: usize,
    portions: usize,
}

/// Half of the connection's buffer, and a part of the largest frame.
const PORTION: usize = 4_096;
/// A larger frame than the connection allows is its to refuse.
const LARGEST: usize = 16_384;
const HEADER: usize = 9;
/// What a client says before its first frame.
const PREFACE: usize = 24;
const DATA: u8 = 0;
const PADDED: u8 = 8;
const END_STREAM: u8 = 1;

impl<IO> Portioned<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self {
            io,
            cutter: Cutter { pass: PREFACE, cut: None, then_pause: false },
            kept: Vec::new(),
        }
    }
}

impl<IO: AsyncRead + Unpin> Portioned<IO> {
    /// Reads what is missing of a header, of which some is kept.
    fn poll_header(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [0; HEADER];
        let mut missing = ReadBuf::new(&mut bytes[self.kept.len().min(HEADER)..]);
        ready!(Pin::new(&mut self.io).poll_read(context, &mut missing))?;
        self.kept.extend_from_slice(missing.filled());
        Poll::Ready(Ok(missing.filled().len()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Portioned<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buffer.filled().len();
        if this.cutter.takes_pause() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            this.cutter.hand_on(&mut this.kept, buffer);
            if buffer.filled().len() > start || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if !this.kept.is_empty() {
                if ready!(this.poll_header(context))? == 0 {
                    // The client left within it. The connection is to see all that it said.
                    let length = this.kept.len().min(buffer.remaining());
                    buffer.put_slice(&this.kept[..length]);
                    this.kept = this.kept.split_off(length);
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
            let read = &buffer.filled()[start..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            // Nearly always all of it.
            let passed = this.cutter.pass(read);
            this.kept.extend_from_slice(&read[passed..]);
            buffer.set_filled(start + passed);
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Portioned<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl Cutter {
    /// Whether it is time for one. Only once: then it is over.
    fn takes_pause(&mut self) -> bool {
        let is_due = self.pass == 0 && self.then_pause;
        self.then_pause &= !is_due;
        is_due
    }

    /// How many of these bytes are handed on as they are.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        loop {
            let length = self.pass.min(bytes.len() - passed);
            (self.pass, passed) = (self.pass - length, passed + length);
            if self.pass > 0 || self.cut.is_some() || self.then_pause {
                return passed;
            }
            match bytes[passed..].first_chunk().map(Cut::of) {
                Some((None, length)) => self.pass = HEADER + length,
                Some((Some(_), _)) | None => return passed,
            }
        }
    }

    /// Moves what can be handed on from `kept` to `buffer`, with a header before each portion.
    fn hand_on(&mut self, kept: &mut Vec<u8>, buffer: &mut ReadBuf<'_>) {
        let mut taken = 0;
        loop {
            let length = self.pass.min(kept.len() - taken).min(buffer.remaining());
            buffer.put_slice(&kept[taken..taken + length]);
            (self.pass, taken) = (self.pass - length, taken + length);
            if self.pass > 0 || self.then_pause {
                break;
            }
            if let Some(cut) = self.cut.take() {
                kept.splice(taken..taken, self.next(cut));
                continue;
            }
            match kept[taken..].first_chunk().map(Cut::of) {
                Some((None, length)) => self.pass = HEADER + length,
                Some((Some(cut), _)) => {
                    kept.splice(taken..taken + HEADER, self.next(cut));
                }
                None => break,
            }
        }
        kept.drain(..taken);
        if kept.is_empty() {
            *kept = Vec::new();
        }
    }

    /// The header of the next portion.
    fn next(&mut self, cut: Cut) -> [u8; HEADER] {
        let Cut { stream: [a, b, c, d], flags, left, portions } = cut;
        // All about the same: a small one at the end might be taken for the trick of sending many of them.
        let length = left.div_ceil(portions);
        let is_last = portions == 1;
        self.pass = HEADER + length;
        self.cut = (!is_last).then_some(Cut { left: left - length, portions: portions - 1, ..cut });
        let flags = if is_last { flags } else { flags & !END_STREAM };
        let [.., high, middle, low] = length.to_be_bytes();
        [high, middle, low, DATA, flags, a, b, c, d]
    }
}

impl Cut {
    /// How a frame with this header is cut, if it is, and how long it is.
    fn of(header: &[u8; HEADER]) -> (Option<Self>, usize) {
        let [high, middle, low, kind, flags, stream @ ..] = *header;
        let left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_cut = kind == DATA && flags & PADDED == 0 && (PORTION + 1..=LARGEST).contains(&left);
        let portions = left.div_ceil(PORTION);
        (is_cut.then_some(Self { stream, flags, left, portions }), left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use tokio::io::AsyncReadExt;

    /// A socket on which these come one after the other.
    struct Arriving(VecDeque<Vec<u8>>);

    impl AsyncRead for Arriving {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let later = piece.split_off(piece.len().min(buffer.remaining()));
                buffer.put_slice(&piece);
                if !later.is_empty() {
                    self.0.push_front(later);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Frame {
        kind: u8,
        flags: u8,
        stream: [u8; 4],
        payload: Vec<u8>,
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = vec![b'P'; PREFACE];
        for Frame { kind, flags, stream, payload } in frames {
            bytes.extend(&payload.len().to_be_bytes()[5..]);
            bytes.extend([*kind, *flags]);
            bytes.extend(stream);
            bytes.extend(payload);
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Vec<Frame> {
        bytes = bytes.strip_prefix(&[b'P'; PREFACE]).unwrap();
        let mut frames = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let [high, middle, low, kind, flags, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let (payload, rest) = rest.split_at(length);
            frames.push(Frame { kind, flags, stream, payload: payload.to_vec() });
            bytes = rest;
        }
        assert!(bytes.is_empty());
        frames
    }

    /// What comes out when the bytes arrive in pieces of these sizes and are asked for in pieces of those.
    async fn portioned(bytes: &[u8], arriving: &[usize], asked: &[usize]) -> Vec<u8> {
        let (mut pieces, mut rest) = (VecDeque::new(), bytes);
        let mut sizes = arriving.iter().cycle();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            pieces.push_back(piece.to_vec());
            rest = later;
        }
        let mut socket = Portioned::new(Arriving(pieces));
        let (mut out, mut sizes) = (Vec::new(), asked.iter().cycle());
        loop {
            let mut buffer = vec![0; *sizes.next().unwrap()];
            match socket.read(&mut buffer).await.unwrap() {
                0 => break,
                length => out.extend(&buffer[..length]),
            }
        }
        assert_eq!(socket.kept.capacity(), 0);
        out
    }

    /// Frames of the same stream and kind put together again.
    fn joined(frames: Vec<Frame>) -> Vec<Frame> {
        let mut whole: Vec<Frame> = Vec::new();
        for frame in frames {
            match whole.last_mut() {
                Some(last)
                    if frame.kind == DATA && last.kind == DATA && last.stream == frame.stream =>
                {
                    last.payload.extend(frame.payload);
                    last.flags = frame.flags;
                }
                _ => whole.push(frame),
            }
        }
        whole
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let length =
            prop_oneof![0..40_usize, 4_090..4_110_usize, 8_180..8_200_usize, 0..=16_384_usize];
        let flags = prop_oneof![Just(0), Just(END_STREAM), Just(PADDED)];
        (prop_oneof![Just(DATA), 1..10_u8], flags, any::<[u8; 4]>(), length, any::<u8>()).prop_map(
            |(kind, flags, stream, length, fill)| Frame {
                kind,
                flags,
                stream,
                payload: vec![fill; length],
            },
        )
    }

    proptest! {
        #[test]
        fn the_same_is_said_in_small_frames(
            frames in proptest::collection::vec(frame(), 0..6),
            arriving in proptest::collection::vec(1..9_000_usize, 1..5),
            asked in proptest::collection::vec(1..9_000_usize, 1..5),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let out = runtime.block_on(portioned(&written(&frames), &arriving, &asked));
            let cut = read(&out);
            for frame in &cut {
                let whole = frame.kind != DATA || frame.flags & PADDED != 0;
                prop_assert!(whole || frame.payload.len() <= PORTION);
            }
            // A frame that was sent as a padded or an empty one is nobody's rest.
            prop_assert_eq!(joined(cut), joined(frames));
        }
    }

    #[tokio::test]
    async fn a_large_frame_comes_in_even_portions_and_ends_with_the_last() {
        let payload = vec![7; 2 * PORTION + 2];
        let frame = Frame { kind: DATA, flags: END_STREAM, stream: [0, 0, 0, 1], payload };
        let out = read(&portioned(&written(&[frame]), &[100_000], &[8_192]).await);
        let told: Vec<_> = out.iter().map(|frame| (frame.payload.len(), frame.flags)).collect();
        assert_eq!(told, [(2_732, 0), (2_731, 0), (2_731, END_STREAM)]);
    }

    #[tokio::test]
    async fn what_the_connection_must_refuse_is_left_alone() {
        let payload = vec![7; LARGEST + 1];
        let frames = [Frame { kind: DATA, flags: 0, stream: [0, 0, 0, 1], payload }];
        assert_eq!(read(&portioned(&written(&frames), &[1_000], &[8_192]).await), frames);
    }

    #[tokio::test]
    async fn a_client_that_leaves_within_a_header_is_heard_to_the_end() {
        let bytes = [&[b'P'; PREFACE][..], &[0, 0, 9]].concat();
        assert_eq!(portioned(&bytes, &[1_000], &[8_192]).await, bytes);
        assert_eq!(portioned(&bytes, &[1_000], &[1]).await, bytes);
    }
}

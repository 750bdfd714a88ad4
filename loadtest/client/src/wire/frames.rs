use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which large DATA frames of HTTP/2 arrive as several small ones, and few at a time.
///
/// The HTTP/2 library reads a frame as a whole, into a buffer that stays as large as the largest was, and keeps a list,
/// which stays as long as the longest was, of all frames that it could read before the stream took them. With a large
/// response that is most of what a client costs from then on. A frame is only a way to cut a stream of bytes, so the
/// split changes nothing else.
#[derive(Debug)]
pub(crate) struct SplitFrames<T> {
    io: T,
    /// The header of the frame that arrives, as far as it has arrived, and then that of its piece.
    header: [u8; HEADER],
    at: At,
    flags: u8,
    /// What is still to come of the frame.
    frame: usize,
    /// What is still to come of the piece of it.
    piece: usize,
    /// Something was read, and the stream is to take it before there is more.
    paused: bool,
    greeted: Greeted,
}

/// Whether the server has begun to say its settings, which come first. The HTTP/2 library does not tell, and a
/// connection alone says nothing: the kernel takes it before the server does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeted(Arc<AtomicBool>);

#[derive(Clone, Copy, Debug)]
enum At {
    /// So much of the header has arrived.
    Arriving(usize),
    /// So much of the header has been passed on.
    Passing(usize),
    Payload,
}

const HEADER: usize = 9;
/// With its header it fits twice into what the library reads into at first.
const PIECE: usize = 4_000;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;

impl Greeted {
    /// Up to date after the connection was polled.
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> SplitFrames<T> {
    pub(crate) fn new(io: T, greeted: Greeted) -> Self {
        Self {
            io,
            header: [0; HEADER],
            at: At::Arriving(0),
            flags: 0,
            frame: 0,
            piece: 0,
            paused: false,
            greeted,
        }
    }

    /// A whole header is there: what follows, and what is to be said of it.
    fn begin_frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        if kind == SETTINGS {
            self.greeted.0.store(true, Ordering::Relaxed);
        }
        self.flags = flags;
        self.frame = u32::from_be_bytes([0, high, middle, low]) as usize;
        let may_be_cut = kind == DATA && flags & PADDED == 0;
        if may_be_cut && self.frame > PIECE {
            self.begin_piece();
        } else {
            self.piece = self.frame;
            self.at = At::Passing(0);
        }
    }

    /// The next piece of a frame that is cut. Only the last one may end the stream.
    fn begin_piece(&mut self) {
        self.piece = self.frame.min(PIECE);
        let [_, high, middle, low] = (self.piece as u32).to_be_bytes();
        let flags = if self.piece == self.frame { self.flags } else { self.flags & !END_STREAM };
        self.header[..5].copy_from_slice(&[high, middle, low, DATA, flags]);
        self.at = At::Passing(0);
    }

    /// At the end of the connection, of a header that never was one: who does not speak HTTP/2 is known by it.
    fn pass_beginning(&mut self, buffer: &mut ReadBuf<'_>) {
        if let At::Arriving(arrived) = self.at {
            let length = arrived.min(buffer.remaining());
            buffer.put_slice(self.header.get(..length).unwrap_or_default());
            self.header.rotate_left(length);
            self.at = At::Arriving(arrived - length);
        }
    }
}

impl<T: AsyncRead + Unpin> SplitFrames<T> {
    /// Reads into the header. Nothing: the connection is at its end.
    fn poll_header(&mut self, cx: &mut Context<'_>, arrived: usize) -> Poll<io::Result<usize>> {
        let mut rest = ReadBuf::new(self.header.get_mut(arrived..).unwrap_or_default());
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut rest))?;
        Poll::Ready(Ok(rest.filled().len()))
    }

    fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let length = self.piece.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(length));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        self.piece -= read;
        self.frame -= read;
        Poll::Ready(Ok(read))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for SplitFrames<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.paused) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        while buffer.remaining() > 0 {
            let read = match this.at {
                At::Passing(passed) => {
                    let rest = this.header.get(passed..).unwrap_or_default();
                    let length = rest.len().min(buffer.remaining());
                    buffer.put_slice(rest.get(..length).unwrap_or_default());
                    this.at = match passed + length {
                        HEADER => At::Payload,
                        passed => At::Passing(passed),
                    };
                    continue;
                }
                At::Payload if this.piece > 0 => this.poll_payload(cx, buffer),
                At::Payload if this.frame > 0 => {
                    this.begin_piece();
                    continue;
                }
                At::Payload => {
                    this.at = At::Arriving(0);
                    continue;
                }
                At::Arriving(arrived) => {
                    let read = this.poll_header(cx, arrived);
                    if let Poll::Ready(Ok(read)) = read {
                        this.at = At::Arriving(arrived + read);
                        if arrived + read == HEADER {
                            this.begin_frame();
                        }
                    }
                    read
                }
            };
            match read {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => {
                    this.pass_beginning(buffer);
                    break;
                }
                // What was read before is passed on; the next read meets it again.
                _ if buffer.filled().len() > before => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        this.paused = buffer.filled().len() > before;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for SplitFrames<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use tokio::io::AsyncReadExt;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
        [&[high, middle, low, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Kind, flags and payload of each frame.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
        let mut found = Vec::new();
        while let [high, middle, low, kind, flags, 0, 0, 0, 1, rest @ ..] = bytes {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            let (payload, after) = rest.split_at(length);
            found.push((*kind, *flags, payload.to_vec()));
            bytes = after;
        }
        assert!(bytes.is_empty());
        found
    }

    /// Bytes that come in portions, no more than one at a read.
    struct Portions(VecDeque<Vec<u8>>);

    impl AsyncRead for Portions {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut portion) = self.0.pop_front() {
                let rest = portion.split_off(portion.len().min(buffer.remaining()));
                buffer.put_slice(&portion);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    /// The output for bytes that come in these portions, and are read in buffers of some size.
    fn through(portions: &[&[u8]], size: usize) -> Vec<u8> {
        let portions = portions.iter().filter(|portion| !portion.is_empty());
        let portions = Portions(portions.map(|portion| portion.to_vec()).collect());
        let mut pieces = SplitFrames::new(portions, Greeted::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
            loop {
                match pieces.read(&mut buffer).await.unwrap() {
                    0 => return all,
                    read => all.extend_from_slice(&buffer[..read]),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn data_is_cut_and_nothing_else_changes(
            lengths in prop::collection::vec((0..3u8, 0..20_000usize, any::<bool>()), 0..6),
            cuts in prop::collection::vec(0..60_000usize, 0..8),
            size in 1..9_000usize,
        ) {
            let mut sent = Vec::new();
            for (number, (kind, length, end)) in lengths.iter().enumerate() {
                let payload: Vec<_> = (0..*length).map(|at| (at * 7 + number) as u8).collect();
                sent.extend(frame(*kind, u8::from(*end), &payload));
            }
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(sent.len())).collect();
            cuts.sort_unstable();
            let bounds: Vec<_> = [0].into_iter().chain(cuts).chain([sent.len()]).collect();
            let portions: Vec<_> =
                bounds.windows(2).map(|bound| &sent[bound[0]..bound[1]]).collect();
            let came = frames(&through(&portions, size));

            let mut came = came.into_iter();
            for (kind, flags, payload) in frames(&sent) {
                let mut whole = Vec::new();
                loop {
                    let (came_kind, came_flags, piece) = came.next().unwrap();
                    prop_assert_eq!(came_kind, kind);
                    prop_assert!(kind != DATA || piece.len() <= PIECE);
                    whole.extend(piece);
                    let last = whole.len() == payload.len();
                    prop_assert_eq!(came_flags, if last { flags } else { flags & !END_STREAM });
                    if last {
                        break;
                    }
                }
                prop_assert_eq!(whole, payload);
            }
            prop_assert!(came.next().is_none());
        }
    }

    #[test]
    fn what_is_no_frame_passes() {
        for sent in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x15\x03\x01\0\x02\x02F", b""] {
            for size in [1, 5, 8_192] {
                assert_eq!(through(&[sent], size), sent);
            }
        }
    }

    #[test]
    fn a_padded_frame_is_left_whole() {
        let sent = frame(DATA, PADDED | END_STREAM, &[1; 10_000]);
        assert_eq!(through(&[&sent], 8_192), sent);
    }
}

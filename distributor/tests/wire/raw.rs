//! HTTP/2 as bytes, for what its rules forbid.

use super::DELTA;
use heliograph_envoy::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What a client says first: the preface, and settings without any.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// A connection that has said its preface.
pub(crate) async fn connect(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream
}

/// The reason that a server gave for its hanging up, in all that it said.
pub(crate) fn goaway_error(mut bytes: &[u8]) -> Option<u32> {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == GOAWAY {
            return Some(u32::from_be_bytes(rest.get(4..8)?.try_into().ok()?));
        }
        bytes = rest.get(length..)?;
    }
    None
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a delta stream.
pub(crate) fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &head())
}

/// The same, with more to come.
pub(crate) fn begin(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0, stream, &head())
}

/// One more header, and more to come.
pub(crate) fn go_on(stream: u32) -> Vec<u8> {
    frame(CONTINUATION, 0, stream, &literal("x-more", "and more"))
}

pub(crate) fn cancel(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A gRPC message.
pub(crate) fn message_frame(stream: u32, message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    frame(DATA, 0, stream, &[&[0], &length[..], &message].concat())
}

/// HPACK without tables: `:method` and `:scheme` are entries of its own, the others are spelled out.
fn head() -> Vec<u8> {
    let headers = [
        literal(":path", DELTA),
        literal(":authority", "server"),
        literal("content-type", "application/grpc"),
        literal("te", "trailers"),
    ];
    [&[0x83, 0x86][..], &headers.concat()].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

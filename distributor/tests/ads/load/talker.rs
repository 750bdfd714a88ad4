//! A stream that says what no client of this project would, and keeps to the rules of HTTP/2.

use crate::errors::DELTA;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use heliograph_envoy::Message;
use std::future::poll_fn;
use tokio::net::TcpStream;
use tonic::{Code, Status};

pub(super) struct Talker {
    requests: SendStream<Bytes>,
    answers: ResponseFuture,
}

/// A connection on which streams can be opened. It ends with the last of them.
pub(super) async fn connect(address: &str) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    let (opener, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    opener
}

/// A gRPC message.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

impl Talker {
    /// A stream of its own connection.
    pub(super) async fn open(address: &str) -> Self {
        Self::open_on(connect(address).await).await.unwrap()
    }

    pub(super) async fn open_on(opener: SendRequest<Bytes>) -> Result<Self, h2::Error> {
        let request = http::Request::post(format!("http://server{DELTA}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut opener = opener.ready().await?;
        let (answers, requests) = opener.send_request(request.body(()).unwrap(), false)?;
        Ok(Self { requests, answers })
    }

    /// Says it as the windows have room for it. An error once the stream has ended.
    pub(super) async fn say(&mut self, mut words: Bytes) -> Result<(), h2::Error> {
        while !words.is_empty() {
            self.requests.reserve_capacity(words.len());
            let room = poll_fn(|context| self.requests.poll_capacity(context)).await;
            let room = room.ok_or(h2::Reason::STREAM_CLOSED)??;
            self.requests.send_data(words.split_to(room.min(words.len())), false)?;
        }
        Ok(())
    }

    /// What the server says, beginning with the first message.
    pub(super) async fn hear(self) -> Result<(SendStream<Bytes>, RecvStream), Status> {
        let answer = self.answers.await.map_err(|error| Status::unavailable(error.to_string()))?;
        if let Some(status) = Status::from_header_map(answer.headers()) {
            return Err(status);
        }
        Ok((self.requests, answer.into_body()))
    }

    /// How the server ends the stream. What it says before is not kept.
    pub(super) async fn end(self) -> (Code, String) {
        let ended = async {
            let (_requests, mut answers) = self.hear().await?;
            while let Some(data) = answers.data().await {
                let data = data.map_err(|error| Status::unavailable(error.to_string()))?;
                let _ = answers.flow_control().release_capacity(data.len());
            }
            let trailers = answers.trailers().await.ok().flatten().unwrap_or_default();
            Err(Status::from_header_map(&trailers).unwrap_or_else(|| Status::unknown("no status")))
        };
        let status: Result<(), Status> = ended.await;
        let status = status.unwrap_err();
        (status.code(), status.message().to_owned())
    }
}

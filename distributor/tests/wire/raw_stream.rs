//! A stream that sends what no client of this project would, and keeps to the rules of HTTP/2.

use super::DELTA;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use heliograph_envoy::Message;
use std::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Status;

pub(crate) struct RawStream {
    requests: SendStream<Bytes>,
    answers: ResponseFuture,
}

/// A connection on which streams can be opened. It ends with the last of them.
pub(crate) async fn connect(address: &str) -> SendRequest<Bytes> {
    connect_over(TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap()).await
}

/// The same over a connection that is there.
pub(crate) async fn connect_over<IO>(io: IO) -> SendRequest<Bytes>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Room for data that is not read.
    connect_with(io, 16 << 20).await
}

/// A connection with a small window, so that what is not read stays at the server.
pub(crate) async fn connect_narrow(address: &str) -> SendRequest<Bytes> {
    let io = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    connect_with(io, 64 << 10).await
}

async fn connect_with<IO>(io: IO, window: u32) -> SendRequest<Bytes>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(window);
    let (opener, connection) = builder.handshake(io).await.unwrap();
    tokio::spawn(connection);
    opener
}

/// A gRPC message.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

impl RawStream {
    /// A stream of its own connection.
    pub(crate) async fn open(address: &str) -> Self {
        Self::open_on(connect(address).await).await.unwrap()
    }

    pub(crate) async fn open_on(opener: SendRequest<Bytes>) -> Result<Self, h2::Error> {
        Self::open_with(opener, &[]).await
    }

    /// With these headers, too.
    pub(crate) async fn open_with(
        opener: SendRequest<Bytes>,
        headers: &[(&str, &str)],
    ) -> Result<Self, h2::Error> {
        Self::call(opener, DELTA, headers).await
    }

    /// A stream of another method.
    pub(crate) async fn call(
        opener: SendRequest<Bytes>,
        method: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, h2::Error> {
        let mut request = http::Request::post(format!("http://server{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut opener = opener.ready().await?;
        let (answers, requests) = opener.send_request(request.body(()).unwrap(), false)?;
        Ok(Self { requests, answers })
    }

    /// Sends it as the windows have room for it. An error once the stream has ended.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<(), h2::Error> {
        while !bytes.is_empty() {
            self.requests.reserve_capacity(bytes.len());
            let room = poll_fn(|context| self.requests.poll_capacity(context)).await;
            let room = room.ok_or(h2::Reason::STREAM_CLOSED)??;
            self.requests.send_data(bytes.split_to(room.min(bytes.len())), false)?;
        }
        Ok(())
    }

    /// Waits for the first answer of the server, good or bad.
    pub(crate) async fn receive_once(self) -> Result<(), Status> {
        let (_requests, mut answers) = self.receive().await?;
        match answers.data().await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(Status::unavailable(error.to_string())),
            None => {
                let trailers = answers.trailers().await.ok().flatten().unwrap_or_default();
                let status = Status::from_header_map(&trailers);
                Err(status.unwrap_or_else(|| Status::unknown("no status")))
            }
        }
    }

    /// Waits for the first piece of an answer. No more of it is read for as long as what is returned lives.
    pub(crate) async fn answered(self) -> (SendStream<Bytes>, RecvStream) {
        let (requests, mut answers) = self.receive().await.unwrap();
        answers.data().await.unwrap().unwrap();
        (requests, answers)
    }

    async fn receive(self) -> Result<(SendStream<Bytes>, RecvStream), Status> {
        let answer = self.answers.await.map_err(|error| Status::unavailable(error.to_string()))?;
        if let Some(status) = Status::from_header_map(answer.headers()) {
            return Err(status);
        }
        Ok((self.requests, answer.into_body()))
    }
}

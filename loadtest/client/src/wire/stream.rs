use super::assembly::{Assembled, MessageAssembly};
use super::content::Pool;
use super::{Connection, Ended, Opener, Protocol, Server};
use crate::request::{Nonces, Request};
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use heliograph_envoy::envoy::config::core::v3::Node;
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Status;

pub(crate) use super::assembly::Assembled as Message;

/// One ADS stream.
pub(crate) struct Stream {
    address: Arc<str>,
    /// Its connection, if no other stream is on it.
    connection: Option<Connection>,
    requests: SendStream<Bytes>,
    responses: Responses,
    /// Received, and not yet looked at.
    chunk: Bytes,
    assembly: MessageAssembly,
    nonces: Nonces,
}

enum Responses {
    Awaited(ResponseFuture),
    Open(RecvStream),
}

impl Stream {
    /// Opens a stream; what is to be said first is said by the caller. It drives the connection if it is given one.
    pub(crate) async fn open(
        server: &Server,
        protocol: Protocol,
        opener: Opener,
        mut connection: Option<Connection>,
    ) -> Result<Self, Ended> {
        let ready = opener.ready();
        let mut ready = std::pin::pin!(ready);
        let mut opener = std::future::poll_fn(|cx| {
            if let Some(connection) = &mut connection
                && let Poll::Ready(end) = Pin::new(connection).poll(cx)
            {
                return Poll::Ready(Err(of_opening_end(&server.address, end)));
            }
            ready.as_mut().poll(cx).map_err(|error| of_opening(&server.address, &error))
        })
        .await?;
        let request = request_to(server, protocol)?;
        let (responses, requests) = opener
            .send_request(request, false)
            .map_err(|error| of_opening(&server.address, &error))?;
        Ok(Self {
            address: server.address.clone(),
            connection,
            requests,
            responses: Responses::Awaited(responses),
            chunk: Bytes::new(),
            assembly: MessageAssembly::default(),
            nonces: Nonces::default(),
        })
    }

    /// Gives a request to the connection; so many bytes. `node` goes with the first one.
    pub(crate) fn send(&mut self, request: &Request, node: Option<(&Node, &str)>) -> usize {
        let (own, shared) = request.framed(node, self.nonces.of(request));
        let length = own.len() + shared.len();
        self.send_bytes(own);
        if !shared.is_empty() {
            self.send_bytes(shared);
        }
        length
    }

    pub(crate) fn send_bytes(&mut self, bytes: Bytes) {
        // If the server ended the stream, the next response says why.
        let _ = self.requests.send_data(bytes, false);
    }

    /// Whether the request would not wait behind what the server has not taken.
    pub(crate) fn has_room_for(&mut self, request: &Request) -> bool {
        let length = request.length(self.nonces.of(request));
        self.requests.reserve_capacity(length);
        self.requests.capacity() >= length
    }

    /// Brings what was said to the socket.
    pub(crate) async fn flush(&mut self) {
        std::future::poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// The next message of the server.
    pub(crate) async fn next(&mut self, pool: &Pool) -> Result<Message, Ended> {
        std::future::poll_fn(|cx| self.poll_next(pool, cx)).await
    }

    pub(crate) fn nonces(&mut self) -> &mut Nonces {
        &mut self.nonces
    }

    fn poll_next(&mut self, pool: &Pool, cx: &mut Context<'_>) -> Poll<Result<Assembled, Ended>> {
        loop {
            let mut bytes: &[u8] = &self.chunk;
            let assembled = self.assembly.push(&mut bytes, pool);
            let rest = bytes.len();
            // An empty chunk would hold on to the buffer that it was read into.
            self.chunk = if rest == 0 {
                Bytes::new()
            } else {
                self.chunk.split_off(self.chunk.len() - rest)
            };
            match assembled {
                Ok(Some(message)) => return Poll::Ready(Ok(message)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(Ended::Unreadable(error.to_string()))),
            }
            self.chunk = ready!(self.poll_chunk(cx))?;
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Ended>> {
        match self.poll_stream(cx) {
            Poll::Pending => {
                self.drive(cx);
                self.poll_stream(cx)
            }
            ready => ready,
        }
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Ended>> {
        loop {
            match &mut self.responses {
                Responses::Awaited(response) => {
                    let response = ready!(Pin::new(response).poll(cx));
                    let response = response.map_err(|error| of_opening(&self.address, &error))?;
                    self.responses = Responses::Open(accepted(&self.address, response)?);
                }
                Responses::Open(responses) => {
                    let chunk = ready!(responses.poll_data(cx));
                    let Some(chunk) = chunk else {
                        let trailers = ready!(responses.poll_trailers(cx));
                        return Poll::Ready(Err(match trailers {
                            Ok(trailers) => of_trailers(trailers.as_ref()),
                            Err(error) => of_stream(&error),
                        }));
                    };
                    let chunk = chunk.map_err(|error| of_stream(&error))?;
                    // Never more than was received, which is all that this could fail for.
                    let _ = responses.flow_control().release_capacity(chunk.len());
                    return Poll::Ready(Ok(chunk));
                }
            }
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // How a connection ended, its streams know too.
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None;
        }
    }
}

fn request_to(server: &Server, protocol: Protocol) -> Result<http::Request<()>, Ended> {
    let uri = Uri::builder()
        .scheme(server.scheme.clone())
        .authority(server.authority.clone())
        .path_and_query(protocol.path());
    let unfit = |error: http::Error| Ended::Closed(error.to_string());
    let mut request = http::Request::new(());
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri.build().map_err(unfit)?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.extend(server.token.clone().map(|token| (AUTHORIZATION, token)));
    Ok(request)
}

fn accepted(address: &Arc<str>, response: Response<RecvStream>) -> Result<RecvStream, Ended> {
    if let Some(status) = Status::from_header_map(response.headers()) {
        return Err(of_status(&status));
    }
    let content = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if response.status() == StatusCode::OK
        && content.is_some_and(|content| content.starts_with("application/grpc"))
    {
        return Ok(response.into_body());
    }
    Err(Ended::NotGrpc {
        address: address.clone(),
        status: response.status().as_u16(),
        content: content.map_or_else(|| "no content type".to_owned(), str::to_owned),
    })
}

fn of_trailers(trailers: Option<&HeaderMap>) -> Ended {
    match trailers.and_then(Status::from_header_map) {
        Some(status) => of_status(&status),
        None => Ended::Closed("the stream ended without a status".to_owned()),
    }
}

fn of_status(status: &Status) -> Ended {
    Ended::Status { code: status.code(), message: status.message().to_owned() }
}

/// The end of a connection that has no stream yet.
pub(super) fn of_opening_end(address: &Arc<str>, end: Result<(), h2::Error>) -> Ended {
    match end {
        Ok(()) => Ended::Closed(format!("{address} closed it before it answered")),
        Err(error) => of_opening(address, &error),
    }
}

/// An error before any HTTP/2 was received.
fn of_opening(address: &Arc<str>, error: &h2::Error) -> Ended {
    // It sent something that is not a frame: too large for one, or less than one.
    let misframed = error.is_library() && error.is_go_away();
    let cut = error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::Other);
    if misframed || cut {
        return Ended::NotHttp2 { address: address.clone(), reason: error.to_string() };
    }
    if error.is_io() {
        return Ended::Closed(format!("{address} closed it before it answered: {error}"));
    }
    of_stream(error)
}

fn of_stream(error: &h2::Error) -> Ended {
    Ended::Closed(error.to_string())
}

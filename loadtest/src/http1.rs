//! A client of HTTP/1, for control ports, admin ports, and what an Envoy serves.

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpStream, ToSocketAddrs};

/// A connection for one request after the other.
#[derive(Debug)]
pub(crate) struct HttpConnection(SendRequest<Full<Bytes>>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl HttpConnection {
    pub(crate) async fn open(address: impl ToSocketAddrs) -> Result<Self, HttpError> {
        let stream = TcpStream::connect(address).await?;
        // A request is one small packet, which must not wait for another.
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with its sender; who sends learns what goes wrong.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Whether it can be used for another request.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Sends a request, and reads all of the response.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?;
        Ok((status, body.to_bytes()))
    }
}

/// One page, over a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<(StatusCode, Bytes), HttpError> {
    let request = Request::get(path).header(HOST, address.to_string()).body(Full::default())?;
    HttpConnection::open(address).await?.exchange(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::{get as page, post};
    use std::net::Ipv4Addr;
    use tokio::net::TcpListener;

    async fn serve() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router =
            Router::new().route("/readyz", page(async || "ready")).route("/echo", post(echo));
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    async fn echo(body: String) -> String {
        body
    }

    #[tokio::test]
    async fn a_page_has_its_status_and_its_content() {
        let address = serve().await;
        assert_eq!(get(address, "/readyz").await.unwrap(), (StatusCode::OK, "ready".into()));
        assert_eq!(get(address, "/nothing").await.unwrap().0, StatusCode::NOT_FOUND);
        assert!(matches!(get(address, "no path").await, Err(HttpError::Request(_))));
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_the_other() {
        let address = serve().await;
        let mut connection = HttpConnection::open(address).await.unwrap();
        for text in ["one", "two"] {
            let request = Request::post("/echo").header(HOST, address.to_string());
            let request = request.body(Full::from(text)).unwrap();
            assert_eq!(connection.exchange(request).await.unwrap(), (StatusCode::OK, text.into()));
        }
    }
}

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Asks the API with a token. It needs no client of Kubernetes, since not every crate has one.
pub(super) struct Requests {
    port: u16,
    tls: TlsConnector,
    token: &'static str,
}

impl Requests {
    pub(super) fn new(port: u16, authority: CertificateDer<'static>, token: &'static str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        Self { port, tls: TlsConnector::from(Arc::new(config)), token }
    }

    /// The body has its media type with it. `None` if there is no answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Option<(StatusCode, Value)> {
        let (status, body) = self.send_for_bytes(method, path, body).await?;
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// For what is answered otherwise than with JSON.
    pub(super) async fn send_for_bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Option<(StatusCode, Bytes)> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let stream = self.tls.connect("127.0.0.1".try_into().unwrap(), tcp).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let (media, body) = body.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "kubernetes")
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", media)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        Some((head.status, body.collect().await.ok()?.to_bytes()))
    }
}

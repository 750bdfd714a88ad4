use crate::watched_files::{Content, FileError, WatchedFiles};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

/// The API server of Kubernetes, for the two questions that a distributor has: whose a token is, and which keys sign tokens. A
/// client library would bring all of Kubernetes into a program that is to know nothing of it. With the
/// clients of helio and of the load test it shares hyper and no more: it speaks TLS, and opens a connection for each question.
pub(super) struct Api {
    authority: Authority,
    name: ServerName<'static>,
    trust: Arc<WatchedFiles<Trust>>,
}

/// How the two know each other, from files that Kubernetes renews.
pub(super) struct Trust {
    tls: Arc<ClientConfig>,
    /// `Bearer …`.
    token: HeaderValue,
}

/// Says nothing of what was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("the Kubernetes API did not answer within {REQUEST_TIMEOUT:?}")]
    Timeout,
    #[error("the Kubernetes API cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("the Kubernetes API does not answer: {0}")]
    Http(#[from] hyper::Error),
    #[error(
        "the Kubernetes API does not let this distributor ask ({0}): bind its ServiceAccount to the ClusterRole \
         system:auth-delegator"
    )]
    Forbidden(StatusCode),
    #[error("the Kubernetes API answered {0}")]
    Status(StatusCode),
    #[error("the Kubernetes API did not answer with what was asked for")]
    Malformed,
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const LARGEST_ANSWER: usize = 1 << 20;

impl Api {
    /// `url` is `https://HOST[:PORT]`; `None` if it is something else.
    pub(super) fn new(url: &str, trust: Arc<WatchedFiles<Trust>>) -> Option<Self> {
        let parts = url.parse::<Uri>().ok()?.into_parts();
        if parts.scheme != Some(Scheme::HTTPS)
            || parts.path_and_query.is_some_and(|path| path != "/")
        {
            return None;
        }
        let authority = parts.authority?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Some(Self { name: ServerName::try_from(host).ok()?, authority, trust })
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, ApiError> {
        let answer = self.exchange(Method::POST, path, body.to_string()).await?;
        serde_json::from_slice(&answer).map_err(|_| ApiError::Malformed)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        self.exchange(Method::GET, path, String::new()).await
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<Bytes, ApiError> {
        let exchange = self.exchange_unbounded(method, path, body);
        timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| ApiError::Timeout)?
    }

    /// Opens a connection for each request, since an older one may lead to a server that is gone. Callers bound their
    /// number.
    async fn exchange_unbounded(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Bytes, ApiError> {
        let trust = self.trust.current();
        let host = self.authority.host();
        let tcp = TcpStream::connect((
            host.trim_matches(['[', ']']),
            self.authority.port_u16().unwrap_or(443),
        ))
        .await?;
        let tls = TlsConnector::from(trust.tls.clone()).connect(self.name.clone(), tcp).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.authority.as_str())
            .header(AUTHORIZATION, trust.token.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| ApiError::Malformed)?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        match head.status {
            status if status.is_success() => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(ApiError::Forbidden(status));
            }
            status => return Err(ApiError::Status(status)),
        }
        let body = Limited::new(body, LARGEST_ANSWER).collect().await;
        Ok(body.map_err(|_| ApiError::Malformed)?.to_bytes())
    }
}

impl Trust {
    /// Of the CA of the API server, and of the token that the distributor has itself.
    pub(super) fn parse(ca: &Content, token: &Content) -> Result<Self, FileError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&ca.bytes) {
            let certificate = certificate.map_err(|error| ca.wrong(error))?;
            roots.add(certificate).map_err(|error| ca.wrong(error))?;
        }
        if roots.is_empty() {
            return Err(ca.wrong("has no certificate in PEM"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ca.wrong(error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let text = token.text()?.trim();
        let value = if text.is_empty() { None } else { format!("Bearer {text}").parse().ok() };
        let mut value: HeaderValue = value.ok_or_else(|| token.wrong("has no token"))?;
        value.set_sensitive(true);
        Ok(Self { tls: Arc::new(tls), token: value })
    }
}

use super::Ended;
use super::frames::{Greeted, SplitFrames};
use super::stream::of_opening_end;
use bytes::Bytes;
use http::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// Where to connect, and how.
#[derive(Clone)]
pub struct Server {
    /// `HOST:PORT`.
    pub(crate) address: Arc<str>,
    pub(crate) authority: Authority,
    pub(crate) scheme: Scheme,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(crate) token: Option<HeaderValue>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{0} is no address of a server: write http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    #[error("{0} asks for TLS: say which certificates to trust")]
    NoTls(String),
    #[error("the token has characters that HTTP does not allow in a header")]
    Token,
}

pub(crate) type Opener = h2::client::SendRequest<Bytes>;
pub(crate) type Connection = h2::client::Connection<SplitFrames<Io>, Bytes>;
type Io = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// For all that comes before a stream. A server that is slow under a storm is waited for, one that is dead is not.
const CONNECTED_WITHIN: Duration = Duration::from_secs(20);
/// A large response flows without waiting for the client to grant more. This is no memory: the client takes what
/// comes at once, or stops reading from the socket.
const WINDOW: u32 = 4 * 1024 * 1024;

impl Server {
    /// `address` is `http://HOST:PORT` or `https://HOST:PORT`; the latter needs `tls`. The token goes with every
    /// stream.
    pub fn new(
        address: &str,
        tls: Option<ClientConfig>,
        token: Option<&str>,
    ) -> Result<Self, ServerError> {
        let wrong = || ServerError::Address(address.to_owned());
        let parts = address.parse::<Uri>().map_err(|_| wrong())?.into_parts();
        let (scheme, authority) = parts.scheme.zip(parts.authority).ok_or_else(wrong)?;
        let tls = if scheme == Scheme::HTTPS {
            let mut tls = tls.ok_or_else(|| ServerError::NoTls(address.to_owned()))?;
            tls.alpn_protocols = vec![b"h2".to_vec()];
            let host = authority.host().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host).map_err(|_| wrong())?;
            Some((TlsConnector::from(Arc::new(tls)), name))
        } else if scheme == Scheme::HTTP {
            None
        } else {
            return Err(wrong());
        };
        let port = match authority.port_u16() {
            Some(port) => port,
            // Something else than a port follows the host, or a user comes before it.
            None if authority.as_str() != authority.host() => return Err(wrong()),
            None if tls.is_some() => 443,
            None => 80,
        };
        let address = format!("{}:{port}", authority.host()).into();
        let token = token
            .map(|token| {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()
            .map_err(|_: http::header::InvalidHeaderValue| ServerError::Token)?;
        Ok(Self { address, authority, scheme, tls, token })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// A connection that the server has answered on, to be polled by who has it, and what opens streams on it.
    pub(crate) async fn connect(&self) -> Result<(Opener, Connection), Ended> {
        tokio::time::timeout(CONNECTED_WITHIN, self.greeted()).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {CONNECTED_WITHIN:?}");
            Err(Ended::Unreachable { address: self.address.clone(), reason })
        })
    }

    async fn greeted(&self) -> Result<(Opener, Connection), Ended> {
        let greeted = Greeted::default();
        let (opener, mut connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false)
            // Headers are few: a table of earlier ones is not worth its memory.
            .header_table_size(0)
            .max_concurrent_reset_streams(1)
            .handshake(SplitFrames::new(self.io().await?, greeted.clone()))
            .await
            .map_err(|error| Ended::Closed(error.to_string()))?;
        // The library is content with what it has sent itself.
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(end) => Poll::Ready(Err(of_opening_end(&self.address, end))),
            Poll::Pending if greeted.is_so() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok((opener, connection))
    }

    async fn io(&self) -> Result<Io, Ended> {
        let looked_up = tokio::net::lookup_host(&*self.address).await;
        let addresses: Vec<_> = looked_up
            .map_err(|error| Ended::NotFound {
                address: self.address.clone(),
                reason: error.to_string(),
            })?
            .collect();
        let tcp = TcpStream::connect(&*addresses)
            .await
            .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
            .map_err(|error| Ended::of_connecting(&self.address, &error))?;
        let Some((connector, name)) = &self.tls else { return Ok(Either::Left(tcp)) };
        let tls = connector.connect(name.clone(), tcp).await;
        let tls = tls.map_err(|error| Ended::of_handshake(&self.address, &error))?;
        Ok(Either::Right(Box::new(tls)))
    }
}

/// The token stays where it is.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

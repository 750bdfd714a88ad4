//! TLS on the xDS port: reads the operator's files, and makes the handshake.

use crate::identity::expiry;
use crate::watched_files::{Content, FileError};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate with its key, and the CAs that sign those of clients.
#[derive(Debug)]
pub(crate) struct Material {
    config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    expires: SystemTime,
    ca_expires: Option<SystemTime>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the handshake was not done within {HANDSHAKE_TIMEOUT:?}")]
    Timeout,
    /// Its certificate expired, or is not of our CAs.
    #[error("the client's certificate is rejected: {0}")]
    Certificate(io::Error),
    #[error(transparent)]
    Other(io::Error),
}

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of encrypted bytes for a client that does not read, in addition to HTTP/2's buffers: one record. The
/// library's own limit is four times that.
const RECORD_BUFFER: usize = 16 << 10;

impl Material {
    /// Of a certificate, its key, and where clients have certificates, their CAs; all in PEM.
    pub(crate) fn parse(
        certificate: &Content,
        key: &Content,
        ca_bundle: Option<&Content>,
    ) -> Result<Self, FileError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(certificate)?;
        let expires = expiry(&chain[0]).ok_or_else(|| certificate.wrong("not a certificate"))?;
        let private = PrivateKeyDer::from_pem_slice(&key.bytes)
            .map_err(|_| key.wrong("has no private key in PEM"))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| certificate.wrong(error))?;
        let (mut clients, mut ca_expires) = (None, None);
        let builder = match ca_bundle {
            None => builder.with_no_client_auth(),
            Some(ca_bundle) => {
                let (verifier, until) = client_verifier(ca_bundle, provider)?;
                (clients, ca_expires) = (Some(verifier.clone()), until);
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, private);
        let mut config = config.map_err(|error| {
            key.wrong(format!("not the key of {}: {error}", certificate.path.display()))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // No resumption: a session would bring back an identity that was verified against earlier CAs. So neither
        // tickets nor a store of them is needed.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), clients, expires, ca_expires })
    }

    /// When the server's certificate ends.
    pub(crate) fn expires(&self) -> SystemTime {
        self.expires
    }

    /// When the first of the clients' CAs expires.
    pub(crate) fn ca_expires(&self) -> Option<SystemTime> {
        self.ca_expires
    }

    /// Whether a chain, the client's own certificate first, is of one of the CAs.
    pub(crate) fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<(), rustls::Error> {
        let (Some(clients), Some((own, above))) = (&self.clients, chain.split_first()) else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        clients.verify_client_cert(own, above, UnixTime::since_unix_epoch(since_epoch)).map(|_| ())
    }

    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, HandshakeError> {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let handshake = acceptor
            .accept_with(stream, |connection| connection.set_buffer_limit(Some(RECORD_BUFFER)));
        let outcome = timeout(HANDSHAKE_TIMEOUT, handshake).await;
        outcome.map_err(|_| HandshakeError::Timeout)?.map_err(|error| {
            let refused = error.get_ref().and_then(|cause| cause.downcast_ref());
            match refused {
                Some(rustls::Error::InvalidCertificate(_)) => HandshakeError::Certificate(error),
                _ => HandshakeError::Other(error),
            }
        })
    }
}

/// A client without a certificate completes the handshake, and its calls are rejected with a message; a wrong
/// certificate ends the handshake.
fn client_verifier(
    ca_bundle: &Content,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Option<SystemTime>), FileError> {
    let found = certificates(ca_bundle)?;
    let until = found.iter().filter_map(|certificate| expiry(certificate)).min();
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(|error| ca_bundle.wrong(error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| ca_bundle.wrong(error))?;
    Ok((verifier, until))
}

fn certificates(content: &Content) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&content.bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| content.wrong(error))?;
    match found.is_empty() {
        true => Err(content.wrong("has no certificate in PEM")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2034, 1, 1);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// A certificate and its key in PEM.
    fn issued(authority: &CertifiedIssuer<'_, KeyPair>) -> (String, String) {
        let mut params = CertificateParams::new(vec!["distributor".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2033, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
    }

    fn parse(texts: &[&str]) -> Result<Material, FileError> {
        let contents: Vec<_> = ["cert", "key", "ca"]
            .iter()
            .zip(texts)
            .map(|(path, text)| Content {
                path: path.into(),
                bytes: text.as_bytes().to_vec().into(),
            })
            .collect();
        Material::parse(&contents[0], &contents[1], contents.get(2))
    }

    #[test]
    fn files_that_fit_are_taken() {
        let authority = authority();
        let (certificate, key) = issued(&authority);
        let alone = parse(&[&certificate, &key]).unwrap();
        let year = |at: SystemTime| {
            at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 31_557_600
        };
        assert_eq!((year(alone.expires()), alone.ca_expires()), (2033 - 1970, None));
        assert!(alone.verify(&[], SystemTime::now()).is_err());
        let mutual = parse(&[&certificate, &key, &authority.pem()]).unwrap();
        assert_eq!(mutual.ca_expires().map(year), Some(2034 - 1970));
        assert_eq!(mutual.config.alpn_protocols, [b"h2"]);
    }

    #[test]
    fn a_chain_is_verified_at_a_time() {
        let (ours, other) = (authority(), authority());
        let (certificate, key) = issued(&ours);
        let material = parse(&[&certificate, &key, &ours.pem()]).unwrap();
        let chain = |pem: &str| [CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
        let now = SystemTime::now();
        assert!(material.verify(&chain(&certificate), now).is_ok());
        let century = Duration::from_secs(100 * 31_557_600);
        assert!(material.verify(&chain(&certificate), now + century).is_err());
        assert!(material.verify(&chain(&issued(&other).0), now).is_err());
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let authority = authority();
        let ((certificate, key), (_, another)) = (issued(&authority), issued(&authority));
        for (texts, expected) in [
            (&["", &key][..], "cert: has no certificate in PEM"),
            (&[&certificate, ""], "key: has no private key in PEM"),
            (&[&certificate, &another], "key: not the key of cert"),
            (&[&certificate, &key, ""], "ca: has no certificate in PEM"),
            (&[&certificate, &key, &certificate[..90]], "ca: "),
        ] {
            let error = parse(texts).unwrap_err().to_string();
            assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
        }
    }
}

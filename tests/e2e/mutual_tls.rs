//! TLS on both sides of a proxy: clients have to show a certificate, backends are verified and shown one.

use crate::harness::{Helio, gateway_with, service, write};
use bytes::Bytes;
use heliograph_testing::Port;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_backends_are_verified_and_nobody_is_spoken_to_in_plain_text_instead() {
    let ca = CertificateAuthority::new("authority");
    let backend = backend(&ca).await;
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(port));
        let services = ["good", "wrong", "broken"].map(|name| service(name, backend)).concat();
        write(directory, "backends.yaml", &services);
        let secrets = ca.secret("web", "web.test") + &ca.secret("proxy", "proxy.test");
        write(directory, "secrets.yaml", &(secrets + &ca.config_map()));
        write(directory, "routes.yaml", ROUTES);
        write(directory, "policies.yaml", POLICIES);
    });
    helio.until_ready().await;

    let known = Some(ca.issue("client.test"));
    let ask = async |path: &str| ca.ask(port, path, known.as_ref()).await.unwrap();
    assert_eq!(ask("/good").await, (200, "secure /good".to_owned()));
    assert_eq!(ask("/wrong").await.0, 503, "the certificate has another name");
    assert_eq!(ask("/broken").await.0, 500, "its policy trusts nobody");

    assert!(ca.ask(port, "/good", None).await.is_err(), "nothing was shown");
    let stranger = CertificateAuthority::new("stranger").issue("client.test");
    assert!(ca.ask(port, "/good", Some(&stranger)).await.is_err(), "nobody knows it");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

/// A certificate and its key in PEM.
pub(crate) type Issued = (String, String);

pub(crate) struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl CertificateAuthority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.0.pem().as_bytes()).unwrap()).unwrap();
        roots
    }

    /// The manifest of a Secret.
    fn secret(&self, name: &str, host: &str) -> String {
        let (certificate, key) = self.issue(host);
        let (certificate, key) = (indented(&certificate), indented(&key));
        format!(
            "
---
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
    {certificate}
  tls.key: |
    {key}
"
        )
    }

    pub(crate) fn config_map(&self) -> String {
        let certificate = indented(&self.0.pem());
        format!(
            "
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: authority}}
data:
  ca.crt: |
    {certificate}
"
        )
    }

    /// Asks as a client that trusts this CA, and shows what it has. The status and the body.
    async fn ask(
        &self,
        port: u16,
        path: &str,
        shows: Option<&Issued>,
    ) -> Result<(u16, String), Box<dyn Error + Send + Sync>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots());
        let config = match shows {
            None => config.with_no_client_auth(),
            Some(shows) => {
                let (chain, key) = der(shows);
                config.with_client_auth_cert(chain, key)?
            }
        };
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from("web.test")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (mut connection, driver) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        let request = Request::get(path).header("host", "web.test").body(Empty::<Bytes>::new())?;
        let response = connection.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Speaks only to those who show a certificate of the CA. Returns its port.
async fn backend(ca: &CertificateAuthority) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(ca.roots());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
    let (chain, key) = der(&ca.issue("backend.test"));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |request: Request<hyper::body::Incoming>| async move {
        let body = format!("secure {}", request.uri().path());
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = server::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    port
}

pub(crate) fn der(
    (certificate, key): &Issued,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    (chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

fn indented(pem: &str) -> String {
    pem.replace('\n', "\n    ")
}

fn gateway(port: u16) -> String {
    let spec = format!(
        "tls:
    backend: {{clientCertificateRef: {{name: proxy}}}}
    frontend: {{default: {{validation: {{caCertificateRefs: [{{group: '', kind: ConfigMap, name: authority}}]}}}}}}
  listeners:
  - {{name: https, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{{name: web}}]}}}}"
    );
    gateway_with("web", &spec)
}

const ROUTES: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
  - {matches: [{path: {value: /good}}], backendRefs: [{name: good, port: 80}]}
  - {matches: [{path: {value: /wrong}}], backendRefs: [{name: wrong, port: 80}]}
  - {matches: [{path: {value: /broken}}], backendRefs: [{name: broken, port: 80}]}
";

/// For three Services: `good` is verified, `wrong` by a name that it does not have, and `broken` cannot be.
pub(crate) const POLICIES: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: good}
spec:
  targetRefs: [{group: '', kind: Service, name: good}]
  validation: {hostname: backend.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: authority}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: wrong}
spec:
  targetRefs: [{group: '', kind: Service, name: wrong}]
  validation: {hostname: other.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: authority}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: broken}
spec:
  targetRefs: [{group: '', kind: Service, name: broken}]
  validation: {hostname: backend.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: missing}]}
";

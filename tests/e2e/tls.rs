//! HTTPS: which certificate a client gets, what it is served then, and a new certificate without a restart.

use crate::harness::{Helio, backend, gateway_with, service, until, write};
use bytes::Bytes;
use heliograph_testing::Port;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A certificate that signs itself, and the Secret with it.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    pub(crate) key: KeyPair,
    /// The manifest.
    pub(crate) secret: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_gets_the_certificate_and_the_routes_of_the_name_it_asks_for() {
    let (one, two) = (backend("one").await, backend("two").await);
    let port = Port::reserve().unwrap().number();
    let exact = Identity::new("exact", "a.test");
    let wildcard = Identity::new("wildcard", "*.b.test");
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(port));
        write(directory, "backends.yaml", &(service("one", one) + &service("two", two)));
        write(directory, "routes.yaml", &(route("exact", "one") + &route("wildcard", "two")));
        write(directory, "exact.yaml", &exact.secret);
        write(directory, "wildcard.yaml", &wildcard.secret);
    });
    helio.until_ready().await;

    assert_eq!(exact.ask(port, "a.test").await.unwrap(), "one a.test /");
    assert_eq!(wildcard.ask(port, "x.b.test").await.unwrap(), "two x.b.test /");
    assert!(wildcard.ask(port, "a.test").await.is_err(), "a.test has a certificate of its own");
    assert!(exact.ask(port, "nobody.test").await.is_err(), "no listener has this name");
    // A client may ask on one connection for what belongs to another.
    let misdirected = async |host: &str| exact.ask_for(port, "a.test", host).await.unwrap().0;
    assert_eq!(misdirected("a.test").await, 200);
    assert_eq!(misdirected("x.b.test").await, 421, "it is the other listener's");
    assert_eq!(misdirected("nobody.test").await, 404, "it is nobody's");

    let renewed = Identity::new("exact", "a.test");
    write(&helio.directory(), "exact.yaml", &renewed.secret);
    until("the new certificate is served", || async { renewed.ask(port, "a.test").await.is_ok() })
        .await
        .unwrap();
    assert!(exact.ask(port, "a.test").await.is_err(), "the old certificate is gone");
    assert_eq!(wildcard.ask(port, "x.b.test").await.unwrap(), "two x.b.test /");

    assert!(helio.end("TERM").await.success(), "{}", helio.log());
    assert!(!helio.log().contains("PRIVATE"), "a key is in the log");
}

impl Identity {
    pub(crate) fn new(secret: &str, host: &str) -> Self {
        let pair = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        let indented = |pem: String| pem.replace('\n', "\n    ");
        let secret = format!(
            "
apiVersion: v1
kind: Secret
metadata: {{name: {secret}}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
    {}
  tls.key: |
    {}
",
            indented(pair.cert.pem()),
            indented(pair.signing_key.serialize_pem()),
        );
        Self { certificate: pair.cert.der().clone(), key: pair.signing_key, secret }
    }

    /// Asks as a client that trusts this certificate alone.
    pub(crate) async fn ask(
        &self,
        port: u16,
        host: &str,
    ) -> Result<String, Box<dyn Error + Send + Sync>> {
        self.ask_for(port, host, host).await.map(|(_, body)| body)
    }

    /// Asks on a connection for one name for a host of another. The status and the body.
    async fn ask_for(
        &self,
        port: u16,
        name: &str,
        host: &str,
    ) -> Result<(u16, String), Box<dyn Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())?;
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (mut connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        let request = Request::get("/").header("host", host).body(Empty::<Bytes>::new())?;
        let response = connection.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).trim().to_owned()))
    }
}

/// Two listeners on one port, told apart by the name that the client asks for.
fn gateway(port: u16) -> String {
    let spec = format!(
        "listeners:
  - {{name: exact, protocol: HTTPS, port: {port}, hostname: a.test, tls: {{certificateRefs: [{{name: exact}}]}}}}
  - {{name: wildcard, protocol: HTTPS, port: {port}, hostname: '*.b.test', tls: {{certificateRefs: [{{name: wildcard}}]}}}}"
    );
    gateway_with("web", &spec)
}

fn route(listener: &str, backend: &str) -> String {
    format!(
        "
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {listener}}}
spec:
  parentRefs: [{{name: web, sectionName: {listener}}}]
  rules: [{{backendRefs: [{{name: {backend}, port: 80}}]}}]
"
    )
}

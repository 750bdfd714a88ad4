//! TCPRoutes: bytes go through as they are, in shares by weight, and follow what changes.

use crate::harness::{Helio, gateway_with, replace, service, until, write};
use crate::mutual_tls::{CertificateAuthority, POLICIES, der};
use heliograph_testing::Port;
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_go_through_in_shares_and_follow_route_and_endpoints() {
    let (blue, green, red) = (backend("blue").await, backend("green").await, backend("red").await);
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(&[port]));
        write(directory, "blue.yaml", &service("blue", blue));
        write(directory, "green.yaml", &service("green", green));
        let shares = [("blue", 3), ("green", 1), ("missing", 0)];
        write(directory, "route.yaml", &route("wires", 2020, &shares));
    });
    helio.until_ready().await;

    // The server begins, so nothing of the client may be waited for.
    let mut first = Call::to(port).await.unwrap();
    first.echoes(&vec![7; 3 << 20]).await;
    let answered = shares(port, 200).await;
    let of = |name: &str| answered.get(name).copied().unwrap_or_default();
    assert_eq!(of("blue") + of("green"), 200, "{answered:?}");
    assert!((20..=80).contains(&of("green")), "a quarter of them: {answered:?}");

    // What leads nowhere closes its share.
    write(&helio.directory(), "route.yaml", &route("wires", 2020, &[("blue", 1), ("missing", 1)]));
    until("a share is closed", || async { Call::to(port).await.is_err() }).await.unwrap();
    let answered = shares(port, 200).await;
    let closed = answered.get("").copied().unwrap_or_default();
    assert!((50..=150).contains(&closed), "half of them: {answered:?}");
    assert!(!answered.contains_key("green"), "{answered:?}");

    write(&helio.directory(), "route.yaml", &route("wires", 2020, &[("green", 1)]));
    until_answered_by(port, "green").await;
    // Who was connected stays so.
    first.echoes(b"still there").await;

    write(&helio.directory(), "green.yaml", &service("green", red));
    until_answered_by(port, "red").await;

    fs::remove_file(helio.directory().join("route.yaml")).unwrap();
    until("without a route it is closed", || async { Call::to(port).await.is_err() })
        .await
        .unwrap();
    assert_eq!(shares(port, 20).await, BTreeMap::from([(String::new(), 20)]));
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

/// A cluster is there before the listener that names it, and goes after the listener has let go of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_fails_while_a_route_changes_where_they_go() {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(&[port]));
        write(directory, "backends.yaml", &(service("blue", blue) + &service("green", green)));
        write(directory, "route.yaml", &route("wires", 2020, &[("blue", 1)]));
    });
    helio.until_ready().await;
    until_answered_by(port, "blue").await;

    let stop = watch::Sender::new(false);
    let stopped = stop.subscribe();
    let calls = tokio::spawn(async move {
        let mut answered = BTreeMap::new();
        while !*stopped.borrow() {
            let server = Call::to(port).await.map(|call| call.server);
            *answered.entry(server.unwrap_or_else(|error| error.to_string())).or_insert(0) += 1;
        }
        answered
    });
    for name in ["green", "blue"].into_iter().cycle().take(20) {
        replace(&helio.directory(), "route.yaml", &route("wires", 2020, &[(name, 1)]));
        until_answered_by(port, name).await;
    }
    stop.send_replace(true);
    let answered = calls.await.unwrap();
    assert!(answered.keys().eq(["blue", "green"]), "{answered:?}");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_route_has_the_connections_of_a_listener() {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let ports: Vec<u16> = (0..2).map(|_| Port::reserve().unwrap().number()).collect();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(&ports));
        write(directory, "backends.yaml", &(service("blue", blue) + &service("green", green)));
        write(directory, "older.yaml", &route("older", 2020, &[("blue", 1)]));
        write(directory, "younger.yaml", &route("younger", 2021, &[("green", 1)]));
    });
    helio.until_ready().await;
    for port in &ports {
        until_answered_by(*port, "blue").await;
        assert_eq!(shares(*port, 20).await, BTreeMap::from([("blue".to_owned(), 20)]));
    }
    fs::remove_file(helio.directory().join("older.yaml")).unwrap();
    for port in &ports {
        until_answered_by(*port, "green").await;
    }
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_are_spoken_to_over_tls_where_a_policy_asks_for_it() {
    let ca = CertificateAuthority::new("authority");
    let secure = secure_backend("secure", &ca).await;
    let ports: Vec<u16> = (0..3).map(|_| Port::reserve().unwrap().number()).collect();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway(&ports));
        let services = ["good", "wrong", "broken"].map(|name| service(name, secure)).concat();
        write(directory, "backends.yaml", &services);
        write(directory, "authority.yaml", &ca.config_map());
        write(directory, "policies.yaml", POLICIES);
        for (index, name) in ["good", "wrong", "broken"].into_iter().enumerate() {
            write_route_to(directory, name, index);
        }
    });
    helio.until_ready().await;
    until_answered_by(ports[0], "secure").await;
    Call::to(ports[0]).await.unwrap().echoes(b"over the wire").await;
    assert!(Call::to(ports[1]).await.is_err(), "the certificate has another name");
    assert!(Call::to(ports[2]).await.is_err(), "its policy trusts nobody");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

/// A connection whose server has said who it is.
struct Call {
    server: String,
    stream: BufReader<TcpStream>,
}

impl Call {
    async fn to(port: u16) -> io::Result<Self> {
        let begin = async {
            let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
            let mut server = String::new();
            match stream.read_line(&mut server).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(Self { server: server.trim_end().to_owned(), stream }),
            }
        };
        timeout(DEADLINE, begin).await.expect("an answer or the end comes in time")
    }

    /// Whatever is sent comes back.
    async fn echoes(&mut self, sent: &[u8]) {
        let exchange = async {
            let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
            let mut received = vec![0; sent.len()];
            let (sent, read) =
                tokio::join!(writer.write_all(sent), reader.read_exact(&mut received));
            sent.unwrap();
            read.unwrap();
            received
        };
        let received = timeout(DEADLINE, exchange).await.expect("it comes back in time");
        assert!(received == sent, "{} bytes came back as others", sent.len());
    }
}

/// How many connections each backend answered, without those that were closed.
async fn shares(port: u16, connections: usize) -> BTreeMap<String, usize> {
    let mut answered = BTreeMap::new();
    for _ in 0..connections {
        let server = Call::to(port).await.map(|call| call.server).unwrap_or_default();
        *answered.entry(server).or_default() += 1;
    }
    answered
}

async fn until_answered_by(port: u16, name: &str) {
    until(&format!("{name} answers"), || async {
        Call::to(port).await.is_ok_and(|call| call.server == name)
    })
    .await
    .unwrap();
}

/// Sends its name on each connection, and then echoes what it receives. Returns its port.
async fn backend(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(name, stream));
        }
    });
    port
}

/// The same over TLS, with a certificate for `backend.test`.
async fn secure_backend(name: &'static str, ca: &CertificateAuthority) -> u16 {
    let (chain, key) = der(&ca.issue("backend.test"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(name, stream).await;
                }
            });
        }
    });
    port
}

async fn serve(name: &str, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.write_all(format!("{name}\n").as_bytes()).await.is_ok() {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    }
}

/// A Gateway with these ports for TCP.
fn gateway(ports: &[u16]) -> String {
    let listener =
        |(index, port)| format!("\n  - {{name: tcp-{index}, protocol: TCP, port: {port}}}");
    let listeners: String = ports.iter().enumerate().map(listener).collect();
    gateway_with("web", &format!("listeners:{listeners}"))
}

/// To all listeners.
fn route(name: &str, year: u16, shares: &[(&str, u32)]) -> String {
    route_at("", name, year, shares)
}

fn write_route_to(directory: &Path, name: &str, listener: usize) {
    let section = format!(", sectionName: tcp-{listener}");
    write(directory, &format!("{name}.yaml"), &route_at(&section, name, 2020, &[(name, 1)]));
}

fn route_at(section: &str, name: &str, year: u16, shares: &[(&str, u32)]) -> String {
    let backend =
        |(name, weight): &(&str, u32)| format!("{{name: {name}, port: 80, weight: {weight}}}");
    let backends: Vec<String> = shares.iter().map(backend).collect();
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {{name: {name}, creationTimestamp: '{year}-01-01T00:00:00Z'}}
spec:
  parentRefs: [{{name: web{section}}}]
  rules: [{{backendRefs: [{}]}}]
",
        backends.join(", ")
    )
}

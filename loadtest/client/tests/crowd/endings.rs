//! The errors, in one line each, about a server that does not behave as it should.

use crate::peer::Peer;
use crate::watcher::{Seen, World, comes_true};
use heliograph_client::{Conduct, Protocol, Server, ServerError};
use http::Response;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

async fn end_at(server: Server) -> String {
    let world = World::over(vec![server], 1);
    world.join("me", Protocol::Delta, Conduct::Well);
    let ended = world.ended().await;
    assert_eq!(ended.lines().count(), 1, "{ended}");
    ended
}

async fn end_at_address(address: &str) -> String {
    end_at(Server::new(address, None, None).unwrap()).await
}

/// A server's side with a certificate for the host, and a client's side that trusts it.
fn tls_for(host: &str) -> (TlsAcceptor, ClientConfig) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([host.to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = cert.der().clone();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), client)
}

#[tokio::test]
async fn tls_and_a_token() {
    let (acceptor, trust) = tls_for("127.0.0.1");
    let peer = Peer::with(Some(acceptor), || None).await;
    let world =
        World::over(vec![Server::new(&peer.address, Some(trust), Some("secret")).unwrap()], 1);
    let member = world.join("me", Protocol::Delta, Conduct::Well);
    world.warm(member).await;
    assert_eq!(peer.recorded(|recorded| recorded.tokens.clone()), ["Bearer secret"]);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted() {
    let (acceptor, _) = tls_for("127.0.0.1");
    let (_, another) = tls_for("127.0.0.1");
    let peer = Peer::with(Some(acceptor), || None).await;
    let ended = end_at(Server::new(&peer.address, Some(another), None).unwrap()).await;
    assert!(ended.contains("certificate") && ended.contains("127.0.0.1:"), "{ended}");
}

#[tokio::test]
async fn a_certificate_for_another_name() {
    let (acceptor, trust) = tls_for("elsewhere.example");
    let peer = Peer::with(Some(acceptor), || None).await;
    let ended = end_at(Server::new(&peer.address, Some(trust), None).unwrap()).await;
    assert!(ended.contains("certificate") && ended.contains("elsewhere.example"), "{ended}");
}

#[tokio::test]
async fn tls_where_there_is_none() {
    let peer = Peer::start().await;
    let (_, trust) = tls_for("127.0.0.1");
    let address = peer.address.replace("http:", "https:");
    let ended = end_at(Server::new(&address, Some(trust), None).unwrap()).await;
    assert!(ended.contains("TLS"), "{ended}");
}

#[tokio::test]
async fn no_tls_where_there_is_some() {
    let (acceptor, _) = tls_for("127.0.0.1");
    let peer = Peer::with(Some(acceptor), || None).await;
    let ended = end_at_address(&peer.address.replace("https:", "http:")).await;
    assert!(ended.contains("does not speak HTTP/2"), "{ended}");
}

#[tokio::test]
async fn nothing_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ended = end_at_address(&format!("http://{address}")).await;
    assert_eq!(ended, format!("nothing listens at {address}"));
}

#[tokio::test]
async fn no_such_name() {
    let ended = end_at_address("http://no-such-host.invalid:80").await;
    assert!(ended.contains("no-such-host.invalid:80"), "{ended}");
    assert!(ended.contains("looked up"), "{ended}");
}

#[tokio::test]
async fn a_server_of_http_1() {
    for (answer, said) in [
        ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "does not speak HTTP/2"),
        ("no", "does not speak HTTP/2"),
        ("", "closed it before it answered"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.shutdown().await;
                // What is not read would be answered with a reset, in place of the answer.
                tokio::spawn(async move { socket.read_to_end(&mut Vec::new()).await });
            }
        });
        let ended = end_at_address(&format!("http://{address}")).await;
        assert!(ended.contains(said), "{ended}");
    }
}

/// The kernel takes a connection long before a busy server does.
#[tokio::test]
async fn a_connection_is_up_once_the_server_has_answered() {
    for streams_per_connection in [1, 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let world = World::of(&[&address], streams_per_connection);
        world.join("me", Protocol::Delta, Conduct::Well);
        let (mut socket, _) = listener.accept().await.unwrap();
        // The preface and the header of its settings: the client has said what it has to say by itself.
        socket.read_exact(&mut [0; 24 + 9]).await.unwrap();
        let is_up = || world.watcher.seen().iter().any(|seen| matches!(seen, Seen::Connected));
        assert!(!is_up());
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        socket.write_all(&settings).await.unwrap();
        comes_true("up", is_up).await;
    }
}

#[tokio::test]
async fn http_2_without_grpc() {
    let page = || {
        Some(Response::builder().status(404).header("content-type", "text/html").body(()).unwrap())
    };
    let ended = end_at_address(&Peer::refusing(page).await.address).await;
    assert!(ended.contains("does not speak gRPC"), "{ended}");
    assert!(ended.contains("404") && ended.contains("text/html"), "{ended}");
}

#[tokio::test]
async fn grpc_without_ads() {
    let unknown = || {
        let response = Response::builder().header("content-type", "application/grpc");
        Some(
            response
                .header("grpc-status", "12")
                .header("grpc-message", "no%20such")
                .body(())
                .unwrap(),
        )
    };
    let ended = end_at_address(&Peer::refusing(unknown).await.address).await;
    assert!(ended.contains("does not serve ADS") && ended.contains("no such"), "{ended}");
}

#[tokio::test]
async fn who_are_you() {
    let stranger = || {
        let response = Response::builder().header("content-type", "application/grpc");
        Some(response.header("grpc-status", "16").body(()).unwrap())
    };
    let ended = end_at_address(&Peer::refusing(stranger).await.address).await;
    assert!(ended.contains("does not know who the client is"), "{ended}");
}

#[test]
fn what_is_no_server() {
    for wrong in ["", "127.0.0.1:18000", "ftp://host:1", "http://", "http://host:99999999"] {
        assert!(matches!(Server::new(wrong, None, None), Err(ServerError::Address(_))), "{wrong}");
    }
    assert!(matches!(Server::new("https://host:1", None, None), Err(ServerError::NoTls(_))));
    assert!(matches!(Server::new("http://host:1", None, Some("a\nb")), Err(ServerError::Token)));
    assert_eq!(Server::new("http://[::1]:1", None, None).unwrap().address(), "[::1]:1");
}

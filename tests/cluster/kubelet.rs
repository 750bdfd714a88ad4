//! What a kubelet does for `helio`: it forwards ports and shows logs. Its pods are programs on this machine.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub(crate) struct Kubelet {
    pub(crate) port: u16,
    /// On which port of this machine the admin port of a pod is.
    pods: Arc<Mutex<BTreeMap<String, u16>>>,
}

/// What every pod logs.
pub(crate) const LOG: &str = "INFO serving\nWARN password=in-the-log-by-mistake\n";
/// What every pod logged in the container before.
pub(crate) const LOG_BEFORE: &str = "INFO out of memory\n";
/// The one that is no more on the node, as evicted ones are.
pub(crate) const GONE: &str = "distributor-e";

const PROTOCOL: &str = "v4.channel.k8s.io";

impl Kubelet {
    pub(crate) async fn start() -> Self {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![pair.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pods: Arc<Mutex<BTreeMap<String, u16>>> = Arc::default();
        let known = pods.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (tls, pods) = (tls.clone(), known.clone());
                tokio::spawn(async move {
                    let stream = tls.accept(tcp).await.unwrap();
                    let service = service_fn(move |request| answer(request, pods.clone()));
                    let served =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let _ = served.with_upgrades().await;
                });
            }
        });
        Self { port, pods }
    }

    pub(crate) fn runs(&self, pod: &str, admin: u16) {
        self.pods.lock().unwrap().insert(pod.to_owned(), admin);
    }
}

/// `/portForward/NAMESPACE/POD`, or `/containerLogs/NAMESPACE/POD/CONTAINER`.
async fn answer(
    mut request: Request<Incoming>,
    pods: Arc<Mutex<BTreeMap<String, u16>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let parts: Vec<&str> = request.uri().path().split('/').collect();
    let (what, pod) = (parts[1], parts[3].to_owned());
    if what == "containerLogs" {
        // Others are not ours to pass on.
        assert!(["translator", "distributor"].contains(&parts[4]), "{parts:?}");
        let query = request.uri().query().unwrap_or_default();
        return Ok(match query.contains("previous=true") {
            _ if pod == GONE => {
                let missing = Response::builder().status(StatusCode::NOT_FOUND);
                missing.body(Full::from("there is no such pod here")).unwrap()
            }
            true => Response::new(Full::from(LOG_BEFORE)),
            false => Response::new(Full::from(LOG)),
        });
    }
    assert_eq!(what, "portForward");
    assert_eq!(request.uri().query(), Some("port=19000"));
    let accept = derive_accept_key(request.headers()[header::SEC_WEBSOCKET_KEY].as_bytes());
    let admin = pods.lock().unwrap().get(&pod).copied();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgraded.await.unwrap());
        forward(WebSocketStream::from_raw_socket(stream, Role::Server, None).await, admin).await;
    });
    let answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::UPGRADE, "websocket")
        .header(header::CONNECTION, "Upgrade")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept)
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    Ok(answer.body(Full::default()).unwrap())
}

/// Channel 0 carries the bytes, channel 1 what went wrong. Each begins with the port.
async fn forward(socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>, admin: Option<u16>) {
    let (mut out, mut incoming) = socket.split();
    let mut send = async |channel: u8, bytes: &[u8]| {
        let _ = out.send(Message::binary([&[channel], bytes].concat())).await;
    };
    for channel in [0, 1] {
        send(channel, &19000_u16.to_le_bytes()).await;
    }
    let pod = match admin {
        Some(port) => TcpStream::connect(("127.0.0.1", port)).await.ok(),
        None => None,
    };
    let Some(pod) = pod else {
        send(1, b"connect: connection refused in the pod").await;
        // To end with something unread would reset the connection, and take the words with it.
        while let Some(Ok(_)) = incoming.next().await {}
        return;
    };
    let (mut from_pod, mut to_pod) = pod.into_split();
    let to_pod = async {
        while let Some(Ok(message)) = incoming.next().await {
            match message {
                Message::Binary(bytes) if bytes.first() == Some(&0) => {
                    to_pod.write_all(&bytes[1..]).await.unwrap();
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
    };
    let from_pod = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from_pod.read(&mut buffer).await {
            send(0, &buffer[..length]).await;
        }
    };
    tokio::select! {
        () = to_pod => {}
        () = from_pod => {}
    }
}

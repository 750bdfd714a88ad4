//! What clients of tenant A do to a distributor. Each is let in as who it is, and reads fleets of its own namespace.

use super::DEADLINE;
use super::objects::TENANT;
use crate::pki::{CertificateAuthority, Issued, Signer};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use heliograph_client::{Client, Options, Protocol, Server};
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_envoy::{Message, append_message};
use heliograph_snapshot::ResourceType;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use std::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Where they connect, and what they show.
pub(crate) struct Clients {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    pub(crate) authority: CertificateAuthority,
    /// The hostile tenant's own.
    identity: Issued,
    /// A stolen one of an Envoy of the shared fleet.
    stolen: Issued,
}

/// A call that may say anything.
pub(crate) struct Call {
    requests: SendStream<Bytes>,
    answers: ResponseFuture,
}

type Failure = Box<dyn Error + Send + Sync>;

const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// How many streams a connection may have.
const STREAMS: usize = 8;
/// What a client of TLS says first: a record, and the beginning of a greeting.
const GREETING: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7];

pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
pub(crate) const UNAUTHENTICATED: u32 = 16;

impl Clients {
    pub(crate) fn new(port: u16, authority: CertificateAuthority, envoy: Issued) -> Self {
        let identity = authority.issue(&format!("spiffe://example.org/ns/{TENANT}/sa/hostile"));
        Self { address: format!("127.0.0.1:{port}"), authority, identity, stolen: envoy }
    }

    /// A simulated Envoy of the shared fleet.
    pub(crate) fn proxy(&self, change: impl FnOnce(&mut Options)) -> Client {
        self.proxy_of(super::FLEET, &self.stolen, change)
    }

    /// One of the tenant's own fleet, which rejects what has a text.
    pub(crate) fn own_proxy(&self, rejected: &'static str) -> Client {
        let fleet = format!("{TENANT}/web");
        self.proxy_of(&fleet, &self.identity, |options| {
            options.node_id = "own".to_owned();
            options.rejects = Arc::new(move |_, _, body: &[u8]| {
                let has_it = body.windows(rejected.len()).any(|it| it == rejected.as_bytes());
                has_it.then(|| format!("'{rejected}' is rejected"))
            });
        })
    }

    fn proxy_of(
        &self,
        fleet: &str,
        identity: &Issued,
        change: impl FnOnce(&mut Options),
    ) -> Client {
        let address = format!("https://{}", self.address);
        let tls = self.authority.client(Some(identity));
        let server = Server::new(&address, Some(tls), None).unwrap();
        let mut options = Options::new(address, Protocol::Delta, fleet);
        change(&mut options);
        Client::connect_to(server, options)
    }

    /// What becomes of a first request that has millions of empty parts, for each field where that can be.
    pub(crate) async fn empty_parts(&self) -> Vec<u32> {
        // The node's extensions and metadata, names and versions, locators, details of an error: in each field of the path
        // the next one. The first is as large as a request may be.
        let paths: [&[u32]; 6] = [&[1, 9], &[1, 3, 1], &[3], &[5], &[8], &[7, 3]];
        let node = node("web").encode_to_vec();
        let mut ends = Vec::new();
        for path in paths {
            let (last, outer) = path.split_last().unwrap();
            let mut parts =
                [*last as u8 * 8 + 2, 0].repeat(if path == [1, 9] { 15 << 20 } else { 1 << 20 });
            let mut words = Vec::new();
            for field in outer.iter().rev() {
                let start = if *field == 1 { node.clone() } else { Vec::new() };
                let mut message = Vec::new();
                append_message(&mut message, *field, &[start, parts].concat());
                parts = message;
            }
            if path[0] != 1 {
                append_message(&mut words, 1, &node);
            }
            append_message(&mut words, 2, ResourceType::Cluster.type_url().as_bytes());
            words.extend(parts);
            let mut call = self.call(None).await.unwrap();
            // It may be refused under way.
            let _ = call.send(framed(&words)).await;
            ends.push(call.end().await.unwrap());
        }
        ends
    }

    /// How a stream ends that subscribes to so many names that its fleet does not have.
    pub(crate) async fn unknown_names(&self, names: usize) -> u32 {
        let mut call = self.call(None).await.unwrap();
        let names = (0..names).map(|n| n.to_string()).collect();
        let asked = request(Some(node("web")), ResourceType::Cluster, names);
        call.send(framed(&asked)).await.unwrap();
        call.end().await.unwrap()
    }

    /// Streams that subscribe to names of each type, all of them others, and answer nothing. They end when they are dropped.
    pub(crate) async fn many_unknown_names(&self, streams: usize, names: usize) -> JoinSet<u32> {
        let mut calls = JoinSet::new();
        for number in 0..streams {
            let mut call = self.call(None).await.unwrap();
            calls.spawn(async move {
                for kind in ResourceType::ALL {
                    let names = (0..names).map(|n| format!("{number}-{n}")).collect();
                    let node = (kind == ResourceType::ALL[0]).then(|| node("web"));
                    // It may have ended meanwhile.
                    let _ = call.until_sent(framed(&request(node, kind, names))).await;
                }
                call.until_ended().await.unwrap_or_default()
            });
        }
        calls
    }

    /// Streams that wait for a fleet that is not published. Some may be rejected.
    pub(crate) async fn waiting(&self, streams: usize) -> Vec<Call> {
        let mut calls = Vec::new();
        for _ in 0..streams.div_ceil(STREAMS) {
            let Ok(opener) = self.connect(true).await else { continue };
            for _ in 0..STREAMS {
                let Ok(mut call) = Call::open(opener.clone(), None).await else { break };
                let first = request(Some(node("nowhere")), ResourceType::Cluster, Vec::new());
                let _ = call.send(framed(&first)).await;
                calls.push(call);
            }
        }
        calls
    }

    /// Connections that never show who they are.
    pub(crate) async fn half_open(&self, count: usize) -> Vec<TcpStream> {
        let mut halves = Vec::new();
        for number in 0..count {
            let mut half = TcpStream::connect(&self.address).await.unwrap();
            if number % 2 == 0 {
                // It may be closed already.
                let _ = half.write_all(GREETING).await;
            }
            halves.push(half);
        }
        halves
    }

    /// How calls with made-up tokens of Envoys of the shared fleet end.
    pub(crate) async fn made_up_tokens(&self, connections: usize) -> Vec<u32> {
        let (forger, mut ends) = (Signer::new("one"), Vec::new());
        for connection in 0..connections {
            let Ok(opener) = self.connect(false).await else { continue };
            for number in 0..STREAMS {
                let more = json!({"jti": format!("{connection}-{number}")});
                let token = forger.token("system:serviceaccount:default:envoy", 3600, &more);
                let call = Call::open(opener.clone(), Some(&token)).await;
                let Ok(call) = call else { break };
                let Ok(end) = call.end().await else { break };
                ends.push(end);
            }
        }
        ends
    }

    /// Streams of one proxy that reject everything, or every table of routes, each time in other words.
    pub(crate) fn rejecting(&self, streams: usize) -> Vec<Client> {
        let words = Arc::new(AtomicUsize::new(0));
        let reject = |number: usize| {
            let words = words.clone();
            self.proxy(|options| {
                options.node_id = "stolen".to_owned();
                options.rejects = Arc::new(move |kind, name, _| {
                    let rejected = number.is_multiple_of(2) || kind == ResourceType::Route;
                    rejected.then(|| format!("{name} is rejected, {}", words.fetch_add(1, Relaxed)))
                });
            })
        };
        (0..streams).map(reject).collect()
    }

    async fn call(&self, token: Option<&str>) -> Result<Call, Failure> {
        Call::open(self.connect(true).await?, token).await
    }

    /// A connection, which ends with its last call.
    async fn connect(&self, shows_certificate: bool) -> Result<SendRequest<Bytes>, Failure> {
        let shows = shows_certificate.then_some(&self.identity);
        let mut tls: ClientConfig = self.authority.client(shows);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(&self.address).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
        let (opener, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        Ok(opener)
    }
}

impl Call {
    async fn open(opener: SendRequest<Bytes>, token: Option<&str>) -> Result<Self, Failure> {
        let mut request = http::Request::post(format!("https://server{METHOD}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (answers, requests) = opener.ready().await?.send_request(request.body(())?, false)?;
        Ok(Self { requests, answers })
    }

    /// Sends it as the windows have room for it. An error once the call has ended.
    async fn send(&mut self, words: Bytes) -> Result<(), Failure> {
        tokio::time::timeout(DEADLINE, self.until_sent(words)).await.expect("nobody reads")
    }

    async fn until_sent(&mut self, mut words: Bytes) -> Result<(), Failure> {
        while !words.is_empty() {
            self.requests.reserve_capacity(words.len());
            let room = poll_fn(|context| self.requests.poll_capacity(context)).await;
            let room = room.ok_or("the call has ended")??;
            self.requests.send_data(words.split_to(room.min(words.len())), false)?;
        }
        Ok(())
    }

    /// The status that it ends with.
    pub(crate) async fn end(self) -> Result<u32, Failure> {
        tokio::time::timeout(DEADLINE, self.until_ended()).await.expect("a call does not end")
    }

    async fn until_ended(self) -> Result<u32, Failure> {
        let (mut answers, _requests): (RecvStream, _) = {
            let answer = self.answers.await?;
            if let Some(status) = answer.headers().get("grpc-status") {
                return Ok(status.to_str()?.parse()?);
            }
            (answer.into_body(), self.requests)
        };
        while let Some(data) = answers.data().await {
            let length = data?.len();
            answers.flow_control().release_capacity(length)?;
        }
        let trailers = answers.trailers().await?.ok_or("no trailers")?;
        Ok(trailers.get("grpc-status").ok_or("no status")?.to_str()?.parse()?)
    }
}

/// Of a proxy of a Gateway of the tenant's.
fn node(gateway: &str) -> Node {
    let cluster = format!("{TENANT}/{gateway}");
    Node { id: "hostile".to_owned(), cluster, ..Default::default() }
}

fn request(node: Option<Node>, kind: ResourceType, names: Vec<String>) -> Vec<u8> {
    let request = DeltaDiscoveryRequest {
        node,
        type_url: kind.type_url().to_owned(),
        resource_names_subscribe: names,
        ..Default::default()
    };
    request.encode_to_vec()
}

/// A gRPC message.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

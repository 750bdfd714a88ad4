//! What clients of tenant A do to a distributor. Each is let in as who it is, and reads fleets of its own namespace.

use super::DEADLINE;
use super::objects::TENANT;
use crate::pki::{CertificateAuthority, Issued, Signer};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use heliograph_client::{Client, Options, Protocol, Server};
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_envoy::{Message, append_message};
use heliograph_snapshot::ResourceType;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use std::error::Error;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
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
    /// How many connections there were so far: each comes from another address of loopback.
    connections: AtomicUsize,
}

/// Shows one made-up token after the other from one address, until it is dropped.
pub(crate) struct Flood {
    shown: watch::Receiver<usize>,
    tasks: JoinSet<()>,
}

/// A call that may say anything.
pub(crate) struct Call {
    requests: SendStream<Bytes>,
    answers: ResponseFuture,
}

type Failure = Box<dyn Error + Send + Sync>;

/// By turns, so that whatever is done is done in both.
const PROTOCOLS: [Protocol; 2] = [Protocol::Delta, Protocol::StateOfTheWorld];
/// How many streams a connection may have.
const STREAMS: usize = 8;
/// What a client of TLS says first: a record, and the beginning of a greeting.
const GREETING: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7];

/// As many empty parts as fit into a request, of two bytes each.
const EMPTY_PARTS: usize = 15 << 20;
/// The largest request that there may be.
const LARGEST: u32 = 32 << 20;
/// Whose tokens are made up.
const SUBJECT: &str = "system:serviceaccount:default:envoy";
/// Where a flood of them comes from.
const FLOODING: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

pub(crate) const INVALID_ARGUMENT: u32 = 3;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
const UNAVAILABLE: u32 = 14;
pub(crate) const UNAUTHENTICATED: u32 = 16;

impl Clients {
    pub(crate) fn new(port: u16, authority: CertificateAuthority, envoy: Issued) -> Self {
        let identity = authority.issue(&format!("spiffe://example.org/ns/{TENANT}/sa/hostile"));
        let (address, connections) = (format!("127.0.0.1:{port}"), AtomicUsize::new(0));
        Self { address, authority, identity, stolen: envoy, connections }
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
        // the next one. Of state of the world, extensions and names.
        let delta: [&[u32]; 6] = [&[1, 9], &[1, 3, 1], &[3], &[5], &[8], &[7, 3]];
        let whole: [&[u32]; 2] = [&[2, 9], &[3]];
        let delta = delta.map(|path| (Protocol::Delta, 1, 2, path));
        let whole = whole.map(|path| (Protocol::StateOfTheWorld, 2, 4, path));
        let node = node("web").encode_to_vec();
        let mut ends = Vec::new();
        for (protocol, node_field, type_field, path) in delta.into_iter().chain(whole) {
            let (last, outer) = path.split_last().unwrap();
            let mut parts = [*last as u8 * 8 + 2, 0].repeat(EMPTY_PARTS);
            let mut words = Vec::new();
            for (depth, field) in outer.iter().enumerate().rev() {
                let is_node = depth == 0 && *field == node_field;
                let start = if is_node { node.clone() } else { Vec::new() };
                let mut message = Vec::new();
                append_message(&mut message, *field, &[start, parts].concat());
                parts = message;
            }
            if path[0] != node_field {
                append_message(&mut words, node_field, &node);
            }
            append_message(&mut words, type_field, ResourceType::Cluster.type_url().as_bytes());
            words.extend(parts);
            ends.push(self.end_of(protocol, &words).await);
        }
        ends
    }

    /// What becomes of one that says twice which version of a resource the client has.
    pub(crate) async fn repeated_key(&self) -> u32 {
        let first = request(Protocol::Delta, Some(node("web")), ResourceType::Cluster, Vec::new());
        let version = |version: &str| {
            let mut entry = Vec::new();
            append_message(&mut entry, 1, b"one");
            append_message(&mut entry, 2, version.as_bytes());
            let mut field = Vec::new();
            append_message(&mut field, 5, &entry);
            field
        };
        self.end_of(Protocol::Delta, &[first, version("1"), version("2")].concat()).await
    }

    /// Streams with a request of which the length is sent and a part. Some may be refused.
    pub(crate) async fn half_received(&self, streams: usize) -> Vec<Call> {
        let begun = [&[0], &LARGEST.to_be_bytes()[..], &[7; 1 << 10]].concat();
        self.saying(streams, STREAMS, |_| begun.clone().into()).await
    }

    /// How a stream ends that subscribes to so many names that its fleet does not have.
    pub(crate) async fn unknown_names(&self, protocol: Protocol, names: usize) -> u32 {
        let names = (0..names).map(|n| n.to_string()).collect();
        let asked = request(protocol, Some(node("web")), ResourceType::Cluster, names);
        self.end_of(protocol, &asked).await
    }

    /// Streams that subscribe to names of each type, all of them others, and answer nothing. They end when they are dropped.
    pub(crate) async fn many_unknown_names(&self, streams: usize, names: usize) -> JoinSet<u32> {
        let mut calls = JoinSet::new();
        for number in 0..streams {
            let protocol = PROTOCOLS[number % 2];
            let mut call =
                Call::open(self.connect(true).await.unwrap(), protocol, None).await.unwrap();
            calls.spawn(async move {
                for kind in ResourceType::ALL {
                    let names = (0..names).map(|n| format!("{number}-{n}")).collect();
                    let node = (kind == ResourceType::ALL[0]).then(|| node("web"));
                    // It may have ended meanwhile.
                    let _ = call.until_sent(framed(&request(protocol, node, kind, names))).await;
                }
                call.until_ended().await.unwrap_or_default()
            });
        }
        calls
    }

    /// Streams that wait for a fleet that is not published. Some may be rejected.
    pub(crate) async fn waiting(&self, streams: usize) -> Vec<Call> {
        self.saying(streams, STREAMS, first_of_nowhere).await
    }

    /// The same with a connection for each.
    pub(crate) async fn waiting_connections(&self, connections: usize) -> Vec<Call> {
        self.saying(connections, 1, first_of_nowhere).await
    }

    /// Streams, so many on each connection, that say this and no more.
    async fn saying(
        &self,
        streams: usize,
        on_each: usize,
        words: impl Fn(Protocol) -> Bytes,
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        for connection in 0..streams.div_ceil(on_each) {
            let Ok(opener) = self.connect(true).await else { continue };
            for number in 0..on_each {
                let protocol = PROTOCOLS[(connection + number) % 2];
                let Ok(mut call) = Call::open(opener.clone(), protocol, None).await else { break };
                let _ = call.send(words(protocol)).await;
                calls.push(call);
            }
        }
        calls
    }

    /// Connections that never show who they are.
    pub(crate) async fn half_open(&self, count: usize) -> Vec<TcpStream> {
        let mut halves = Vec::new();
        for number in 0..count {
            let mut half = connect_from(self.next_address(), &self.address).await.unwrap();
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
                let token = forger.token(SUBJECT, 3600, &more);
                let call = Call::open(opener.clone(), PROTOCOLS[number % 2], Some(&token)).await;
                let Ok(call) = call else { break };
                let Ok(end) = call.end().await else { break };
                ends.push(end);
            }
        }
        ends
    }

    /// Goes on with that at another distributor, from one address, on several connections at once.
    pub(crate) fn flood_of_tokens(&self, port: u16) -> Flood {
        let (counted, shown) = watch::channel(0);
        let (counted, forger) = (Arc::new(counted), Arc::new(Signer::new("one")));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (counted, forger, tls) =
                (counted.clone(), forger.clone(), self.authority.client(None));
            tasks.spawn(async move {
                let address = format!("127.0.0.1:{port}");
                loop {
                    let opener = connect(tls.clone(), FLOODING, &address).await.unwrap();
                    loop {
                        counted.send_modify(|count| *count += 1);
                        let number = json!({"jti": counted.borrow().to_string()});
                        let token = forger.token(SUBJECT, 3600, &number);
                        let call = Call::open(opener.clone(), Protocol::Delta, Some(&token)).await;
                        let Ok(call) = call else { break };
                        let Ok(end) = call.until_ended().await else { break };
                        assert!([UNAUTHENTICATED, UNAVAILABLE].contains(&end), "{end}");
                    }
                }
            });
        }
        Flood { shown, tasks }
    }

    /// Streams of one proxy that reject everything, or every table of routes, each time in other words.
    pub(crate) fn rejecting(&self, streams: usize) -> Vec<Client> {
        let words = Arc::new(AtomicUsize::new(0));
        let reject = |number: usize| {
            let words = words.clone();
            self.proxy(|options| {
                options.node_id = "stolen".to_owned();
                options.protocol = PROTOCOLS[number / 2 % 2];
                options.rejects = Arc::new(move |kind, name, _| {
                    let rejected = number.is_multiple_of(2) || kind == ResourceType::Route;
                    rejected.then(|| format!("{name} is rejected, {}", words.fetch_add(1, Relaxed)))
                });
            })
        };
        (0..streams).map(reject).collect()
    }

    /// How a stream ends that says this.
    async fn end_of(&self, protocol: Protocol, words: &[u8]) -> u32 {
        let opener = self.connect(true).await.unwrap();
        let mut call = Call::open(opener, protocol, None).await.unwrap();
        // It may be refused under way.
        let _ = call.send(framed(words)).await;
        call.end().await.unwrap()
    }

    async fn connect(&self, shows_certificate: bool) -> Result<SendRequest<Bytes>, Failure> {
        let shows = shows_certificate.then_some(&self.identity);
        connect(self.authority.client(shows), self.next_address(), &self.address).await
    }

    fn next_address(&self) -> Ipv4Addr {
        let [high, low] = (self.connections.fetch_add(1, Relaxed) as u16).to_be_bytes();
        Ipv4Addr::new(127, 1, high, low)
    }
}

impl Flood {
    /// Waits for so many more tokens.
    pub(crate) async fn until_more(&mut self, tokens: usize) {
        let enough = *self.shown.borrow() + tokens;
        let more = tokio::time::timeout(DEADLINE, self.shown.wait_for(|shown| *shown >= enough));
        assert!(more.await.is_ok_and(|more| more.is_ok()), "the flood does not go on");
        assert!(self.tasks.try_join_next().is_none(), "a part of the flood has ended");
    }
}

/// A connection, which ends with its last call.
async fn connect(
    mut tls: ClientConfig,
    from: Ipv4Addr,
    address: &str,
) -> Result<SendRequest<Bytes>, Failure> {
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = connect_from(from, address).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
    let (opener, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(opener)
}

async fn connect_from(from: Ipv4Addr, address: &str) -> Result<TcpStream, Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from.into(), 0))?;
    Ok(socket.connect(address.parse()?).await?)
}

impl Call {
    async fn open(
        opener: SendRequest<Bytes>,
        protocol: Protocol,
        token: Option<&str>,
    ) -> Result<Self, Failure> {
        let method = match protocol {
            Protocol::Delta => "DeltaAggregatedResources",
            Protocol::StateOfTheWorld => "StreamAggregatedResources",
        };
        let service = "envoy.service.discovery.v3.AggregatedDiscoveryService";
        let mut request = http::Request::post(format!("https://server/{service}/{method}"))
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

fn request(
    protocol: Protocol,
    node: Option<Node>,
    kind: ResourceType,
    names: Vec<String>,
) -> Vec<u8> {
    let type_url = kind.type_url().to_owned();
    match protocol {
        Protocol::Delta => {
            let (resource_names_subscribe, more) = (names, Default::default());
            DeltaDiscoveryRequest { node, type_url, resource_names_subscribe, ..more }
                .encode_to_vec()
        }
        Protocol::StateOfTheWorld => {
            let (resource_names, more) = (names, Default::default());
            DiscoveryRequest { node, type_url, resource_names, ..more }.encode_to_vec()
        }
    }
}

/// What a stream says first whose fleet nobody publishes.
fn first_of_nowhere(protocol: Protocol) -> Bytes {
    framed(&request(protocol, Some(node("nowhere")), ResourceType::Cluster, Vec::new()))
}

/// A gRPC message.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

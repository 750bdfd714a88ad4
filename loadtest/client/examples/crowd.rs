//! Measures a crowd: memory and CPU of a process with many clients that have 1,000 clusters and 1,000 endpoints and
//! receive one changed endpoint each second.
//!
//! `crowd serve 127.0.0.1:18000` in one process, `crowd run http://127.0.0.1:18000 15000 20 [delta|sotw] [streams per connection]` in another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use bytes::{BufMut, Bytes, BytesMut};
use heliograph_client::{
    Backoff, Conduct, Crowd, Ended, Member, Observer, Protocol, Server, Transition,
};
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::{
    Address, Node, SocketAddress, address, socket_address,
};
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use heliograph_envoy::{Any, Message, any};
use heliograph_snapshot::ResourceType;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;

const RESOURCES: usize = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments[..] {
        ["serve", address] => runtime.block_on(serve(address)),
        ["run", server, clients, seconds, ref more @ ..] => {
            let protocol = match more.first() {
                Some(&"sotw") => Protocol::StateOfTheWorld,
                _ => Protocol::Delta,
            };
            let streams = more.get(1).map_or(1, |streams| streams.parse().unwrap());
            let (clients, seconds) = (clients.parse().unwrap(), seconds.parse().unwrap());
            runtime.block_on(run(server, clients, seconds, protocol, streams));
        }
        _ => panic!("crowd serve ADDRESS | crowd run SERVER CLIENTS SECONDS [PROTOCOL [STREAMS]]"),
    }
}

#[derive(Default)]
struct Count {
    warm: AtomicUsize,
    answered: AtomicUsize,
    ended: AtomicUsize,
    bytes: AtomicUsize,
}

impl Observer<()> for Count {
    fn connected(&self, _: usize) {}

    fn received(&self, _: usize, step: &Transition<()>, bytes: usize, _: Instant) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if step.kind == ResourceType::Listener && step.to.is_warm() {
            self.warm.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn asked(&self, _: usize, _: usize, _: Instant) {}

    fn answered(&self, _: usize, _: &Transition<()>, _: usize, _: Instant) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self, member: usize, how: &Ended) {
        if self.ended.fetch_add(1, Ordering::Relaxed) < 3 {
            println!("client {member}: {how}");
        }
    }
}

async fn run(server: &str, clients: usize, seconds: u64, protocol: Protocol, streams: usize) {
    let count = Arc::new(Count::default());
    let before = proportional_kib();
    let server = Server::new(server, None, None).unwrap();
    let crowd = Crowd::new(vec![server], streams, Backoff::default(), count.clone());
    let node = Arc::new(Node { cluster: "default/gateway".to_owned(), ..Default::default() });
    let started = Instant::now();
    for client in 0..clients {
        crowd.add(Member {
            name: format!("client-{client}").into(),
            node: node.clone(),
            protocol,
            server: 0,
            conduct: Conduct::Well,
            follower: (),
        });
    }
    let mut look = tokio::time::interval(Duration::from_millis(100));
    let mut peak = 0;
    while count.warm.load(Ordering::Relaxed) < clients {
        look.tick().await;
        peak = peak.max(proportional_kib());
    }
    println!(
        "{clients} clients warm after {:?}, {:.1} s of CPU, {} MB received, peak {} MiB, {} places",
        started.elapsed(),
        cpu_seconds(),
        count.bytes.load(Ordering::Relaxed) / 1_000_000,
        peak / 1024,
        crowd.distinct_states(),
    );
    let after = proportional_kib();
    println!("{} MiB, {:.1} KiB a client", after / 1024, (after - before) as f64 / clients as f64);
    let (cpu, answered, from) =
        (cpu_seconds(), count.answered.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (cpu, answered) = (cpu_seconds() - cpu, count.answered.load(Ordering::Relaxed) - answered);
    println!(
        "{answered} responses in {:?}, {cpu:.2} s of CPU, {:.1} us each; {} MiB, {} places, {} ended",
        from.elapsed(),
        cpu * 1e6 / answered as f64,
        proportional_kib() / 1024,
        crowd.distinct_states(),
        count.ended.load(Ordering::Relaxed),
    );
}

/// The memory of this process, with its share of what it has in common with others.
fn proportional_kib() -> usize {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// A server that gives all clients the same, and as little thought as possible.
async fn serve(address: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    let first: Arc<[[Bytes; 3]; 2]> =
        Arc::new([Protocol::Delta, Protocol::StateOfTheWorld].map(|protocol| {
            [ResourceType::Cluster, ResourceType::Endpoints, ResourceType::Listener].map(|kind| {
                framed(&response(
                    protocol,
                    kind,
                    0..if kind == ResourceType::Listener { 0 } else { RESOURCES },
                    1,
                ))
            })
        }));
    let changes = watch::Sender::new([Bytes::new(), Bytes::new()]);
    let hear = changes.clone();
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        for change in 1_usize.. {
            tick.tick().await;
            let one = change % RESOURCES;
            changes.send_replace([Protocol::Delta, Protocol::StateOfTheWorld].map(|protocol| {
                framed(&response(protocol, ResourceType::Endpoints, one..one + 1, change as u32))
            }));
        }
    });
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (first, hear) = (first.clone(), hear.subscribe());
        tokio::spawn(async move {
            let mut builder = h2::server::Builder::new();
            builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
            let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::spawn(speak(request, respond, first.clone(), hear.clone()));
            }
        });
    }
}

async fn speak(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    first: Arc<[[Bytes; 3]; 2]>,
    mut changes: watch::Receiver<[Bytes; 2]>,
) {
    let protocol = usize::from(!request.uri().path().contains("Delta"));
    let headers = http::Response::builder().header("content-type", "application/grpc").body(());
    let mut send = respond.send_response(headers.unwrap(), false).unwrap();
    let mut requests = request.into_body();
    let mut said = 0;
    let types = [ResourceType::Cluster, ResourceType::Endpoints, ResourceType::Listener];
    loop {
        tokio::select! {
            Some(Ok(chunk)) = requests.data() => {
                let _ = requests.flow_control().release_capacity(chunk.len());
                // The client asks for clusters, then endpoints, then listeners.
                while said < types.len() && contains(&chunk, types[said].type_url().as_bytes()) {
                    let _ = send.send_data(first[protocol][said].clone(), false);
                    said += 1;
                }
            }
            Ok(()) = changes.changed() => {
                let change = changes.borrow_and_update()[protocol].clone();
                if said == types.len() {
                    let _ = send.send_data(change, false);
                }
            }
            else => return,
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn response(
    protocol: Protocol,
    kind: ResourceType,
    which: std::ops::Range<usize>,
    n: u32,
) -> Vec<u8> {
    let resources = which.map(|one| {
        let name = format!("cluster-of-a-service-with-name-{one:05}");
        let body = match kind {
            ResourceType::Cluster => any(&cluster(&name)),
            _ => any(&endpoints(&name, n)),
        };
        (name, body)
    });
    let nonce = format!("0.1731748000000.{n}-{n}");
    match protocol {
        Protocol::Delta => DeltaDiscoveryResponse {
            type_url: kind.type_url().to_owned(),
            nonce,
            resources: resources
                .map(|(name, body)| Resource {
                    name,
                    version: format!("{n:016}"),
                    resource: Some(body),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
        .encode_to_vec(),
        Protocol::StateOfTheWorld => DiscoveryResponse {
            type_url: kind.type_url().to_owned(),
            nonce,
            version_info: n.to_string(),
            resources: resources.map(|(_, body)| body).collect::<Vec<Any>>(),
            ..Default::default()
        }
        .encode_to_vec(),
    }
}

fn cluster(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        alt_stat_name: "x".repeat(60),
        ..Default::default()
    }
}

fn endpoints(name: &str, n: u32) -> ClusterLoadAssignment {
    let [_, a, b, c] = n.to_be_bytes();
    let socket = SocketAddress {
        address: format!("10.{a}.{b}.{c}"),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(8080)),
        ..Default::default()
    };
    let endpoint = Endpoint {
        address: Some(Address { address: Some(address::Address::SocketAddress(socket)) }),
        ..Default::default()
    };
    let endpoint = LbEndpoint {
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    };
    ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() }],
        ..Default::default()
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.put_u8(0);
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

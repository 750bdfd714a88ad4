//! A server of xDS that holds a few resources.

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use heliograph_client::Protocol;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use heliograph_envoy::{Message, any};
use heliograph_snapshot::ResourceType;
use http::{HeaderMap, HeaderValue, Request, Response};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) recorded: Arc<Mutex<Recorded>>,
    orders: Arc<watch::Sender<Orders>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    /// Streams up to this one are ended.
    ended: usize,
    /// How often endpoints were changed.
    changes: usize,
    /// Whether an acknowledged change brings the next one.
    busy: bool,
}

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
    pub(crate) tokens: Vec<String>,
    pub(crate) delta: Vec<DeltaDiscoveryRequest>,
    pub(crate) whole: Vec<DiscoveryRequest>,
    pub(crate) unreadable: usize,
}

/// How a peer answers a call, if it does not serve it.
pub(crate) type Refusal = fn() -> Option<Response<()>>;

pub(crate) const CLUSTERS: [&str; 2] = ["one", "two"];

impl Peer {
    pub(crate) async fn start() -> Self {
        Self::with(None, || None).await
    }

    pub(crate) async fn refusing(refusal: Refusal) -> Self {
        Self::with(None, refusal).await
    }

    pub(crate) async fn with(tls: Option<TlsAcceptor>, refusal: Refusal) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let peer = Self {
            address: format!("{scheme}://{}", listener.local_addr().unwrap()),
            recorded: Arc::default(),
            orders: Arc::new(watch::Sender::default()),
        };
        let served = peer.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (peer, tls) = (served.clone(), tls.clone());
                tokio::spawn(async move {
                    peer.recorded.lock().unwrap().connections += 1;
                    match tls {
                        None => peer.connection(socket, refusal).await,
                        Some(tls) => {
                            let Ok(socket) = tls.accept(socket).await else { return };
                            peer.connection(socket, refusal).await;
                        }
                    }
                });
            }
        });
        peer
    }

    /// Ends all streams there are.
    pub(crate) fn end_streams(&self) {
        let streams = self.recorded.lock().unwrap().streams;
        self.orders.send_modify(|orders| orders.ended = streams);
    }

    /// Sends changed endpoints to all.
    pub(crate) fn change(&self) {
        self.orders.send_modify(|orders| orders.changes += 1);
    }

    /// From the next change on, each acknowledgement brings another one.
    pub(crate) fn keep_changing(&self) {
        self.orders.send_modify(|orders| (orders.busy, orders.changes) = (true, 1));
    }

    pub(crate) fn recorded<T>(&self, look: impl Fn(&Recorded) -> T) -> T {
        look(&self.recorded.lock().unwrap())
    }

    async fn connection(&self, io: impl AsyncRead + AsyncWrite + Unpin, refusal: Refusal) {
        let Ok(mut connection) = h2::server::handshake(io).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            match refusal() {
                Some(response) => drop(respond.send_response(response, true)),
                None => drop(tokio::spawn(self.clone().stream(request, respond))),
            }
        }
    }

    async fn stream(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let delta = request.uri().path().ends_with("/DeltaAggregatedResources");
        let protocol = if delta { Protocol::Delta } else { Protocol::StateOfTheWorld };
        let number = {
            let mut recorded = self.recorded.lock().unwrap();
            let token = request.headers().get("authorization");
            recorded.tokens.extend(token.map(|token| token.to_str().unwrap().to_owned()));
            recorded.streams += 1;
            recorded.streams
        };
        let headers = Response::builder().header("content-type", "application/grpc").body(());
        let mut voice = Voice {
            send: respond.send_response(headers.unwrap(), false).unwrap(),
            protocol,
            said: 0,
        };
        let mut orders = self.orders.subscribe();
        let (mut requests, mut bytes) = (request.into_body(), BytesMut::new());
        loop {
            tokio::select! {
                chunk = requests.data() => {
                    let Some(Ok(chunk)) = chunk else { return };
                    let _ = requests.flow_control().release_capacity(chunk.len());
                    bytes.extend_from_slice(&chunk);
                    while let Some(message) = message(&mut bytes) {
                        let busy = orders.borrow().busy;
                        if self.answer(protocol, &message, &mut voice, busy).is_none() {
                            return voice.end("3", "that is no request");
                        }
                    }
                }
                Ok(()) = orders.changed() => {
                    let Orders { ended, changes, .. } = *orders.borrow_and_update();
                    if number <= ended {
                        return voice.end("14", "come back");
                    }
                    if changes > 0 {
                        voice.say(ResourceType::Endpoints, &CLUSTERS, changes);
                    }
                }
            }
        }
    }

    /// `None`: it is no request.
    fn answer(
        &self,
        protocol: Protocol,
        message: &[u8],
        voice: &mut Voice,
        busy: bool,
    ) -> Option<()> {
        let mut recorded = self.recorded.lock().unwrap();
        let (url, nonce, names) = match protocol {
            Protocol::Delta => {
                let request = DeltaDiscoveryRequest::decode(message).ok();
                recorded.unreadable += usize::from(request.is_none());
                recorded.delta.extend(request.clone());
                let request = request?;
                (request.type_url, request.response_nonce, request.resource_names_subscribe)
            }
            Protocol::StateOfTheWorld => {
                let request = DiscoveryRequest::decode(message).ok();
                recorded.unreadable += usize::from(request.is_none());
                recorded.whole.extend(request.clone());
                let request = request?;
                (request.type_url, request.response_nonce, request.resource_names)
            }
        };
        drop(recorded);
        let kind = ResourceType::from_type_url(&url)?;
        if nonce.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let wildcard = matches!(kind, ResourceType::Cluster);
            voice.say(kind, if wildcard { &CLUSTERS } else { &names }, 0);
        } else if busy && kind == ResourceType::Endpoints {
            voice.say(kind, &CLUSTERS, voice.said);
        }
        Some(())
    }
}

struct Voice {
    send: SendStream<Bytes>,
    protocol: Protocol,
    said: usize,
}

impl Voice {
    fn say(&mut self, kind: ResourceType, names: &[&str], version: usize) {
        self.said += 1;
        let nonce = format!("nonce-{}", self.said);
        let bodies = names.iter().map(|name| match kind {
            ResourceType::Cluster => any(&Cluster {
                name: (*name).to_owned(),
                cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
                ..Default::default()
            }),
            _ => any(&ClusterLoadAssignment {
                cluster_name: (*name).to_owned(),
                ..Default::default()
            }),
        });
        let message = match self.protocol {
            Protocol::Delta => DeltaDiscoveryResponse {
                type_url: kind.type_url().to_owned(),
                nonce,
                resources: names
                    .iter()
                    .zip(bodies)
                    .map(|(name, body)| Resource {
                        name: (*name).to_owned(),
                        version: format!("v{version}"),
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
                version_info: format!("v{version}"),
                resources: bodies.collect(),
                ..Default::default()
            }
            .encode_to_vec(),
        };
        let mut bytes = vec![0];
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
        let _ = self.send.send_data(bytes.into(), false);
    }

    fn end(&mut self, code: &'static str, message: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(code));
        trailers.insert("grpc-message", HeaderValue::from_static(message));
        let _ = self.send.send_trailers(trailers);
    }
}

/// The first message in the bytes, which loses it.
fn message(bytes: &mut BytesMut) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().unwrap()) as usize;
    if bytes.len() < 5 + length {
        return None;
    }
    Some(bytes.split_to(5 + length).split_off(5).to_vec())
}

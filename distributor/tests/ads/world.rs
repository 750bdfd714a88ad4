//! A running distributor, a writer to its store, and resources that an Envoy would take.

use crate::faulty::Faulty;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_distributor::{Acks, DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::{TransportSocket, transport_socket};
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use heliograph_envoy::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
};
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_envoy::{Message, any};
use heliograph_shared::admin::{self, Pages, Readiness};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{DistributorStore, PinState, Publication, Retirement, Writer};
use prometheus::{Registry, TextEncoder};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Long enough for a busy machine; nothing waits for it but a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Delta, Protocol::StateOfTheWorld];

pub(crate) struct World {
    pub(crate) server: String,
    /// The admin port.
    pub(crate) admin: SocketAddr,
    pub(crate) acks: Acks,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<Result<(), heliograph_distributor::DistributorError>>,
    pub(crate) store: Arc<Faulty>,
    pub(crate) readiness: Readiness,
    registry: Registry,
    /// The token of this writer, once it has written.
    fence: Option<u128>,
    newest: Option<Arc<Snapshot>>,
    head: Option<Head>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::over(Faulty::default()).await
    }

    /// A replica with a store of its own or with that of another.
    pub(crate) async fn over(store: Faulty) -> Self {
        Self::with(store, LoadArgs::default()).await
    }

    pub(crate) async fn with(store: Faulty, load: LoadArgs) -> Self {
        let store = Arc::new(store);
        let registry = Registry::new();
        let args = DistributorArgs {
            xds_address: "127.0.0.1:0".parse().unwrap(),
            insecure_plaintext: false,
            replica: Some("replica-7".to_owned()),
            load,
        };
        let (security, readiness) = (SecurityArgs::default(), Readiness::new());
        let reading = DistributorStore::new(store.clone());
        let bound = heliograph_distributor::build(&args, &security, reading, &registry, &readiness)
            .await
            .unwrap();
        let (server, acks) = (format!("http://{}", bound.address()), bound.acks());
        let port = admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let admin = port.address();
        let pages = bound.add_pages(Pages::new(registry.clone(), readiness.clone()));
        let stop = CancellationToken::new();
        tokio::spawn(port.serve(pages, stop.clone().cancelled_owned()));
        let serving = tokio::spawn(bound.run(stop.clone()));
        tokio::time::timeout(DEADLINE, readiness.ready()).await.unwrap();
        Self {
            server,
            admin,
            acks,
            stop,
            serving,
            store,
            readiness,
            registry,
            fence: None,
            newest: None,
            head: None,
        }
    }

    /// Publishes what the fleet is to have, and nothing else.
    pub(crate) async fn publish(&mut self, resources: &[(ResourceType, Resource)]) -> Head {
        self.publish_with(resources, []).await
    }

    /// The same, with what views are made by.
    pub(crate) async fn publish_with(
        &mut self,
        resources: &[(ResourceType, Resource)],
        rules: impl IntoIterator<Item = Change>,
    ) -> Head {
        self.publish_at(SystemTime::now(), resources, rules).await
    }

    /// The same, as if it had been written at another time.
    pub(crate) async fn publish_at(
        &mut self,
        time: SystemTime,
        resources: &[(ResourceType, Resource)],
        rules: impl IntoIterator<Item = Change>,
    ) -> Head {
        let fleet: FleetName = fleet();
        let sequence = self.head.map_or(1, |head| head.sequence + 1);
        let fence = match self.fence {
            Some(fence) => fence,
            None => self.store.inner().claim(None).await.unwrap().term.fence,
        };
        self.fence = Some(fence);
        let head = Head { epoch: 0, fence, sequence };
        let changes =
            resources.iter().map(|(kind, resource)| Change::Set(*kind, Arc::new(resource.clone())));
        let snapshot = Arc::new(Snapshot::empty(fleet).with(head, changes.chain(rules)));
        let publication = Publication {
            snapshot: snapshot.clone(),
            expected: self.head,
            held: self.newest.replace(snapshot),
            time,
            cause: "a test".into(),
            pin: PinState::default(),
        };
        self.store.inner().publish(publication).await.unwrap();
        self.head = Some(head);
        head
    }

    /// Takes the fleet away.
    pub(crate) async fn retire(&mut self) {
        let last = self.head.unwrap();
        let tombstone = Head { sequence: last.sequence + 1, ..last };
        let retirement = Retirement {
            fleet: fleet(),
            tombstone,
            expected: self.head,
            time: SystemTime::now(),
            cause: "a test".into(),
            order: 0,
        };
        self.store.inner().retire(retirement).await.unwrap();
        self.head = Some(tombstone);
        self.newest = None;
    }

    pub(crate) fn client(&self, protocol: Protocol) -> Client {
        Client::connect(self.options(protocol)).unwrap()
    }

    pub(crate) fn options(&self, protocol: Protocol) -> Options {
        Options::new(self.server.clone(), protocol, fleet().as_str())
    }

    /// Waits until all of the newest snapshot is acknowledged by so many clients.
    pub(crate) async fn acknowledged(&self, clients: usize) {
        let summary = || self.acks.of(&fleet());
        let all =
            || summary().is_some_and(|acks| acks.head == self.head && acks.acknowledged == clients);
        if !comes_true(all).await {
            panic!("not acknowledged: {:?}", summary());
        }
    }

    pub(crate) fn metric(&self, line: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let found = text.lines().find_map(|metric| metric.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_default()
    }
}

/// Whether the condition holds before the deadline.
pub(crate) async fn comes_true(condition: impl Fn() -> bool) -> bool {
    let mut ticker = tokio::time::interval(Duration::from_millis(2));
    let looking = async {
        while !condition() {
            ticker.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.is_ok()
}

pub(crate) fn fleet() -> FleetName {
    FleetName::new("default", "gateway")
}

/// A cluster with endpoints.
pub(crate) fn cluster(name: &str, revision: u32) -> (ResourceType, Resource) {
    let cluster = Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        per_connection_buffer_limit_bytes: Some(UInt32Value { value: revision }),
        ..Default::default()
    };
    (ResourceType::Cluster, resource(name, &cluster))
}

pub(crate) fn endpoints(name: &str) -> (ResourceType, Resource) {
    let endpoints = ClusterLoadAssignment { cluster_name: name.to_owned(), ..Default::default() };
    (ResourceType::Endpoints, resource(name, &endpoints))
}

/// A listener whose certificate is a secret.
pub(crate) fn secure_listener(name: &str, secret: &str) -> (ResourceType, Resource) {
    let tls = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![SdsSecretConfig {
                name: secret.to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let socket = TransportSocket {
        name: "tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&tls))),
    };
    let chain = FilterChain { transport_socket: Some(socket), ..Default::default() };
    let listener =
        Listener { name: name.to_owned(), filter_chains: vec![chain], ..Default::default() };
    (ResourceType::Listener, resource(name, &listener))
}

pub(crate) fn secret(name: &str) -> (ResourceType, Resource) {
    let secret = Secret { name: name.to_owned(), ..Default::default() };
    (ResourceType::Secret, resource(name, &secret))
}

pub(crate) fn listener(name: &str, routes: &str) -> (ResourceType, Resource) {
    let manager = HttpConnectionManager {
        stat_prefix: "http".to_owned(),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            route_config_name: routes.to_owned(),
            ..Default::default()
        })),
        ..Default::default()
    };
    let filter = Filter {
        name: "http".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
    };
    let chain = FilterChain { filters: vec![filter], ..Default::default() };
    let listener =
        Listener { name: name.to_owned(), filter_chains: vec![chain], ..Default::default() };
    (ResourceType::Listener, resource(name, &listener))
}

/// A table whose only host is named after the cluster it leads to.
pub(crate) fn routes(name: &str, cluster: &str) -> (ResourceType, Resource) {
    let host = VirtualHost { name: cluster.to_owned(), ..Default::default() };
    let table = RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![host],
        ..Default::default()
    };
    (ResourceType::Route, resource(name, &table))
}

/// The cluster that a client's table leads to.
pub(crate) fn leads_to(state: &State, table: &str) -> Option<String> {
    let body = state.body(ResourceType::Route, table)?.clone();
    Some(RouteConfiguration::decode(body).unwrap().virtual_hosts[0].name.clone())
}

/// A gateway that leads to one cluster.
pub(crate) fn gateway(to: &str) -> Vec<(ResourceType, Resource)> {
    vec![cluster(to, 1), endpoints(to), listener("http", "table"), routes("table", to)]
}

pub(crate) fn resource(name: &str, message: &impl Message) -> Resource {
    Resource::new(name, message.encode_to_vec().into())
}

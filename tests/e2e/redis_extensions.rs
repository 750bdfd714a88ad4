//! A filter whose configuration is a resource of its own (ECDS): it changes under a listener that stays as it is.

use crate::harness::{HttpResponse, HttpRequest, Client, backend};
use crate::redis_site::{FLEET, HOST, Program, Site};
use crate::servers::{Server, until};
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use heliograph_envoy::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use heliograph_envoy::envoy::config::core::v3::socket_address::PortSpecifier;
use heliograph_envoy::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, ExtensionConfigSource, HeaderValue,
    HeaderValueOption, SocketAddress, TypedExtensionConfig, address,
};
use heliograph_envoy::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use heliograph_envoy::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use heliograph_envoy::envoy::config::route::v3::route::Action;
use heliograph_envoy::envoy::config::route::v3::route_action::ClusterSpecifier;
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use heliograph_envoy::envoy::extensions::filters::http::router::v3::Router;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use heliograph_envoy::{Any, Message, any, append_message};
use heliograph_snapshot::{Change, Head, Resource, ResourceType, Snapshot};
use heliograph_store::keys::KeyFile;
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{FeedbackReader, PinState, Publication, Writer};
use prometheus::Registry;
use serde_json::Value;
use std::sync::Arc;
use std::time::SystemTime;

/// A fleet without a translator: this test writes what one would.
struct Scene {
    site: Site,
    distributor: Program,
    envoy: Program,
    store: RedisStore,
    fence: u128,
    newest: Arc<Snapshot>,
    /// One connection, for as long as the server keeps it.
    client: Client,
    redis: Server,
}

/// What an Envoy answers with in a header of this name, which is the name of the filter, too.
const GREETING: &str = "x-greeting";
const FAREWELL: &str = "x-farewell";
const MUTATION: &str =
    "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const PROTOCOLS: [&str; 2] = ["DELTA_GRPC", "GRPC"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_config_changes_on_live_connections_and_the_listener_stays() {
    for protocol in PROTOCOLS {
        let mut scene = Scene::start(protocol).await;
        scene.publish([greeting("one"), farewell("one")]).await;
        scene.until_answered(GREETING, "one").await;
        scene.until_answered(FAREWELL, "one").await;
        for number in ["two", "three", "four"] {
            scene.publish([greeting(number)]).await;
            scene.until_answered(GREETING, number).await;
        }
        assert_eq!(scene.answer().await.header(FAREWELL), Some("one"));
        scene.assert_listener_is_as_before().await;
        // Nothing removes it from a listener that has it.
        scene.publish([gone(GREETING), farewell("two")]).await;
        scene.until_answered(FAREWELL, "two").await;
        assert_eq!(scene.answer().await.header(GREETING), Some("four"));
        scene.assert_listener_is_as_before().await;
        let (asked, _) = scene.of_type().await;
        assert_eq!(asked, 2);

        // The listener and all that it refers to go. While it drains its connections are served as before.
        let listener = Change::Remove(ResourceType::Listener, "edge".into());
        scene.publish([gone(FAREWELL), listener]).await;
        let removed = "listener_manager.listener_removed";
        until("the listener is gone", async || scene.envoy.counted(removed).await == 1).await;
        scene.until_synced().await;
        assert_eq!(scene.envoy.failures().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_extension_config_keeps_the_last_good_and_is_attributed() {
    for protocol in PROTOCOLS {
        let mut scene = Scene::start(protocol).await;
        scene.publish([greeting("one"), farewell("one")]).await;
        scene.until_answered(GREETING, "one").await;
        scene.until_answered(FAREWELL, "one").await;

        // A header without a name. The good one beside it arrives.
        let bad = extension(GREETING, &mutation("", "two"));
        scene.publish([bad.clone(), farewell("two")]).await;
        scene.until_answered(FAREWELL, "two").await;
        let rejection = scene.until_rejected().await;
        assert_eq!(rejection["kind"], "extension-config", "{rejection}");
        assert_eq!(rejection["attributed"], true, "{rejection}");
        assert_eq!(rejection["resources"][0][0], GREETING, "{rejection}");
        assert_eq!(rejection["resources"].as_array().map(Vec::len), Some(1), "{rejection}");
        let detail = rejection["detail"].as_str().unwrap();
        assert!(detail.contains("Proto constraint validation failed"), "{detail}");
        assert_eq!(scene.answer().await.header(GREETING), Some("one"));
        scene.until_reported(GREETING).await;

        // With the next good version it is over.
        scene.publish([greeting("three")]).await;
        scene.until_answered(GREETING, "three").await;
        scene.until_synced().await;
        scene.assert_listener_is_as_before().await;
        assert_eq!(scene.envoy.failures().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confidential_extension_config_is_sealed_and_never_shown() {
    const PASSWORD: &str = "correct-horse-battery-staple";
    let mut scene = Scene::start("DELTA_GRPC").await;
    scene.publish([scene.confidential(&mutation(GREETING, PASSWORD)), farewell("one")]).await;
    scene.until_answered(GREETING, PASSWORD).await;
    scene.until_answered(FAREWELL, "one").await;
    // Envoy's words about this one quote it.
    let bad = Any { type_url: format!("type.googleapis.com/{PASSWORD}"), ..Any::default() };
    scene.publish([scene.confidential(&bad)]).await;
    let rejection = scene.until_rejected().await;
    let detail = rejection["detail"].as_str().unwrap();
    assert!(detail.contains("confidential"), "{detail}");
    assert_eq!(rejection["resources"][0][0], GREETING, "{rejection}");
    assert_eq!(scene.answer().await.header(GREETING), Some(PASSWORD));

    let page = format!("/snapshot/{FLEET}?type=extension-config");
    let shown: Value = serde_json::from_str(&scene.distributor.page(&page).await).unwrap();
    let row = |name: &str| {
        let rows = shown["resources"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    assert_eq!(row(GREETING)["hidden"], true, "{shown}");
    assert_eq!(row(FAREWELL)["hidden"], Value::Null, "{shown}");
    let of_type = ["snapshot", "show", FLEET, "--type", "extension-config"];
    let command = [&of_type[..], &["--name", GREETING, "--output", "json"]].concat();
    let printed = scene.site.helio(&command);
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains(GREETING), "{printed}");
    let mut places = vec![("what helio prints", printed.into_bytes())];
    places.push(("the log", scene.distributor.log().into_bytes()));
    for path in [page.as_str(), "/fleets", "/clients?format=json", "/metrics"] {
        places.push(("a page", scene.distributor.page(path).await.into_bytes()));
    }
    let stored = scene.stored().await;
    assert!(is_in(&stored, FAREWELL), "the search works");
    places.push(("Redis", stored));
    for (place, bytes) in places {
        assert!(!is_in(&bytes, PASSWORD), "it is in {place}");
    }
}

impl Scene {
    /// With an Envoy that speaks this of the two protocols, a listener with both filters, and no configuration for them.
    async fn start(protocol: &str) -> Self {
        let redis = Server::start(&["rdbcompression no"]).await;
        let site = Site::new(&redis.url()).await;
        let link = Link::new(redis.url().parse().unwrap());
        let (keys, options) = (KeyFile::open(site.keys()).unwrap(), RedisOptions::default());
        let store = RedisStore::new(link, keys, options, &Registry::new()).unwrap();
        let fence = store.claim(None).await.unwrap().term.fence;
        let newest = Arc::new(Snapshot::empty(FLEET.parse().unwrap()));
        let distributor = site.distributor("one").await;
        let envoy = site.envoy_of("envoy", std::slice::from_ref(&distributor), protocol, "").await;
        let client = Client::new(site.http);
        let mut scene = Self { site, distributor, envoy, store, fence, newest, client, redis };
        let (cluster, listener) = (cluster(backend("blue").await), listener(scene.site.http));
        scene.publish([cluster, listener]).await;
        scene
    }

    async fn publish(&mut self, changes: impl IntoIterator<Item = Change>) {
        let before = self.newest.clone();
        let sequence = before.head.sequence + 1;
        let head = Head { epoch: 0, fence: self.fence, sequence };
        let is_first = sequence == 1;
        let snapshot = Arc::new(before.with(head, changes));
        let publication = Publication {
            snapshot: snapshot.clone(),
            expected: (!is_first).then_some(before.head),
            held: (!is_first).then_some(before),
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        self.store.publish(publication).await.unwrap();
        self.newest = snapshot;
    }

    /// The greeting, with something that only the proxies may know.
    fn confidential(&self, config: &Any) -> Change {
        let kind = ResourceType::ExtensionConfig;
        let body = message(GREETING, config);
        let address = self.store.address_of_sealed(kind.into(), GREETING, &body);
        let resource = Resource::at(address, GREETING, body.into()).confidential(true);
        Change::Set(kind, Arc::new(resource))
    }

    async fn answer(&mut self) -> HttpResponse {
        self.client.ask(&ask()).await.unwrap()
    }

    /// Waits until the answer has this header.
    async fn until_answered(&mut self, header: &str, value: &str) {
        let client = tokio::sync::Mutex::new(&mut self.client);
        until(&format!("{header}: {value}"), async || {
            // Envoy does not listen before it has the listener.
            let answer = client.lock().await.ask(&ask()).await;
            answer.is_ok_and(|answer| answer.header(header) == Some(value))
        })
        .await;
    }

    /// It was never changed, nothing drains, and the client has the connection that it began with.
    async fn assert_listener_is_as_before(&self) {
        let envoy = &self.envoy;
        for (counter, expected) in [
            ("listener_manager.listener_added", 1),
            ("listener_manager.listener_modified", 0),
            ("listener_manager.listener_in_place_updated", 0),
            ("listener_manager.total_listeners_draining", 0),
            ("listener_manager.total_filter_chains_draining", 0),
            ("http.edge.downstream_cx_total", 1),
        ] {
            assert_eq!(envoy.counted(counter).await, expected, "{counter}");
        }
    }

    async fn until_rejected(&self) -> Value {
        until("the rejection shows", async || self.rejections().await.len() == 1).await;
        self.rejections().await.remove(0)
    }

    async fn rejections(&self) -> Vec<Value> {
        let page: Value = serde_json::from_str(&self.distributor.page("/fleets").await).unwrap();
        page[FLEET]["rejections"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the translator can know of it.
    async fn until_reported(&self, name: &str) {
        until("the rejection is reported", async || {
            let reports = self.store.read_reports().await.unwrap();
            let mut disputes = reports
                .iter()
                .flat_map(|report| report.fleets.values())
                .flat_map(|fleet| &fleet.disputes);
            disputes.any(|it| {
                (it.kind, &*it.name, it.rejected) == (ResourceType::ExtensionConfig, name, 1)
            })
        })
        .await;
    }

    async fn until_synced(&self) {
        let head = self.newest.head.to_string();
        until("all is acknowledged", async || {
            let page = self.distributor.page("/clients?format=json").await;
            let page: Value = serde_json::from_str(&page).unwrap();
            page["clients"][0]["acknowledged"] == head.as_str()
        })
        .await;
    }

    /// How many extension configurations the Envoy asks for, and how many it rejected.
    async fn of_type(&self) -> (u64, u64) {
        let page = self.distributor.page("/clients?format=json").await;
        let page: Value = serde_json::from_str(&page).unwrap();
        let types = page["clients"][0]["types"].as_array().unwrap();
        let found = types.iter().find(|it| it["type"] == "extension-config").unwrap();
        (found["names"].as_u64().unwrap(), found["rejected"].as_u64().unwrap_or_default())
    }

    /// All that Redis holds, as it writes it to disk.
    async fn stored(&self) -> Vec<u8> {
        self.redis.query::<()>(&["SAVE"]).await.unwrap();
        let (_, directory): (String, String) =
            self.redis.query(&["CONFIG", "GET", "dir"]).await.unwrap();
        std::fs::read(std::path::Path::new(&directory).join("dump.rdb")).unwrap()
    }
}

fn ask() -> HttpRequest<'static> {
    HttpRequest { method: "GET", host: HOST, path: "/", headers: &[] }
}

fn is_in(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn greeting(value: &str) -> Change {
    extension(GREETING, &mutation(GREETING, value))
}

fn farewell(value: &str) -> Change {
    extension(FAREWELL, &mutation(FAREWELL, value))
}

fn gone(name: &str) -> Change {
    Change::Remove(ResourceType::ExtensionConfig, name.into())
}

fn extension(name: &str, config: &Any) -> Change {
    let resource = Resource::new(name, message(name, config).into());
    Change::Set(ResourceType::ExtensionConfig, Arc::new(resource))
}

fn message(name: &str, config: &Any) -> Vec<u8> {
    let typed_config = Some(config.clone());
    TypedExtensionConfig { name: name.to_owned(), typed_config }.encode_to_vec()
}

/// A filter that answers with one more header: `HeaderMutation` with `mutations.response_mutations[0].append`, of which the
/// project has no types, as it builds none.
fn mutation(header: &str, value: &str) -> Any {
    let header =
        HeaderValue { key: header.to_owned(), value: value.to_owned(), ..Default::default() };
    let append = HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    };
    let mut value = append.encode_to_vec();
    for tag in [2, 2, 1] {
        let mut outer = Vec::new();
        append_message(&mut outer, tag, &value);
        value = outer;
    }
    Any { type_url: MUTATION.to_owned(), value: value.into() }
}

fn cluster(port: u16) -> Change {
    let endpoint = Endpoint { address: Some(address(port)), ..Default::default() };
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    };
    let locality = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() };
    let assignment = ClusterLoadAssignment {
        cluster_name: "blue".to_owned(),
        endpoints: vec![locality],
        ..Default::default()
    };
    let cluster = Cluster {
        name: "blue".to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(assignment),
        ..Default::default()
    };
    let resource = Resource::new("blue", cluster.encode_to_vec().into());
    Change::Set(ResourceType::Cluster, Arc::new(resource))
}

fn listener(port: u16) -> Change {
    let router = HttpFilter {
        name: "router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        stat_prefix: "edge".to_owned(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes())),
        http_filters: vec![discovered(GREETING), discovered(FAREWELL), router],
        ..Default::default()
    };
    let filter = Filter {
        name: "http".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
    };
    let listener = Listener {
        name: "edge".to_owned(),
        address: Some(address(port)),
        filter_chains: vec![FilterChain { filters: vec![filter], ..Default::default() }],
        ..Default::default()
    };
    let resource = Resource::new("edge", listener.encode_to_vec().into());
    Change::Set(ResourceType::Listener, Arc::new(resource))
}

/// A filter whose configuration comes over the same stream.
fn discovered(name: &str) -> HttpFilter {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource {});
    let source = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ads),
        ..Default::default()
    };
    let source = ExtensionConfigSource {
        config_source: Some(source),
        type_urls: vec![MUTATION.to_owned()],
        ..Default::default()
    };
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::ConfigDiscovery(source)),
        ..Default::default()
    }
}

fn routes() -> RouteConfiguration {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster("blue".to_owned())),
        ..Default::default()
    };
    let all = RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
        ..Default::default()
    };
    let route =
        Route { r#match: Some(all), action: Some(Action::Route(action)), ..Default::default() };
    let host = VirtualHost {
        name: "all".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..Default::default()
    };
    RouteConfiguration { virtual_hosts: vec![host], ..Default::default() }
}

fn address(port: u16) -> Address {
    let socket = SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

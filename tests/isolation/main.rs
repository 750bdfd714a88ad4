//! Two tenants on a shared Gateway: whatever A applies and whatever its clients do, B's requests succeed, B's changes
//! arrive, and every program goes on. A program of its own, so that no other test runs beside the attacks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
// The servers of Redis and of Kubernetes end with this process by the same file.
#![allow(clippy::duplicate_mod)]

#[path = "../../distributor/tests/identity/accounts.rs"]
mod accounts;
mod clients;
#[allow(dead_code)] // This program uses a part of it, as of the others.
#[path = "../e2e/harness.rs"]
mod harness;
#[path = "../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod neighbour;
mod objects;
#[allow(dead_code)]
#[path = "../../distributor/tests/identity/pki.rs"]
mod pki;
#[allow(dead_code)]
#[path = "../e2e/redis_site.rs"]
mod redis_site;
mod requests;
mod reviewing;
#[path = "../../shared/store/tests/servers/mod.rs"]
mod servers;
#[allow(dead_code)]
#[path = "../e2e/tls.rs"]
mod tls;
#[allow(dead_code)]
#[path = "../e2e/traffic.rs"]
mod traffic;

use self::clients::{Clients, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAUTHENTICATED};
use self::neighbour::{HOST, Neighbour, Round};
use self::objects::{Condition, Hostile, LEFT_OUT, NAMESPACE, OVERLAID, REJECTED, TENANT};
use self::reviewing::Reviewing;
use crate::harness::{backend, gateway_with, replace, write};
use crate::pki::{CertificateAuthority, ISSUER, Signer};
use crate::redis_site::{FLEET, Program, Site, bootstrap};
use crate::servers::{Server, until};
use crate::traffic::Traffic;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_snapshot::ResourceType;
use heliograph_testing::{Port, Stopwatch, stress};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(60);

/// Within which time each change of B arrives. A busy machine, on which this is one of many tests, promises nothing.
const BOUND: Duration = Duration::from_secs(2);

/// Within which time what only Envoys reject is left out, from when it was applied.
const LEFT_OUT_BOUND: Duration = Duration::from_secs(5);

/// The largest expression that these Envoys take: enough for what people write, and less than the translator allows.
const PROGRAM_SIZE: &str = "re2.max_program_size.error_level: 200";

/// What the chart lets the translator have, in MiB. It would be ended and started again if it needed more.
const TRANSLATOR_MEMORY: u64 = 1024;
/// A third of what the chart lets a distributor have, and half of what one request of empty parts takes if it is decoded as it is.
const DISTRIBUTOR_MEMORY: u64 = 1024;

/// Little enough for a test to take all of it.
const STREAMS: usize = 200;
const AUTHENTICATED_CONNECTIONS: usize = 100;
const UNAUTHENTICATED_CONNECTIONS: usize = 50;
/// Those who behave all have the same one.
const CONNECTIONS_PER_ADDRESS: usize = 40;

/// So many edits are ten seconds at least.
const EDITS: usize = 100;

/// And so many connections of one tenant to the Gateway are more than a browser has.
const CONNECTIONS: usize = 200;

/// What Redis may have, in bytes. The tenant changes a large table until more was written: Redis would be full if it kept all of
/// that, even for a minute.
const REDIS_MEMORY: u64 = 64 << 20;

/// Of what the log says when proxies reject something, there is a line each minute for each type of resource.
const REJECTED_LINE: &str = "a proxy rejected some of its configuration";
const FLEETS: usize = 2;

struct Scene {
    translator: Program,
    distributor: Program,
    envoy: Program,
    redis: Server,
    /// Has the logs of all of them.
    site: Site,
    clients: Clients,
    /// Other Envoys of the shared fleet. They reject what the real one does.
    fellows: Vec<Client>,
    /// The proxy of the tenant's own Gateway, and the port of that.
    own: (Client, u16),
    started: Stopwatch,
}

impl Scene {
    async fn start() -> Self {
        let redis = Server::start(&[&format!("maxmemory {REDIS_MEMORY}")]).await;
        let site = Site::new(&redis.url()).await;
        fs::remove_file(site.manifests().join("route.yaml")).unwrap();
        replace(&site.manifests(), "gateway.yaml", &gateway(site.http));
        let own_port = Port::reserve().unwrap().number();
        write(&site.manifests(), "a-own.yaml", &objects::own(own_port));
        let authority = CertificateAuthority::new();
        let envoy = authority.issue("spiffe://example.org/ns/default/sa/envoy");
        let server = authority.issue("127.0.0.1");
        for (name, text) in [
            ("ca.pem", authority.pem()),
            ("server.pem", server.certificate),
            ("server.key", server.key),
            ("envoy.pem", envoy.certificate.clone()),
            ("envoy.key", envoy.key.clone()),
            ("jwks.json", Signer::jwks(&[&Signer::new("one")])),
        ] {
            fs::write(site.file(name), text).unwrap();
        }
        let translator = site.translator_with_flags(&["--max-namespace-size", NAMESPACE]).await;
        let distributor = distributor(&site).await;
        let envoy_program = envoy_of(&site, "envoy", &distributor).await;
        let clients = Clients::new(distributor.xds, authority, envoy);
        let fellows = ["fellow-1", "fellow-2"].map(|node| clients.proxy(|it| be_picky(it, node)));
        let fellows = fellows.into();
        let own = (clients.own_proxy(OVERLAID), own_port);
        let started = Stopwatch::start();
        let envoy = envoy_program;
        Self { redis, site, translator, distributor, envoy, clients, fellows, own, started }
    }

    /// Applies the objects, and waits until each has its condition.
    async fn apply(&self, hostile: &Hostile) {
        hostile.apply(&self.site.manifests());
        let stopwatch = Stopwatch::start();
        for condition in &hostile.conditions {
            let what = format!("{condition:?}");
            until(&what, async || self.has(condition).await).await;
            if condition.2 == LEFT_OUT {
                let took = stopwatch.elapsed();
                println!("{}: left out after {took:.2?}", hostile.name);
                assert!(stress::seed().is_none() || took < LEFT_OUT_BOUND, "after {took:?}");
            }
        }
    }

    async fn has(&self, (kind, name, condition): &Condition) -> bool {
        let status = json_page(&self.translator, "/status?format=json").await;
        let objects = status["objects"].as_array().unwrap();
        let object = objects.iter().find(|object| {
            object["kind"] == *kind && object["namespace"] == TENANT && object["name"] == *name
        });
        object.is_some_and(|object| has_condition(&object["status"], *condition))
    }

    async fn fleet(&self) -> Value {
        json_page(&self.distributor, "/fleets").await[FLEET].clone()
    }

    /// A second Envoy of the shared fleet, which listens beside the first, and answers requests from now on.
    async fn start_second_envoy(&self) -> Program {
        envoy_of(&self.site, "second", &self.distributor).await
    }

    async fn refused(&self, reason: &str) -> f64 {
        let name = format!("heliograph_distributor_rejected_clients_total{{reason=\"{reason}\"}}");
        self.distributor.metric(&name).await
    }

    /// One more Envoy of the shared fleet that starts now gets its configuration.
    async fn newcomer_is_served(&self) {
        let newcomer = self.clients.proxy(|options| {
            options.node_id = "newcomer".to_owned();
            options.reconnects = Some(Arc::new(|| {}));
        });
        let served = |state: &State| state.is_warm() && !state.received.is_empty();
        newcomer.until("its configuration", DEADLINE, served).await.unwrap();
    }

    /// Rejections fill no log, however many there are and whatever they say.
    fn assert_log_is_short(&self) {
        let lines = self.distributor.lines(REJECTED_LINE);
        let lines = lines.iter().filter(|line| line.contains("WARN")).count();
        let minutes = 1 + self.started.elapsed().as_secs() as usize / 60;
        println!("{lines} lines about rejections in {minutes} minutes");
        assert!(lines <= FLEETS * ResourceType::ALL.len() * (minutes + 1), "{lines} lines");
    }

    async fn assert_alive(&self, second: &Program, reviewing: &Reviewing) {
        for (program, memory) in [
            (&self.translator, TRANSLATOR_MEMORY),
            (&self.distributor, DISTRIBUTOR_MEMORY),
            (&reviewing.distributor, DISTRIBUTOR_MEMORY),
            (&self.envoy, u64::MAX),
            (second, u64::MAX),
        ] {
            assert!(program.is_alive(), "{} has ended", program.name);
            let peak = peak_memory(program.id());
            println!("{} had {peak} MiB at most", program.name);
            assert!(peak < memory, "{} would have been ended at {memory} MiB", program.name);
        }
        for fellow in self.fellows.iter().chain([&self.own.0]) {
            assert_eq!(fellow.state().ended, None);
        }
        println!(
            "Redis had {} MiB at most",
            self.redis_says("memory", "used_memory_peak").await >> 20
        );
        let errors: String = self.redis.query(&["INFO", "errorstats"]).await.unwrap();
        assert!(!errors.contains("errorstat_OOM"), "Redis was full: {errors}");
    }

    /// A number of this section of what Redis says of itself.
    async fn redis_says(&self, section: &str, name: &str) -> u64 {
        let info: String = self.redis.query(&["INFO", section]).await.unwrap();
        let mut values = info.lines().filter_map(|line| line.split_once(':'));
        let value = values.find_map(|(found, value)| (found == name).then_some(value));
        value.unwrap().trim().parse().unwrap()
    }

    async fn run_id(&self) -> String {
        let info: String = self.redis.query(&["INFO", "server"]).await.unwrap();
        info.lines().find(|line| line.starts_with("run_id:")).unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tenant_takes_nothing_from_its_neighbour() {
    let (scene, cluster) = tokio::join!(Scene::start(), Reviewing::cluster());
    let reviewing = Reviewing::start(&scene.site, &port_files(&scene.site), cluster).await;
    let redis = scene.run_id().await;
    let backends = [backend("blue").await, backend("green").await];
    let mut neighbour = Neighbour::start(scene.site.manifests(), scene.site.http, backends).await;
    let traffic = Traffic::to(HOST, scene.site.http);
    // Before it was served, B asked and was told so.
    let before = scene.envoy.failures().await;
    report("nothing", neighbour.until_more().await);

    let configured = |state: &State| state.is_warm() && !state.received.is_empty();
    scene.own.0.until("its configuration", DEADLINE, configured).await.unwrap();
    for hostile in objects::all(scene.site.https, scene.own.1) {
        scene.apply(&hostile).await;
        report(hostile.name, neighbour.until_more().await);
    }
    for (name, edit, bytes) in [
        (
            "what Envoys reject, edited all the time",
            objects::rejected_edit as fn(usize) -> Value,
            0,
        ),
        ("a large table, edited all the time", objects::large_edit, REDIS_MEMORY),
    ] {
        let written = async || scene.redis_says("stats", "total_net_input_bytes").await;
        let enough = written().await + bytes;
        let mut edits = objects::keep_editing(&scene.site.manifests(), edit);
        edits.wait_for(|edits| *edits >= EDITS).await.unwrap();
        until("more than Redis may have is written", async || written().await >= enough).await;
        report(name, neighbour.until_more().await);
    }
    let status = json_page(&scene.translator, "/status?format=json").await;
    for file in ["garbage", "deep", "wrong"] {
        assert!(status["files"].to_string().contains(&format!("{TENANT}-{file}.yaml")), "{file}");
    }
    let size = scene.fleet().await["bytes"].as_u64().unwrap();
    assert!(size > 1 << 20, "the tenant's routes have come to {size} bytes alone");
    scene.newcomer_is_served().await;

    let slow = requests::slow_headers(scene.site.http, CONNECTIONS).await;
    requests::ambiguous_paths(scene.site.http).await;
    requests::ambiguous_headers(scene.site.http).await;
    report("headers that do not end", neighbour.until_more().await);

    let ends = scene.clients.empty_parts().await;
    assert_eq!(ends, [RESOURCE_EXHAUSTED; 8]);
    report("requests of empty parts", neighbour.until_more().await);
    // Envoy has waited ten seconds for these meanwhile.
    requests::until_cut_off(slow).await;

    assert_eq!(scene.clients.repeated_key().await, INVALID_ARGUMENT);
    let calls = scene.clients.half_received(STREAMS / 4).await;
    until("refusals", async || scene.refused("receiving").await > 10.0).await;
    scene.newcomer_is_served().await;
    report("requests of which half comes", neighbour.until_more().await);
    drop(calls);
    // The next ones are large, too.
    let limits = async || json_page(&scene.distributor, "/limits").await;
    until("room", async || limits().await["largeRequestBytes"]["now"] == 0).await;

    // More than any stream may name of what there is not; and less, but too much for all of them together.
    for protocol in [Protocol::Delta, Protocol::StateOfTheWorld].into_iter().cycle().take(5) {
        let end = scene.clients.unknown_names(protocol, 190_000).await;
        assert_eq!(end, RESOURCE_EXHAUSTED, "{protocol:?}");
    }
    let calls = scene.clients.many_unknown_names(60, 9_000).await;
    until("refusals", async || scene.refused("identity_memory").await > 40.0).await;
    scene.newcomer_is_served().await;
    report("names that no fleet has", neighbour.until_more().await);
    drop(calls);

    let calls = scene.clients.waiting(STREAMS + 40).await;
    until("refusals", async || scene.refused("identity").await > 10.0).await;
    scene.newcomer_is_served().await;
    report("streams that wait", neighbour.until_more().await);
    drop(calls);

    let before_all = scene.refused("identity").await;
    let calls = scene.clients.waiting_connections(AUTHENTICATED_CONNECTIONS + 40).await;
    let more = async || scene.refused("identity").await - before_all;
    until("refusals", async || more().await > 30.0).await;
    scene.newcomer_is_served().await;
    let second = scene.start_second_envoy().await;
    report("connections that wait", neighbour.until_more().await);
    drop(calls);

    let halves = scene.clients.half_open(4 * UNAUTHENTICATED_CONNECTIONS).await;
    scene.newcomer_is_served().await;
    report("half-open connections", neighbour.until_more().await);
    drop(halves);

    let ends = scene.clients.made_up_tokens(20).await;
    assert!(ends.len() > 100 && ends.iter().all(|end| *end == UNAUTHENTICATED), "{ends:?}");
    scene.newcomer_is_served().await;
    report("made-up tokens", neighbour.until_more().await);

    let mut flood = scene.clients.flood_of_tokens(reviewing.distributor.xds);
    for _ in 0..5 {
        flood.until_more(20).await;
        reviewing.newcomer_is_served(&scene.clients).await;
    }
    assert!(reviewing.reviews("delayed").await > 0.0, "the address that floods has to wait");
    scene.newcomer_is_served().await;
    report("made-up tokens, about which the API is asked", neighbour.until_more().await);
    drop(flood);

    let streams = scene.clients.rejecting(10);
    for stream in &streams {
        let rejected = |state: &State| state.received.iter().any(|it| !it.accepted);
        stream.until("a rejection", DEADLINE, rejected).await.unwrap();
    }
    report("rejections", neighbour.until_more().await);
    scene.newcomer_is_served().await;
    assert_eq!(scene.fleet().await["quarantine"], json!([]), "one vote is not half of them");
    drop(streams);
    scene.assert_log_is_short();

    let unserved = neighbour.stop().await;
    let requests = traffic.stop().await;
    println!("B had {requests} requests, and none failed");
    second.until_versions(&scene.envoy.versions().await).await;
    let failures = scene.envoy.failures().await + second.failures().await;
    assert_eq!(failures, before + unserved);
    scene.assert_alive(&second, &reviewing).await;
    assert_eq!(scene.run_id().await, redis, "Redis was started again");
}

/// Says how long changes of B took under an attack. They are held to the bound where nothing else runs.
fn report(attack: &str, Round { route, endpoints, new_route }: Round) {
    println!(
        "{attack}: a route took {route:.2?}, a new one {new_route:.2?}, endpoints {endpoints:.2?} at most"
    );
    if stress::seed().is_some() {
        assert!(route < BOUND, "{attack}: a route of B took {route:?}");
        assert!(new_route < BOUND, "{attack}: a new route of B took {new_route:?}");
        assert!(endpoints < BOUND, "{attack}: endpoints of B took {endpoints:?}");
    }
}

async fn distributor(site: &Site) -> Program {
    let keys = site.file("jwks.json").to_str().unwrap().to_owned();
    let [streams, known, unknown, address] =
        [STREAMS, AUTHENTICATED_CONNECTIONS, UNAUTHENTICATED_CONNECTIONS, CONNECTIONS_PER_ADDRESS]
            .map(|count| count.to_string());
    let flags = [
        ["--xds-jwks", &keys],
        ["--xds-token-issuer", ISSUER],
        ["--max-streams", &streams],
        ["--max-connections", &known],
        ["--max-unauthenticated", &unknown],
        ["--max-connections-per-address", &address],
        // A large request takes its time on a busy machine.
        ["--first-request-timeout", "60s"],
        // Its streams stay, although the other one has fewer.
        ["--rebalance-rate", "0"],
    ];
    let files = port_files(site);
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    site.distributor_with_flags("distributor", &[&files, flags.as_flattened()].concat()).await
}

/// The files of an xDS port, as flags.
fn port_files(site: &Site) -> Vec<String> {
    let flags =
        [("--xds-cert", "server.pem"), ("--xds-key", "server.key"), ("--xds-client-ca", "ca.pem")];
    let file = |name| site.file(name).to_str().unwrap().to_owned();
    flags.into_iter().flat_map(|(flag, name)| [flag.to_owned(), file(name)]).collect()
}

/// An Envoy of the shared fleet, once it has its configuration.
async fn envoy_of(site: &Site, name: &str, distributor: &Program) -> Program {
    let bootstrap = bootstrap(name, std::slice::from_ref(distributor), "DELTA_GRPC", "");
    let envoy = site.envoy_from(name, &authenticated(site, &bootstrap)).await;
    envoy.until_live().await;
    envoy
}

/// The bootstrap of an Envoy that shows its certificate, and takes no very large expressions.
fn authenticated(site: &Site, bootstrap: &str) -> String {
    let tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let file = |name: &str| json!({"filename": site.file(name)});
    let socket = json!({"name": "tls", "typed_config": {"@type": tls, "common_tls_context": {
        "tls_certificates": [{"certificate_chain": file("envoy.pem"), "private_key": file("envoy.key")}],
        "validation_context": {"trusted_ca": file("ca.pem")},
    }}});
    let place = "      load_assignment:";
    let bound = "re2.max_program_size.error_level: 32768";
    assert!(bootstrap.contains(place) && bootstrap.contains(bound), "{bootstrap}");
    bootstrap
        .replace(place, &format!("      transport_socket: {socket}\n{place}"))
        .replace(bound, PROGRAM_SIZE)
}

fn be_picky(options: &mut Options, node: &str) {
    options.node_id = node.to_owned();
    let part = regex::bytes::Regex::new(&regex::escape(REJECTED.trim_matches(['^', '$']))).unwrap();
    options.rejects = Arc::new(move |kind, _, body: &[u8]| {
        (kind == ResourceType::Route && part.is_match(body))
            .then(|| format!("regex '{REJECTED}' RE2 program size > max program size of 200"))
    });
}

/// One port, where every namespace may attach routes and listeners.
fn gateway(http: u16) -> String {
    let spec = format!(
        "allowedListeners: {{namespaces: {{from: All}}}}
  listeners:
  - {{name: http, protocol: HTTP, port: {http}, allowedRoutes: {{namespaces: {{from: All}}}}}}"
    );
    gateway_with("web", &spec)
}

/// Anywhere in a status.
fn has_condition(status: &Value, [kind, is, reason]: [&str; 3]) -> bool {
    match status {
        Value::Object(fields) => {
            let here = status["type"] == kind && status["status"] == is;
            here && status["reason"] == reason
                || fields.values().any(|it| has_condition(it, [kind, is, reason]))
        }
        Value::Array(values) => values.iter().any(|it| has_condition(it, [kind, is, reason])),
        _ => false,
    }
}

async fn json_page(program: &Program, path: &str) -> Value {
    serde_json::from_str(&program.page(path).await).unwrap()
}

/// How much memory a process had at most, in MiB.
fn peak_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

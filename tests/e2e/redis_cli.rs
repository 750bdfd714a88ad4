//! What `helio` says of a system that runs: a translator, three distributors, and many simulated Envoys.

use crate::harness::{route, send, write};
use crate::redis_site::{FLEET, Program, Site, printed};
use crate::servers::{Server, until};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use heliograph_client::{Client, Options, Protocol};
use heliograph_snapshot::ResourceType;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Simulated Envoys at each distributor.
const EACH: usize = 40;

/// What no bundle may have: the password of Redis, and what a proxy blurts out.
const PASSWORD: &str = "for-redis-alone";
const TOKEN: &str = "Zm9yIHlvdXIgZXllcyBvbmx5";

struct Scene {
    site: Site,
    translator: Program,
    distributors: Vec<Program>,
    /// The clients of each distributor.
    clients: Vec<Vec<Client>>,
    _redis: Server,
}

impl Scene {
    async fn start() -> Self {
        let redis = Server::start(&[&format!("requirepass {PASSWORD}")]).await;
        let site = Site::new(&redis.url()).await;
        let password = site.file("password");
        fs::write(&password, PASSWORD).unwrap();
        let site = site.with_flags(&[("--store-password-file", &password)]);
        let translator = site.translator().await;
        let mut distributors = Vec::new();
        for name in ["a", "b", "c"] {
            distributors.push(site.distributor(name).await);
        }
        let clients = distributors.iter().map(|distributor| {
            let node = |number| format!("{}-{number}", distributor.name);
            let client = |number| Client::connect(options(distributor, node(number))).unwrap();
            (0..EACH).map(client).collect()
        });
        let clients = clients.collect();
        let scene = Self { site, translator, distributors, clients, _redis: redis };
        until("all are synced", async || {
            let output = scene.run(&["proxies", "-o", "json"]);
            output.status.success() && json(&output)["counts"]["synced"] == 3 * EACH
        })
        .await;
        scene
    }

    fn run(&self, args: &[&str]) -> Output {
        let programs = self.distributors.iter().chain([&self.translator]);
        let ports: Vec<_> =
            programs.map(|it| format!("--admin=http://127.0.0.1:{}", it.admin)).collect();
        let args: Vec<&str> =
            args.iter().copied().chain(ports.iter().map(String::as_str)).collect();
        self.site.helio(&args)
    }

    /// How the command calls a distributor.
    fn name(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.distributors[number].admin)
    }
}

fn options(distributor: &Program, node_id: String) -> Options {
    let server = format!("http://127.0.0.1:{}", distributor.xds);
    Options { node_id, ..Options::new(server, Protocol::Delta, FLEET) }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(output)))
}

fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_proxy_of_three_distributors_is_listed_once_and_where_it_is() {
    let scene = Scene::start().await;
    let output = scene.run(&["proxies", FLEET, "-o", "json"]);
    let listing = json(&output);
    let proxies = listing["proxies"].as_array().unwrap();
    let mut found = BTreeSet::new();
    for proxy in proxies {
        let node = proxy["node"].as_str().unwrap();
        let number = ["a-", "b-", "c-"].iter().position(|of| node.starts_with(of)).unwrap();
        assert_eq!(proxy["distributor"], scene.name(number), "{proxy}");
        assert_eq!(proxy["state"], "synced", "{proxy}");
        assert!(found.insert(node.to_owned()), "{node} is listed twice");
    }
    assert_eq!(found.len(), 3 * EACH);
    let output = scene.run(&["proxies"]);
    assert_eq!(text(&output).lines().count(), 3 * EACH + 1, "a head and a line each");
    assert!(!text(&output).contains('\x1b'), "a pipe gets no colours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("{} proxies: {0} synced\n", 3 * EACH));
    for none in [["default/other", "--node=a-1"], [FLEET, "--state=stale,silent"]] {
        let listing = json(&scene.run(&["proxies", "-o", "json", none[0], none[1]]));
        assert_eq!(listing["proxies"], Value::Array(vec![]), "{none:?}");
    }
    let listing = json(&scene.run(&["proxies", "--node", "b-7", "-o", "json"]));
    assert_eq!(listing["proxies"][0]["distributor"], scene.name(1));

    // One that hangs is waited for, and no longer than it may take; one that is gone is not.
    send("STOP", scene.distributors[2].id());
    let started = Instant::now();
    let output = scene.run(&["proxies", "--timeout", "5s"]);
    send("CONT", scene.distributors[2].id());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(text(&output).lines().count(), 2 * EACH + 1);
    assert_eq!(output.status.code(), Some(1), "what is missing must not look whole");
    let expected = format!("{} did not answer: no answer within 5s", scene.name(2));
    assert!(printed(&output).contains(&expected), "{}", printed(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_proxy_rejects_shows_in_every_command() {
    let mut scene = Scene::start().await;
    let mut picky = options(&scene.distributors[0], "picky".to_owned());
    picky.rejects = Arc::new(|kind, _, body: &[u8]| {
        let led = body.windows(5).any(|part| part == b"/late");
        (kind == ResourceType::Route && led).then(|| "cannot\nbe late".to_owned())
    });
    scene.clients[0].push(Client::connect(picky).unwrap());
    let rules = [("/", "blue"), ("/other", "green"), ("/late", "blue")];
    write(&scene.site.manifests(), "route.yaml", &route(&rules));
    until("it is rejected", async || {
        let listing = json(&scene.run(&["proxies", "--state", "rejecting", "-o", "json"]));
        listing["proxies"].as_array().is_some_and(|all| all.len() == 1)
            && json(&scene.run(&["proxies", "-o", "json"]))["counts"]["synced"] == 3 * EACH
    })
    .await;
    let output = scene.run(&["proxies"]);
    let first = text(&output).lines().nth(1).unwrap().to_owned();
    assert!(first.starts_with("picky "), "who is in trouble comes first: {first}");
    assert!(first.contains(" rejecting ") && first.ends_with("route: cannot\\nbe late"), "{first}");

    let output = scene.run(&["config", "picky"]);
    let table = text(&output).to_owned();
    assert!(table.starts_with("picky of default/web is rejecting, at "), "{table}");
    let rows: Vec<_> = table.lines().filter(|line| line.contains("rejected, has ")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.starts_with("route ")), "{table}");
    assert!(table.contains(" yes\n"), "it has all else: {table}");
    let whole = json(&scene.run(&["config", "a-1", "--type", "route", "-o", "json"]));
    let resources = whole["resources"].as_array().unwrap();
    assert!(resources.iter().all(|it| it["held"] == it["version"]), "{whole}");
    assert!(whole.to_string().contains("/late"), "{whole}");
    let none = scene.run(&["config", "nobody"]);
    assert!(printed(&none).contains("no proxy nobody is connected"), "{}", printed(&none));

    let output = scene.run(&["status"]);
    let table = text(&output).to_owned();
    assert_eq!(output.status.code(), Some(1), "a problem is one for scripts, too: {table}");
    let leader = table.lines().nth(1).unwrap();
    assert!(leader.split_whitespace().nth(3) == Some("yes"), "{table}");
    assert!(table.contains("reject route") && table.contains("cannot\\nbe late"), "{table}");
    let status = json(&scene.run(&["status", "-o", "json"]));
    assert_eq!(status["fleets"][0]["proxies"], 3 * EACH + 1, "{status}");
    assert_eq!(status["fleets"][0]["synced"], 3 * EACH, "{status}");
    assert_eq!(status["distributors"].as_array().unwrap().len(), 3);
    assert_eq!(status["store"]["replicas"].as_array().unwrap().len(), 3, "{status}");
}

/// Where a secret could come from: the objects, the key ring, the password of Redis, and the words of a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_has_what_helps_and_no_secret() {
    let mut scene = Scene::start().await;
    let key = scene.site.identity.key.serialize_pem();
    let words =
        format!("{key} and authorization: Bearer {TOKEN} and redis://me:{TOKEN}@redis:6379");
    let mut leaky = options(&scene.distributors[1], "leaky".to_owned());
    leaky.rejects =
        Arc::new(move |kind, _, _: &[u8]| (kind == ResourceType::Listener).then(|| words.clone()));
    scene.clients[1].push(Client::connect(leaky).unwrap());
    until("it is rejected", async || {
        let listing = json(&scene.run(&["proxies", "--state", "rejecting", "-o", "json"]));
        listing["proxies"].as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
    scene.distributors[2].kill().await;

    let file = scene.site.file("bundle.tar.gz");
    let output = scene.run(&["collect", "--file", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains(&format!("{} did not answer: ", scene.name(2))));
    let again = scene.run(&["collect", "--file", file.to_str().unwrap()]);
    assert!(!again.status.success(), "nothing is overwritten");

    let files = unpacked(&fs::read(&file).unwrap());
    let of = |end: &str| files.iter().filter(|(path, _)| path.ends_with(end)).count();
    assert_eq!((of("/metrics.txt"), of("/logging.txt"), of("/readyz.txt")), (3, 3, 3));
    assert_eq!((of("/fleets.json"), of("/acks.json"), of("/objects.json")), (2, 1, 1));
    for one in ["about.json", "status.txt", "status.json", "proxies.txt", "proxies.json"] {
        assert_eq!(of(&format!("/{one}")), 1, "{one}");
    }
    for one in ["/store.json", "/history.json", "/fleets/default/web.json"] {
        assert_eq!(of(one), 1, "{one}");
    }
    let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
    for expected in ["leaky", "0.1.0", "heliograph_build_info", "[redacted]", "certificate"] {
        assert!(all.contains(expected), "{expected} is missing");
    }
    // The key itself, line by line, as it is and as a Secret has it; and what opens everything in Redis.
    let ring = fs::read_to_string(scene.site.keys()).unwrap();
    let ring = ring.split_whitespace().filter(|word| word.len() >= 32).map(str::to_owned);
    let mut secrets: Vec<String> = key.lines().map(str::to_owned).chain(ring).collect();
    secrets.push(BASE64_STANDARD.encode(&key));
    secrets.extend([TOKEN, PASSWORD].map(str::to_owned));
    assert!(secrets.len() >= 8, "{}", secrets.len());
    for secret in secrets.iter().filter(|secret| !secret.starts_with("-----END")) {
        let found = files.iter().find(|(_, text)| text.contains(secret.as_str()));
        assert!(found.is_none(), "{secret} is in {}", found.unwrap().0);
    }
}

/// The files of an archive, with their paths.
fn unpacked(archive: &[u8]) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        (path, text)
    });
    entries.collect()
}

//! A proxy has one vote on what is to be kept from others, however many streams it opens and to however many replicas.

use crate::harness::{route, write};
use crate::redis_site::{FLEET, Program, Site};
use crate::servers::{Server, until};
use heliograph_client::{Client, Options, Protocol};
use heliograph_snapshot::ResourceType;
use serde_json::Value;
use std::sync::Arc;

struct Scene {
    site: Site,
    translator: Program,
    distributors: Vec<Program>,
    clients: Vec<Client>,
    _redis: Server,
}

/// The fleet has a table for each of its listeners.
const TABLES: usize = 2;

impl Scene {
    async fn start(distributors: &[&str]) -> Self {
        let redis = Server::start(&[]).await;
        let site = Site::new(&redis.url()).await;
        let translator = site.translator().await;
        let mut scene =
            Self { site, translator, distributors: vec![], clients: vec![], _redis: redis };
        for name in distributors {
            scene.distributors.push(scene.site.distributor(name).await);
        }
        scene
    }

    fn connect(&mut self, distributor: usize, node: &str) {
        let options = self.options(distributor, node);
        self.clients.push(Client::connect(options).unwrap());
    }

    /// One more stream of a proxy that rejects every table with the late path.
    fn connect_picky(&mut self, distributor: usize, node: &str) {
        let mut options = self.options(distributor, node);
        options.rejects = Arc::new(|kind, name, body: &[u8]| {
            let led = body.windows(5).any(|part| part == b"/late");
            (kind == ResourceType::Route && led).then(|| format!("{name} is late"))
        });
        self.clients.push(Client::connect(options).unwrap());
    }

    fn options(&self, distributor: usize, node: &str) -> Options {
        let server = format!("http://127.0.0.1:{}", self.distributors[distributor].xds);
        Options { node_id: node.to_owned(), ..Options::new(server, Protocol::Delta, FLEET) }
    }

    fn publish_late_path(&self) {
        let rules = [("/", "blue"), ("/other", "green"), ("/late", "blue")];
        write(&self.site.manifests(), "route.yaml", &route(&rules));
    }

    /// Waits until so many streams have what there is, and the translator knows it: only what it knows to be accepted is
    /// served in place of what is rejected.
    async fn until_acknowledged(&self, streams: u64) {
        until("all have what there is", async || self.answers().await["acknowledged"] == streams)
            .await;
    }

    /// What the translator knows of the proxies.
    async fn answers(&self) -> Value {
        let page: Value = serde_json::from_str(&self.translator.page("/acks").await).unwrap();
        page["fleets"][FLEET].clone()
    }

    /// Waits until the replicas report of each table, in sum, that so many have it, and that somebody rejects it at so many
    /// replicas.
    async fn until_reported(&self, accepted: u64, replicas: usize) {
        until("the replicas have reported", async || {
            let disputes = self.answers().await["disputes"].as_array().cloned();
            let disputes = disputes.unwrap_or_default();
            let have = disputes.iter().filter_map(|it| it["accepted"].as_u64()).sum::<u64>();
            let rejecting = disputes.iter().filter(|it| it["rejected"] != 0).count();
            have == accepted * TABLES as u64 && rejecting == replicas * TABLES
        })
        .await;
    }

    /// Publishes something else, which everybody takes: what is decided by then is served with it.
    async fn until_published_again(&self, distributor: usize, streams: u64) {
        let before = fleet(&self.distributors[distributor]).await["head"].clone();
        self.site.point_services_at("green", "blue");
        until("the next endpoints are there", async || {
            let fleet = fleet(&self.distributors[distributor]).await;
            // Those that reject count too while what they reject is in quarantine.
            fleet["head"] != before && fleet["acknowledged"].as_u64() >= Some(streams)
        })
        .await;
    }

    async fn until_quarantined(&self, tables: usize) {
        until("so much is in quarantine", async || {
            let mut all = Vec::new();
            for distributor in &self.distributors {
                all.push(fleet(distributor).await["quarantine"].as_array().map(Vec::len));
            }
            all.iter().all(|found| *found == Some(tables))
        })
        .await;
    }

    /// Waits until so many tables have been in quarantine. They may be out of it again: what most proxies reject is left out of
    /// them within a second, and then the rest is accepted.
    async fn until_kept_back(&self, tables: usize) {
        const KEPT_BACK: &str = "proxies reject it; until it changes, other proxies are served";
        until("so much has been in quarantine", async || {
            self.translator.lines(KEPT_BACK).len() == tables
        })
        .await;
    }

    async fn end(self) {
        for mut program in self.distributors.into_iter().chain([self.translator]) {
            assert!(program.end().await.success(), "{}", program.log());
        }
    }
}

async fn fleet(distributor: &Program) -> Value {
    let page: Value = serde_json::from_str(&distributor.page("/fleets").await).unwrap();
    page[FLEET].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_proxy_with_many_streams_quarantines_nothing_and_most_proxies_do() {
    let mut scene = Scene::start(&["one"]).await;
    for node in ["a", "b", "c"] {
        scene.connect(0, node);
    }
    for _ in 0..10 {
        scene.connect_picky(0, "picky");
    }
    scene.until_acknowledged(13).await;
    scene.publish_late_path();
    scene.until_reported(3, 1).await;
    scene.until_published_again(0, 3).await;
    scene.until_quarantined(0).await;
    scene.until_kept_back(0).await;

    for number in 0..4 {
        scene.connect_picky(0, &format!("picky-{number}"));
    }
    scene.until_kept_back(TABLES).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_it_with_streams_to_every_replica() {
    let mut scene = Scene::start(&["one", "two"]).await;
    for node in ["a", "b"] {
        scene.connect(0, node);
    }
    for number in 0..10 {
        scene.connect_picky(number % 2, "picky");
    }
    scene.until_acknowledged(12).await;
    scene.publish_late_path();
    scene.until_reported(2, 2).await;
    scene.until_published_again(0, 2).await;
    scene.until_quarantined(0).await;

    // Another one, and they are as many as have it.
    scene.connect_picky(1, "pickier");
    scene.until_quarantined(TABLES).await;
    scene.end().await;
}

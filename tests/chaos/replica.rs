use crate::log::Log;
use crate::scene::marked;
use crate::servers::Proxy;
use crate::world::{DEADLINE, metric};
use heliograph_checker::{Content, Event};
use heliograph_distributor::{DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{FleetName, ResourceType, Snapshot};
use heliograph_store::redis::RedisStore;
use heliograph_store::{DistributorStore, Subscription, Update};
use heliograph_testing::Port;
use prometheus::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A distributor at work, and beside it a plain reader of its store.
pub(crate) struct Replica {
    /// Address of the xDS port, where proxies connect.
    pub(crate) server: String,
    /// The way to Redis.
    pub(crate) way: Proxy,
    pub(crate) store: RedisStore,
    readiness: Readiness,
    registry: Registry,
    read: watch::Receiver<Snapshots>,
    reader: Arc<str>,
    log: Log,
    tasks: JoinSet<()>,
}

type Snapshots = BTreeMap<FleetName, Arc<Snapshot>>;

impl Replica {
    /// `registry` is that of the store.
    pub(crate) async fn start(
        name: &str,
        store: RedisStore,
        registry: Registry,
        way: Proxy,
        log: Log,
    ) -> Self {
        let args = DistributorArgs {
            // Its proxies try to get back to it when it has ended, and must not find that of another test.
            xds_address: ([127, 0, 0, 1], Port::reserve().unwrap().number()).into(),
            insecure_plaintext: false,
            replica: Some(name.to_owned()),
            load: LoadArgs::default(),
        };
        let (security, readiness) = (SecurityArgs::default(), Readiness::new());
        let bound = heliograph_distributor::build(
            &args,
            &security,
            DistributorStore::new(Arc::new(store.clone())),
            &registry,
            &readiness,
        )
        .await
        .unwrap();
        let server = format!("http://{}", bound.address());
        let (seen, read) = watch::channel(Snapshots::new());
        let subscription = Subscription::new(Arc::new(store.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { bound.run(CancellationToken::new()).await.unwrap() });
        let reader: Arc<str> = format!("reader of {name}").into();
        tasks.spawn(follow(reader.clone(), subscription, log.clone(), seen));
        Self { server, way, store, readiness, registry, read, reader, log, tasks }
    }

    /// Ends it, as a rollout does that does not wait.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
        self.log.record(Event::Leaves { who: self.reader });
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(&self.registry, name)
    }

    /// Until the reader has the mark in all tables of these fleets.
    pub(crate) async fn until_read(&self, fleets: &[FleetName], mark: u32) {
        let has = |snapshots: &Snapshots, fleet| {
            let tables = snapshots.get(fleet).into_iter();
            tables
                .flat_map(|it| it.tree(ResourceType::Route).iter())
                .any(|it| marked(&it.body, mark))
        };
        let mut read = self.read.clone();
        let all = read.wait_for(|snapshots| fleets.iter().all(|fleet| has(snapshots, fleet)));
        timeout(DEADLINE, all).await.expect("the reader hears of it").unwrap();
    }
}

impl Replica {
    /// Until its reader has a fleet, or has it no more.
    pub(crate) async fn until_knows(&self, fleet: &FleetName, expected: bool) {
        let mut read = self.read.clone();
        let known = read.wait_for(|snapshots| snapshots.contains_key(fleet) == expected);
        timeout(DEADLINE, known).await.expect("the reader hears of it").unwrap();
    }
}

/// Writes down what a reader is given.
async fn follow(
    reader: Arc<str>,
    mut subscription: Subscription,
    log: Log,
    seen: watch::Sender<Snapshots>,
) {
    log.record(Event::Reads { reader: reader.clone() });
    loop {
        match subscription.next().await {
            Update::Published(snapshot, _) => {
                let (reader, fleet, head) = (reader.clone(), snapshot.fleet.clone(), snapshot.head);
                let content = Some(Arc::new(Content::from(&*snapshot)));
                log.record(Event::Read { reader, fleet: fleet.clone(), head, content });
                seen.send_modify(|seen| {
                    seen.insert(fleet, snapshot);
                });
            }
            Update::Retired(fleet, head) => {
                let reader = reader.clone();
                log.record(Event::Read { reader, fleet: fleet.clone(), head, content: None });
                seen.send_modify(|seen| {
                    seen.remove(&fleet);
                });
            }
            _ => {}
        }
    }
}

//! A translator that stands by, and leads once the test elects it.

use crate::leader::Leader;
use crate::log::Log;
use crate::recorded::Recorded;
use crate::servers::Proxy;
use crate::world::{DEADLINE, comes_true};
use heliograph_store::redis::RedisStore;
use heliograph_translator::election::{Lead, Resign};
use heliograph_translator::provider::kubernetes::Refresh;
use prometheus::Registry;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const COMPARISONS: &str = "heliograph_store_operations_total{operation=\"compare\",outcome=\"ok\"}";

pub(crate) struct Standby {
    /// As which it goes on once it is elected.
    pub(crate) leader: Leader,
    way: Proxy,
    leadership: watch::Sender<Option<Lead>>,
    refresh: Refresh,
    /// Number of the last order whose content it loaded.
    loaded: watch::Receiver<u64>,
}

impl Standby {
    /// `registry` is that of the store, and `way` leads there.
    pub(crate) fn begin(store: RedisStore, registry: Registry, way: Proxy, log: Log) -> Self {
        let recorded = Recorded::new(store, log);
        let loaded = recorded.loaded.subscribe();
        let (leadership, refresh) = (watch::Sender::new(None), Refresh::default());
        let (candidate, asked) = (leadership.clone(), refresh.clone());
        let leader = Leader::start(recorded, registry, None, async move |translator, inputs| {
            // A candidate that is gone would end the term.
            let elections = candidate.subscribe();
            let (resign, stop) = (Resign::default(), CancellationToken::new());
            let ended = translator.run_elected(inputs, elections, asked, resign, stop).await;
            drop(candidate);
            ended
        });
        Self { leader, way, leadership, refresh, loaded }
    }

    /// Until it has loaded the content that this order holds a fleet at.
    pub(crate) async fn until_loaded(&self, order: u64) {
        let mut loaded = self.loaded.clone();
        let content = loaded.wait_for(|number| *number >= order);
        timeout(DEADLINE, content).await.expect("the standby loads what is held").unwrap();
    }

    /// Until it has seen what Redis has now. A first comparison may have begun before.
    pub(crate) async fn until_compared(&self) {
        let before = self.leader.metric(COMPARISONS);
        comes_true("the standby compares", || self.leader.metric(COMPARISONS) >= before + 2.0)
            .await;
    }

    /// It wins a term, and then hears that it was told of all objects.
    pub(crate) async fn elect(self, fence: u128) -> (Leader, Proxy) {
        let mut asked = self.refresh.asked();
        let until = Instant::now() + Duration::from_secs(3600);
        self.leadership.send_replace(Some(Lead { fence, until }));
        timeout(DEADLINE, asked.changed()).await.expect("it asks for all objects").unwrap();
        self.leader.confirm(*asked.borrow());
        (self.leader, self.way)
    }
}

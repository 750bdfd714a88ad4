use crate::DEADLINE;
use crate::faulty::Faulty;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType};
use heliograph_translator::{PublishEvent, Publisher, TermError, TranslatorMetrics};
use prometheus::{Registry, TextEncoder};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the publisher is left to work between two looks. It is cut off in the middle of whatever it waits for.
const A_WHILE: Duration = Duration::from_millis(7);

/// A publisher, and whoever awaits its news.
pub(crate) struct Writer {
    pub(crate) publisher: Publisher,
    registry: Registry,
    pub(crate) events: Vec<PublishEvent>,
}

impl Writer {
    pub(crate) fn new(store: &Arc<Faulty>, fence: u128) -> Self {
        let registry = Registry::new();
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let publisher = Publisher::new(store.clone(), store.clone(), Some(fence), metrics);
        Self { publisher, registry, events: vec![] }
    }

    /// Lets the publisher work until something is so.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            self.work().await.unwrap();
        }
    }

    /// Lets the publisher work for a while.
    pub(crate) async fn work(&mut self) -> Result<(), TermError> {
        if let Ok(events) = timeout(A_WHILE, self.publisher.events()).await {
            let of_fleets = |event: &PublishEvent| !matches!(event, PublishEvent::Claimed { .. });
            self.events.extend(events?.into_iter().filter(of_fleets));
        }
        Ok(())
    }

    /// Lets the publisher work until the store holds what it should. Returns what it told of.
    pub(crate) async fn catch_up(&mut self) -> Vec<PublishEvent> {
        self.until("caught up", |it| it.publisher.is_out() && it.publisher.pending() == 0).await;
        std::mem::take(&mut self.events)
    }

    /// Lets the publisher work until its term ends.
    pub(crate) async fn end(&mut self) -> TermError {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "the term did not end in time");
            if let Err(error) = self.work().await {
                return error;
            }
        }
    }

    pub(crate) fn change(&mut self, fleet: &FleetName, changes: &[Change]) {
        self.publisher.change(fleet, changes.to_vec(), changes.len());
    }

    pub(crate) fn metrics(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }
}

pub(crate) fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

pub(crate) fn at(fence: u128, sequence: u64) -> Head {
    Head { epoch: 0, fence, sequence }
}

pub(crate) fn written(name: &str, head: Head) -> PublishEvent {
    PublishEvent::Stored { fleet: fleet(name), head, written: true }
}

pub(crate) fn found(name: &str, head: Head) -> PublishEvent {
    PublishEvent::Stored { fleet: fleet(name), head, written: false }
}

pub(crate) fn set(name: &str, body: &str) -> Change {
    set_of(ResourceType::Cluster, name, body)
}

pub(crate) fn set_of(kind: ResourceType, name: &str, body: &str) -> Change {
    Change::Set(kind, Arc::new(Resource::new(name, body.as_bytes().to_vec().into())))
}

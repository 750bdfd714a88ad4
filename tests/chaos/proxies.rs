//! The simulated Envoys, and what they are sent as events.

use crate::log::Log;
use crate::scene::{contains, marked};
use crate::world::DEADLINE;
use heliograph_checker::{Event, Order, ResourceId, Response, Sent};
use heliograph_client::{Client, HeldResource, Options, Protocol, Received, State, references};
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use heliograph_store::Writer;
use heliograph_store::redis::RedisStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Envoy {
    pub(crate) name: Arc<str>,
    pub(crate) client: Client,
    /// The replica that it is connected to.
    pub(crate) at: usize,
    /// How often it opened a stream because the one before had ended, and not because the test said so.
    reconnects: Arc<AtomicUsize>,
    log: Log,
}

impl Envoy {
    /// `store` knows what the versions of secrets are.
    pub(crate) fn connect(
        name: String,
        protocol: Protocol,
        fleet: FleetName,
        (at, server): (usize, &str),
        store: RedisStore,
        log: Log,
    ) -> Self {
        let name: Arc<str> = name.into();
        log.record(Event::Connects { client: name.clone(), fleet: fleet.clone() });
        let mut options = Options::new(server, protocol, fleet.as_str());
        options.node_id = name.to_string();
        let (client, events) = (name.clone(), log.clone());
        options.witness = Arc::new(move |received, resources| {
            events.record(Event::Responded(response(client.clone(), received, resources, &store)));
        });
        let reconnects = Arc::new(AtomicUsize::new(0));
        let (client, events, count) = (name.clone(), log.clone(), reconnects.clone());
        options.reconnects = Some(Arc::new(move || {
            events.record(Event::Reconnects { client: client.clone() });
            count.fetch_add(1, Ordering::Relaxed);
        }));
        Self { name, client: Client::connect(options).unwrap(), at, reconnects, log }
    }

    /// Ends its stream and opens another: at the same replica, or at another one.
    pub(crate) fn reconnect(&mut self, elsewhere: Option<&str>) {
        self.client.disconnect();
        self.log.record(Event::Reconnects { client: self.name.clone() });
        match elsewhere {
            Some(server) => self.client.move_to(server).unwrap(),
            None => self.client.reconnect(),
        }
    }

    /// Until a table that it has bears the mark.
    pub(crate) async fn until_marked(&self, mark: u32) {
        let what = format!("mark {mark} at {}", self.name);
        let has = |state: &State| has_mark(state, mark);
        self.client.until(&what, DEADLINE, has).await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Until all tables that it has bear the mark: they are sent one by one.
    pub(crate) async fn until_all_marked(&self, mark: u32) {
        let what = format!("mark {mark} in all tables of {}", self.name);
        let has = |state: &State| {
            let mut tables = state.held.get(&ResourceType::Route).into_iter().flatten();
            has_mark(state, mark) && tables.all(|(_, table)| marked(&table.body, mark))
        };
        self.client.until(&what, DEADLINE, has).await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn is_marked(&self, mark: u32) -> bool {
        has_mark(&self.client.state(), mark)
    }

    /// Until an endpoint that it has is at this address.
    pub(crate) async fn until_endpoint(&self, address: &str) {
        let what = format!("endpoint {address} at {}", self.name);
        let has = |state: &State| {
            let mut endpoints = state.held.get(&ResourceType::Endpoints).into_iter().flatten();
            endpoints.any(|(_, it)| contains(&it.body, address))
        };
        self.client.until(&what, DEADLINE, has).await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) async fn until_warm(&self) {
        let what = format!("everything for {}", self.name);
        let warm = self.client.until(&what, DEADLINE, State::is_warm).await;
        warm.unwrap_or_else(|error| panic!("{error}"));
    }

    /// How many streams it has lost.
    pub(crate) fn lost_streams(&self) -> usize {
        let has_none = usize::from(self.client.state().ended.is_some());
        self.reconnects.load(Ordering::Relaxed) + has_none
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        self.client.disconnect();
        self.log.record(Event::Leaves { who: self.name.clone() });
    }
}

fn has_mark(state: &State, mark: u32) -> bool {
    let mut tables = state.held.get(&ResourceType::Route).into_iter().flatten();
    tables.any(|(_, table)| marked(&table.body, mark))
}

fn response(
    client: Arc<str>,
    received: &Received,
    resources: &[(String, HeldResource)],
    store: &RedisStore,
) -> Response {
    let kind = received.kind;
    let sent = |(name, held): &(String, HeldResource)| {
        let version = match kind {
            ResourceType::Secret => store.address_of_sealed(kind.into(), name, &held.body).into(),
            _ => Version::of(&held.body),
        };
        let references = references(kind, &held.body).into_iter();
        Sent {
            name: name.as_str().into(),
            version,
            references: references.map(|(kind, name)| ResourceId::new(kind, name)).collect(),
        }
    };
    Response {
        client,
        kind,
        order: Order::Nonce(head_in(&received.nonce)),
        resources: resources.iter().map(sent).collect(),
        removed: received.removed.iter().map(|name| name.as_str().into()).collect(),
        whole: received.whole,
        accepted: received.accepted,
    }
}

/// A nonce is `epoch.fence.sequence-count`.
fn head_in(nonce: &str) -> Head {
    let (head, _) = nonce.rsplit_once('-').unwrap_or_else(|| panic!("{nonce} is not ours"));
    head.parse().unwrap_or_else(|error| panic!("{error}"))
}

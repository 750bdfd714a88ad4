//! A writer that remembers what it wrote, as the translator does.

use crate::Store;
use bytes::Bytes;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{ClaimedTerm, PinState, Publication, Record, Retirement, StoreError, Term};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) struct Writer {
    store: Arc<dyn Store>,
    pub(crate) term: Term,
    /// Where it believes the fleets to be, live or retired.
    pub(crate) believed: BTreeMap<FleetName, Head>,
    /// The snapshots that it published itself.
    pub(crate) held: BTreeMap<FleetName, Arc<Snapshot>>,
}

/// A write that can be kept back, sent, and sent again.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Publish(Publication),
    Retire(Retirement),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Everything,
    Endpoints,
    Retirement,
}

impl Writer {
    pub(crate) async fn claim(store: &Arc<dyn Store>) -> Self {
        Self::of(store, store.claim(None).await.unwrap())
    }

    pub(crate) fn of(store: &Arc<dyn Store>, claim: ClaimedTerm) -> Self {
        let records = claim.records.into_iter();
        Self {
            store: store.clone(),
            term: claim.term,
            believed: records.map(|(fleet, record)| (fleet, record.head)).collect(),
            held: BTreeMap::new(),
        }
    }

    pub(crate) fn head(&self, sequence: u64) -> Head {
        Head { epoch: self.term.epoch, fence: self.term.fence, sequence }
    }

    /// The heads of the fleets that it holds live.
    pub(crate) fn live(&self) -> BTreeMap<FleetName, Head> {
        self.held.iter().map(|(fleet, snapshot)| (fleet.clone(), snapshot.head)).collect()
    }

    /// What it would write next, `advance` sequences on.
    pub(crate) fn draft(&self, fleet: &FleetName, advance: u64, kind: Kind) -> Write {
        let expected = self.believed.get(fleet).copied();
        let head = self.head(expected.map_or(0, |head| head.sequence) + advance);
        let (time, cause) = (time_of(head), cause_of(head));
        if let Kind::Retirement = kind {
            let fleet = fleet.clone();
            return Write::Retire(Retirement {
                fleet,
                tombstone: head,
                expected,
                time,
                cause,
                order: 0,
            });
        }
        let held = self.held.get(fleet).cloned();
        let snapshot = snapshot(held.as_deref(), fleet, head, kind);
        let pin = PinState::default();
        Write::Publish(Publication { snapshot, expected, held, time, cause, pin })
    }

    pub(crate) async fn publish(&mut self, fleet: &FleetName) -> Result<Head, StoreError> {
        self.write(self.draft(fleet, 1, Kind::Everything)).await
    }

    pub(crate) async fn publish_endpoints(
        &mut self,
        fleet: &FleetName,
    ) -> Result<Head, StoreError> {
        self.write(self.draft(fleet, 1, Kind::Endpoints)).await
    }

    pub(crate) async fn retire(&mut self, fleet: &FleetName) -> Result<Head, StoreError> {
        self.write(self.draft(fleet, 1, Kind::Retirement)).await
    }

    pub(crate) async fn write(&mut self, write: Write) -> Result<Head, StoreError> {
        write.send(&*self.store).await?;
        let head = write.record().head;
        self.learn(write);
        Ok(head)
    }

    /// Remembers a write that was done.
    pub(crate) fn learn(&mut self, write: Write) {
        let Record { fleet, head, .. } = write.record();
        self.believed.insert(fleet.clone(), head);
        match write {
            Write::Publish(publication) => self.held.insert(fleet, publication.snapshot),
            Write::Retire(_) => self.held.remove(&fleet),
        };
    }
}

impl Write {
    pub(crate) async fn send(&self, store: &dyn Store) -> Result<(), StoreError> {
        match self.clone() {
            Self::Publish(publication) => store.publish(publication).await.map(|_| ()),
            Self::Retire(retirement) => store.retire(retirement).await,
        }
    }

    pub(crate) fn record(&self) -> Record {
        match self {
            Self::Publish(publication) => publication.record(),
            Self::Retire(retirement) => retirement.record(),
        }
    }

    pub(crate) fn expected(&self) -> Option<Head> {
        match self {
            Self::Publish(publication) => publication.expected,
            Self::Retire(retirement) => retirement.expected,
        }
    }

    /// The same write by a writer that believes another head to be there.
    pub(crate) fn expecting(mut self, head: Option<Head>) -> Self {
        match &mut self {
            Self::Publish(publication) => publication.expected = head,
            Self::Retire(retirement) => retirement.expected = head,
        }
        self
    }
}

pub(crate) fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

/// The publication of a whole snapshot at `head`, by a writer that remembers nothing.
pub(crate) fn publication(fleet: &FleetName, head: Head, expected: Option<Head>) -> Write {
    let snapshot = snapshot(None, fleet, head, Kind::Everything);
    let (time, cause) = (time_of(head), cause_of(head));
    let pin = PinState::default();
    Write::Publish(Publication { snapshot, expected, held: None, time, cause, pin })
}

pub(crate) fn retirement(fleet: &FleetName, tombstone: Head, expected: Option<Head>) -> Write {
    let (time, cause) = (time_of(tombstone), cause_of(tombstone));
    Write::Retire(Retirement { fleet: fleet.clone(), tombstone, expected, time, cause, order: 0 })
}

/// The endpoints are always those of the head, so that a head with another's content is found.
pub(crate) fn assert_whole(snapshot: &Snapshot) {
    let endpoints = snapshot.get(ResourceType::Endpoints, "endpoints").expect("endpoints");
    assert_eq!(endpoints.body, snapshot.head.to_string());
}

pub(crate) fn time_of(head: Head) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + head.sequence)
}

pub(crate) fn cause_of(head: Head) -> Arc<str> {
    format!("change {}", head.sequence).into()
}

fn snapshot(base: Option<&Snapshot>, fleet: &FleetName, head: Head, kind: Kind) -> Arc<Snapshot> {
    let empty = Snapshot::empty(fleet.clone());
    let set = |kind, name: &str| {
        let body = Bytes::from(head.to_string());
        Change::Set(kind, Arc::new(Resource::new(name, body)))
    };
    let mut changes = vec![set(ResourceType::Endpoints, "endpoints")];
    if let Kind::Everything = kind {
        changes.push(set(ResourceType::Cluster, "cluster"));
    }
    Arc::new(base.unwrap_or(&empty).with(head, changes))
}

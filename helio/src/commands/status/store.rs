use crate::output::shown_time;
use anyhow::anyhow;
use heliograph_snapshot::Head;
use heliograph_store::{OperatorStore, Pinned, Presence, StoreArgs};
use prometheus::Registry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// What Redis says.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreFacts {
    /// `EPOCH.FENCE` of the newest translator.
    pub(super) term: String,
    #[serde(serialize_with = "as_text")]
    pub(super) heads: BTreeMap<String, Head>,
    pub(super) pins: Vec<Pin>,
    /// The distributors that say that they are there.
    pub(super) replicas: Vec<Replica>,
}

/// A fleet that an operator holds back.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pin {
    pub(super) fleet: String,
    pub(super) head: String,
    pub(super) since: String,
    pub(super) by: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) streams: u64,
    pub(super) leaving: bool,
}

/// `None` without --store.
pub(crate) async fn ask(args: &StoreArgs, limit: Duration) -> anyhow::Result<Option<StoreFacts>> {
    if args.redis.store.is_none() {
        return Ok(None);
    }
    let store = args.open_for_operator(&Registry::new())?;
    timeout(limit, StoreFacts::of(&store))
        .await
        .unwrap_or_else(|_| Err(anyhow!("no answer within {limit:?}")))
        .map(Some)
}

impl StoreFacts {
    async fn of(store: &OperatorStore) -> anyhow::Result<Self> {
        let found = store.history.inspect(Vec::new()).await?;
        let presences = store.replicas.read_presences().await?;
        let mut replicas: Vec<_> = presences.into_iter().map(Replica::of).collect();
        replicas.sort_by(|one, other| one.name.cmp(&other.name));
        // A fleet that is retired keeps a head for days, so that no older write brings it back.
        let records = store.reader.newest(found.heads.into_keys().collect()).await?;
        let live = records.into_iter().filter(|(_, record)| record.is_live());
        let live: BTreeMap<_, _> = live.collect();
        let pins = live.iter().filter_map(|(fleet, record)| {
            let pinned = Pinned::of(Some(record), found.orders.get(fleet))?;
            Some(Pin::of(fleet.as_str(), pinned))
        });
        Ok(Self {
            term: found.term.to_string(),
            pins: pins.collect(),
            heads: live.iter().map(|(fleet, record)| (fleet.to_string(), record.head)).collect(),
            replicas,
        })
    }

    pub(crate) fn fleets(&self) -> impl Iterator<Item = &str> {
        self.heads.keys().map(String::as_str)
    }
}

impl Pin {
    fn of(fleet: &str, pinned: Pinned) -> Self {
        let Pinned { head, since, by, reason } = pinned;
        Self {
            fleet: fleet.to_owned(),
            head: head.to_string(),
            since: shown_time(since),
            by: by.to_string(),
            reason: reason.to_string(),
        }
    }
}

impl Replica {
    fn of(presence: Presence) -> Self {
        let Presence { replica, beat: _, streams, leaving } = presence;
        Self { name: replica, streams, leaving }
    }
}

fn as_text<S: serde::Serializer>(
    heads: &BTreeMap<String, Head>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(heads.iter().map(|(fleet, head)| (fleet, head.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::{FleetName, Snapshot};
    use heliograph_store::{Embedded, PinState, Publication, Retirement, Writer};
    use std::sync::Arc;
    use std::time::SystemTime;

    #[tokio::test]
    async fn a_fleet_that_is_retired_is_not_there() {
        let store = Arc::new(Embedded::new());
        let term = store.claim(None).await.unwrap().term;
        let head = |sequence| Head { epoch: term.epoch, fence: term.fence, sequence };
        for name in ["default/gone", "default/web"] {
            let fleet: FleetName = name.parse().unwrap();
            let publication = Publication {
                snapshot: Arc::new(Snapshot::empty(fleet).with(head(1), [])),
                expected: None,
                held: None,
                time: SystemTime::now(),
                cause: "a test".into(),
                pin: PinState::default(),
            };
            store.publish(publication).await.unwrap();
        }
        let retirement = Retirement {
            fleet: "default/gone".parse().unwrap(),
            tombstone: head(2),
            expected: Some(head(1)),
            time: SystemTime::now(),
            cause: "a test".into(),
            order: 0,
        };
        store.retire(retirement).await.unwrap();
        let facts = StoreFacts::of(&OperatorStore::new(store)).await.unwrap();
        assert_eq!(facts.fleets().collect::<Vec<_>>(), ["default/web"]);
    }
}

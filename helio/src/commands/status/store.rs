use crate::output::shown_time;
use anyhow::anyhow;
use heliograph_snapshot::Head;
use heliograph_store::{Pin, Presence, Store, StoreArgs};
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
    pub(super) pins: Vec<Pinned>,
    /// The distributors that say that they are there.
    pub(super) replicas: Vec<Replica>,
}

/// A fleet that an operator holds back.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pinned {
    pub(super) fleet: String,
    pub(super) head: String,
    pub(super) since: String,
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
    let store = args.open(&Registry::new())?;
    let asked = async {
        let found = store.inspect(Vec::new()).await?;
        let pin = |(fleet, pin): (_, Pin)| Pinned {
            fleet: ToString::to_string(&fleet),
            head: pin.record.head.to_string(),
            since: shown_time(pin.time),
            reason: pin.cause.to_string(),
        };
        let mut replicas: Vec<_> = store.present().await?.into_iter().map(Replica::of).collect();
        replicas.sort_by(|one, other| one.name.cmp(&other.name));
        let heads = found.heads.into_iter().map(|(fleet, head)| (fleet.to_string(), head));
        anyhow::Ok(StoreFacts {
            term: found.term.to_string(),
            heads: heads.collect(),
            pins: found.pins.into_iter().map(pin).collect(),
            replicas,
        })
    };
    timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(anyhow!("no answer within {limit:?}")))
        .map(Some)
}

impl StoreFacts {
    pub(crate) fn fleets(&self) -> impl Iterator<Item = &str> {
        self.heads.keys().map(String::as_str)
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

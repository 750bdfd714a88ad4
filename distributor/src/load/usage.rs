use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// How much of each limit of a replica is in use, and by which owners.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    pub(crate) streams: LimitUsage,
    /// Of clients that have shown who they are.
    pub(crate) connections: LimitUsage,
    pub(crate) unauthenticated_connections: LimitUsage,
    pub(crate) subscription_bytes: LimitUsage,
    /// Of requests that are being received.
    pub(crate) small_request_bytes: LimitUsage,
    pub(crate) large_request_bytes: LimitUsage,
    pub(crate) identities: Vec<Holder>,
    pub(crate) namespaces: Vec<Holder>,
}

/// How much of one limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LimitUsage {
    pub(crate) now: usize,
    /// `None`: any number.
    pub(crate) limit: Option<usize>,
}

/// A large holder.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Holder {
    name: Arc<str>,
    streams: usize,
    connections: usize,
    subscription_bytes: usize,
}

/// How much of one thing each holder uses.
pub(super) type UsageByHolder = HashMap<Arc<str>, usize>;

/// How many are named that have the most of something.
const LARGEST: usize = 20;

impl LimitUsage {
    pub(super) fn new(now: usize, limit: usize) -> Self {
        Self { now, limit: (limit != usize::MAX).then_some(limit) }
    }
}

impl Holder {
    /// Those who have the most of something, by their streams.
    pub(super) fn largest(
        streams: &UsageByHolder,
        connections: &UsageByHolder,
        bytes: &UsageByHolder,
    ) -> Vec<Self> {
        let of = |all: &UsageByHolder, name: &str| all.get(name).copied().unwrap_or_default();
        let mut names: Vec<_> =
            [streams, connections, bytes].into_iter().flat_map(largest).collect();
        names.sort_unstable();
        names.dedup();
        let mut holders: Vec<_> = names
            .into_iter()
            .map(|name| Self {
                streams: of(streams, &name),
                connections: of(connections, &name),
                subscription_bytes: of(bytes, &name),
                name,
            })
            .collect();
        let rank = |it: &Self| (it.streams, it.connections, it.subscription_bytes);
        holders.sort_by_key(|it| std::cmp::Reverse(rank(it)));
        holders
    }
}

fn largest(all: &UsageByHolder) -> Vec<Arc<str>> {
    let mut all: Vec<_> = all.iter().collect();
    if all.len() > LARGEST {
        all.select_nth_unstable_by(LARGEST, |one, other| other.1.cmp(one.1));
        all.truncate(LARGEST);
    }
    all.into_iter().map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_the_most_of_anything_are_named() {
        let many: UsageByHolder = (1..1000).map(|n| (format!("{n:03}").into(), n)).collect();
        let bytes = [("keeps".into(), 7)].into();
        let holders = Holder::largest(&many, &many, &bytes);
        assert_eq!(holders.len(), LARGEST + 1);
        assert_eq!(
            (&*holders[0].name, holders[0].streams, holders[0].connections),
            ("999", 999, 999)
        );
        assert_eq!(&*holders[LARGEST - 1].name, "980");
        assert_eq!((&*holders[LARGEST].name, holders[LARGEST].subscription_bytes), ("keeps", 7));
    }
}

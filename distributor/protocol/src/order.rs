//! Make before break: the order in which types are updated.
//!
//! "Sequencing of updates should follow a make before break model": clusters and their endpoints, then extension
//! configurations, listeners and routes, and only then the removal of resources without references. Each step waits for
//! the client's acknowledgement of the one before, since only that shows that the client has the resources that the next
//! step needs. The table of resource types has the order of types.

use crate::view::View;
use crate::watch::Watch;
use heliograph_snapshot::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether the removals of a type may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RemovalGate {
    Open,
    /// Something that may refer to them is still to be acknowledged.
    Waiting,
    /// The client rejected something that may refer to them, and still uses its older version.
    Blocked,
}

/// The types on one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches([Option<Box<Watch>>; ResourceType::ALL.len()]);

/// The resources that were sent and that what warms them must follow: Envoy keeps a new or changed cluster warming until
/// endpoints arrive, even if they are those it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed {
    names: BTreeSet<Arc<str>>,
    /// Whether there was progress since this was last asked.
    moved: bool,
}

impl Watches {
    pub(crate) fn get(&self, kind: ResourceType) -> Option<&Watch> {
        self.0[kind as usize].as_deref()
    }

    pub(crate) fn get_mut(&mut self, kind: ResourceType) -> Option<&mut Watch> {
        self.0[kind as usize].as_deref_mut()
    }

    pub(crate) fn insert(&mut self, kind: ResourceType, watch: Watch) {
        self.0[kind as usize] = Some(Box::new(watch));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter().flatten().map(|watch| &**watch)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.0.iter_mut().flatten().map(|watch| &mut **watch)
    }

    /// Whether a type may set out for `target`: all that its resources may refer to has arrived.
    pub(crate) fn may_advance(&self, kind: ResourceType, target: &Arc<View>, owed: &Owed) -> bool {
        kind.properties().after.iter().all(|earlier| self.have_arrived(*earlier, target, owed))
    }

    /// Whether the client has all that `target` has of a type, and what that is warmed by.
    fn have_arrived(&self, kind: ResourceType, target: &Arc<View>, owed: &Owed) -> bool {
        let have_arrived =
            self.get(kind).is_none_or(|watch| watch.is_at(target) && watch.has_made());
        have_arrived
            && kind.properties().warmed_by.is_none_or(|warmer| {
                owed.is_empty() && self.get(warmer).is_none_or(|watch| !watch.awaits_any())
            })
    }

    /// Whether what `target` no longer has may be taken from the client. While a client that was connected before
    /// is still telling what it asks for, types that it has not named yet may refer to anything.
    pub(crate) fn removals(
        &self,
        kind: ResourceType,
        target: &Arc<View>,
        resuming: bool,
    ) -> RemovalGate {
        let gates = kind.properties().referrers.iter().map(|referrer| {
            let beyond = self.removals(*referrer, target, resuming);
            let own = match self.get(*referrer) {
                None if resuming && may_be_in_use(*referrer, target) => RemovalGate::Waiting,
                None => RemovalGate::Open,
                Some(watch) if watch.is_disputed() => RemovalGate::Blocked,
                Some(watch) if watch.is_at(target) && watch.is_quiet(beyond) => RemovalGate::Open,
                Some(_) => RemovalGate::Waiting,
            };
            own.max(beyond)
        });
        gates.max().unwrap_or(RemovalGate::Open)
    }

    /// Whether the client is at `target`, so that the next transition may begin.
    pub(crate) fn are_at(&self, target: &Arc<View>, resuming: bool) -> bool {
        let mut kinds =
            ResourceType::ALL.into_iter().filter(|kind| !kind.properties().is_immediate);
        kinds.all(|kind| {
            self.get(kind).is_none_or(|watch| {
                watch.is_at(target) && watch.is_quiet(self.removals(kind, target, resuming))
            })
        })
    }
}

/// Whether a client at `target` may have a resource of this type that it has not named yet. A resource that it asked for
/// by name is removed with the resources that refer to it, for which later removal gates wait: of a type that the target
/// does not have, the client has nothing.
fn may_be_in_use(kind: ResourceType, target: &View) -> bool {
    kind.is_asked_whole() || !target.tree(kind).is_empty()
}

impl Owed {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Those that the client asks for already.
    pub(crate) fn covered_by(&self, endpoints: &Watch) -> Vec<Arc<str>> {
        self.names.iter().filter(|name| endpoints.covers(name)).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there was progress since this was last called.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved
    }

    pub(crate) fn add(&mut self, name: Arc<str>) {
        self.moved |= self.names.insert(name);
    }

    /// The client has taken these clusters, and from now on it may ask for their endpoints.
    pub(crate) fn expect(&mut self, clusters: &[Arc<str>]) {
        self.moved |= clusters.iter().any(|name| self.names.contains(name));
    }

    /// These need not follow any more. Only that is progress: otherwise endpoints that change all the time would
    /// put off for ever the moment when the others are given up.
    pub(crate) fn settle<'a>(&mut self, names: impl IntoIterator<Item = &'a Arc<str>>) {
        for name in names {
            self.moved |= self.names.remove(name);
        }
    }

    /// Those of which `still` is not true need not follow any more.
    pub(crate) fn retain(&mut self, still: impl Fn(&str) -> bool) {
        let before = self.names.len();
        self.names.retain(|name| still(name));
        self.moved |= self.names.len() < before;
    }

    pub(crate) fn clear(&mut self) {
        self.names.clear();
    }
}

use crate::event::ResourceId;
use heliograph_snapshot::{Head, ResourceType, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The publications of one fleet: not the snapshots, but the times at which each resource changed. So a publication
/// costs memory in proportion to its change, and finding the origin of a response reads only its own resources.
#[derive(Debug, Default)]
pub(crate) struct FleetHistory {
    /// What may be in the store, oldest first. A position is one in this list.
    heads: Vec<PublishedHead>,
    refused: BTreeSet<Head>,
    /// The newest publication that the store confirmed.
    newest: Option<usize>,
    timelines: BTreeMap<ResourceType, BTreeMap<Arc<str>, Timeline>>,
    /// Where something of the type changed.
    turns: BTreeMap<ResourceType, Vec<usize>>,
}

/// One resource through all publishes.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Vec<Turn>);

#[derive(Clone, Copy, Debug)]
struct PublishedHead {
    head: Head,
    /// Otherwise the fleet is retired here.
    is_live: bool,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    at: usize,
    /// What the resource is from here on; none: it is gone.
    version: Option<Version>,
}

impl FleetHistory {
    /// The head has to be newer than all before.
    pub(crate) fn append(
        &mut self,
        head: Head,
        is_live: bool,
        is_acknowledged: bool,
        changes: impl IntoIterator<Item = (ResourceId, Option<Version>)>,
    ) {
        let at = self.heads.len();
        self.heads.push(PublishedHead { head, is_live });
        if is_acknowledged {
            self.newest = Some(at);
        }
        for (ResourceId { kind, name }, version) in changes {
            let timeline = self.timelines.entry(kind).or_default().entry(name).or_default();
            timeline.0.push(Turn { at, version });
            let turns = self.turns.entry(kind).or_default();
            if turns.last() != Some(&at) {
                turns.push(at);
            }
        }
    }

    pub(crate) fn refuse(&mut self, head: Head) {
        self.refused.insert(head);
    }

    pub(crate) fn is_refused(&self, head: Head) -> bool {
        self.refused.contains(&head)
    }

    pub(crate) fn position(&self, head: Head) -> Option<usize> {
        self.heads.binary_search_by_key(&head, |published| published.head).ok()
    }

    pub(crate) fn head(&self, at: usize) -> Head {
        self.heads.get(at).map(|published| published.head).unwrap_or_default()
    }

    pub(crate) fn is_live(&self, at: usize) -> bool {
        self.heads.get(at).is_some_and(|published| published.is_live)
    }

    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn last(&self) -> Option<Head> {
        self.heads.last().map(|published| published.head)
    }

    pub(crate) fn newest(&self) -> Option<usize> {
        self.newest
    }

    /// The position at which the content of a type at `at` began. Nothing differs in between, so proxies that got there
    /// at different times are in the same state.
    pub(crate) fn turn(&self, kind: ResourceType, at: usize) -> usize {
        let turns = self.turns.get(&kind).map(Vec::as_slice).unwrap_or_default();
        let next = turns.partition_point(|turn| *turn <= at);
        next.checked_sub(1).and_then(|last| turns.get(last)).copied().unwrap_or_default()
    }

    pub(crate) fn version(&self, kind: ResourceType, name: &str, at: usize) -> Option<Version> {
        self.timeline(kind, name)?.version(at)
    }

    /// All that a type ever had.
    pub(crate) fn timelines(
        &self,
        kind: ResourceType,
    ) -> impl Iterator<Item = (&Arc<str>, &Timeline)> {
        self.timelines.get(&kind).into_iter().flatten()
    }

    pub(crate) fn timeline(&self, kind: ResourceType, name: &str) -> Option<&Timeline> {
        self.timelines.get(&kind)?.get(name)
    }

    /// The resources of a type at a position, in order.
    pub(crate) fn resources(
        &self,
        kind: ResourceType,
        at: usize,
    ) -> impl Iterator<Item = (&Arc<str>, Version)> {
        self.timelines(kind).filter_map(move |(name, timeline)| Some((name, timeline.version(at)?)))
    }
}

impl Timeline {
    pub(crate) fn version(&self, at: usize) -> Option<Version> {
        let next = self.0.partition_point(|turn| turn.at <= at);
        next.checked_sub(1).and_then(|last| self.0.get(last))?.version
    }

    /// Whether it was this once, before a position.
    pub(crate) fn had(&self, version: Version, before: usize) -> bool {
        let earlier = self.0.iter().take_while(|turn| turn.at < before);
        earlier.into_iter().any(|turn| turn.version == Some(version))
    }

    /// The first position, not before `from`, where it is something that fits.
    pub(crate) fn next(
        &self,
        from: usize,
        fits: impl Fn(usize, Option<Version>) -> bool,
    ) -> Option<usize> {
        if fits(from, self.version(from)) {
            return Some(from);
        }
        let next = self.0.partition_point(|turn| turn.at <= from);
        let later = self.0.get(next..).unwrap_or_default();
        later.iter().find(|turn| fits(turn.at, turn.version)).map(|turn| turn.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One resource that is 1, 2, gone, 1, and another that never changes.
    fn history() -> FleetHistory {
        let version = |number: u32| Version::of(&number.to_be_bytes());
        let cluster = |name| ResourceId::new(ResourceType::Cluster, name);
        let mut history = FleetHistory::default();
        for (sequence, number) in (1..).zip([Some(1), Some(2), None, None, Some(1)]) {
            let head = Head { epoch: 0, fence: 0, sequence };
            let mut changes = Vec::new();
            if sequence == 1 {
                changes.push((cluster("b"), Some(version(1))));
            }
            if sequence != 4 {
                changes.push((cluster("a"), number.map(version)));
            }
            history.append(head, true, true, changes);
        }
        history
    }

    #[test]
    fn each_position_has_what_was_last_set() {
        let history = history();
        let version = |number: u32| Some(Version::of(&number.to_be_bytes()));
        let of = |name, at| history.version(ResourceType::Cluster, name, at);
        let all: Vec<_> = (0..5).map(|at| of("a", at)).collect();
        assert_eq!(all, [version(1), version(2), None, None, version(1)]);
        assert!((0..5).all(|at| of("b", at) == version(1)));
        let turns: Vec<_> = (0..5).map(|at| history.turn(ResourceType::Cluster, at)).collect();
        assert_eq!(turns, [0, 1, 2, 2, 4]);
        assert_eq!(history.turn(ResourceType::Route, 3), 0, "there never were any");
    }

    #[test]
    fn the_next_that_fits_is_found() {
        let history = history();
        let timeline = history.timeline(ResourceType::Cluster, "a").unwrap();
        let version = |number: u32| Some(Version::of(&number.to_be_bytes()));
        let next = |from, wanted| timeline.next(from, |_, found| found == wanted);
        assert_eq!(next(0, version(1)), Some(0));
        assert_eq!(next(1, version(1)), Some(4));
        assert_eq!(next(0, None), Some(2));
        assert_eq!(next(3, None), Some(3), "it is where it asks");
        assert_eq!(next(2, version(2)), None);
        assert!(timeline.had(version(2).unwrap(), 2));
        assert!(!timeline.had(version(2).unwrap(), 1));
    }
}

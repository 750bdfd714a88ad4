use crate::provider::Input;
use heliograph_gateway::objects::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// Until when each kind is known to be complete, counted in askings: those of [`Refresh`](super::Refresh), and before the
/// first one 0.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    reached: BTreeMap<Kind, Option<u64>>,
    reported: Option<u64>,
    /// Kinds that are listed, but whose contents are still being fetched for objects that wait.
    fetching: BTreeSet<Kind>,
}

impl Barrier {
    pub(super) fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { reached: kinds.into_iter().map(|kind| (kind, None)).collect(), ..Self::default() }
    }

    /// A kind has been listed, or found not to be served, after it was asked for so many times. Returns what that
    /// completes.
    pub(super) fn reach(&mut self, kind: Kind, asking: u64) -> Vec<Input> {
        let reached = self.reached.entry(kind).or_default();
        *reached = (*reached).max(Some(asking));
        let all = self.reached.values().copied().min().flatten();
        if all <= self.reported {
            return vec![];
        }
        let first = self.reported.is_none().then_some(Input::Synced);
        self.reported = all;
        first.into_iter().chain(all.filter(|asking| *asking > 0).map(Input::Fresh)).collect()
    }

    pub(super) fn fetching(&mut self, kinds: BTreeSet<Kind>) {
        self.fetching = kinds;
    }

    /// The kinds of which it is not known whether all that there was at this asking has been sent.
    pub(super) fn awaited(&self, asking: u64) -> impl Iterator<Item = Kind> {
        let is_awaited = move |kind: &Kind, reached: &Option<u64>| {
            *reached < Some(asking) || self.fetching.contains(kind)
        };
        let reached = self.reached.iter();
        reached.filter(move |(kind, reached)| is_awaited(kind, reached)).map(|(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kind_completes_and_it_is_told_once() {
        let mut barrier = Barrier::new([Kind::Gateway, Kind::HTTPRoute]);
        assert!(barrier.reach(Kind::Gateway, 0).is_empty());
        assert_eq!(barrier.awaited(0).collect::<Vec<_>>(), [Kind::HTTPRoute]);
        assert!(matches!(barrier.reach(Kind::HTTPRoute, 0)[..], [Input::Synced]));
        assert!(barrier.reach(Kind::HTTPRoute, 0).is_empty(), "a list that is repeated");
        assert!(barrier.reach(Kind::HTTPRoute, 1).is_empty());
        assert_eq!(barrier.awaited(1).collect::<Vec<_>>(), [Kind::Gateway]);
        assert!(matches!(barrier.reach(Kind::Gateway, 2)[..], [Input::Fresh(1)]));
        assert!(matches!(barrier.reach(Kind::HTTPRoute, 3)[..], [Input::Fresh(2)]));
        barrier.fetching([Kind::HTTPRoute].into());
        assert_eq!(barrier.awaited(2).collect::<Vec<_>>(), [Kind::HTTPRoute]);
    }

    #[test]
    fn who_is_asked_before_the_first_list_answers_both() {
        let mut barrier = Barrier::new([Kind::Gateway]);
        assert!(matches!(barrier.reach(Kind::Gateway, 1)[..], [Input::Synced, Input::Fresh(1)]));
    }
}

use super::RejectionSummary;
use heliograph_distributor_protocol::{Rejection, View};
use heliograph_store::{Dispute, Voter};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The last few different rejections of a fleet, oldest first.
#[derive(Debug, Default)]
pub(super) struct Rejections(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    /// The proxy that rejects it, if it is only one.
    only: Option<Voter>,
    summary: RejectionSummary,
}

/// Different rejections that are kept per fleet.
const LIMIT: usize = 16;

impl Rejections {
    /// Those that the newest views do not heal; none of a fleet that is retired.
    pub(super) fn current(&self, views: &[Arc<View>]) -> impl Iterator<Item = &RejectionSummary> {
        self.all().filter(|summary| views.iter().any(|view| summary.concerns(view)))
    }

    /// Those, and the ones of proxies that have accepted nothing else since.
    pub(super) fn unanswered(
        &self,
        views: &[Arc<View>],
        disputes: &[Dispute],
    ) -> impl Iterator<Item = &RejectionSummary> {
        self.all().filter(|summary| {
            views.iter().any(|view| summary.concerns(view))
                || disputes.iter().any(|dispute| summary.is_about(dispute))
        })
    }

    fn all(&self) -> impl Iterator<Item = &RejectionSummary> {
        self.0.iter().map(|entry| &entry.summary)
    }

    /// Ten thousand proxies that reject the same are one entry. Says whether it is a new one.
    pub(super) fn add(&mut self, voter: Voter, rejection: &Rejection) -> bool {
        self.0.retain(|known| !known.summary.is_explained_by(rejection));
        if let Some(known) = self.0.iter_mut().find(|known| known.summary.is_like(rejection)) {
            known.summary.count += 1;
            known.only = known.only.filter(|only| *only == voter);
            return false;
        }
        let Rejection { kind, detail, resources, attributed } = rejection;
        let summary = RejectionSummary {
            kind: *kind,
            detail: detail.clone(),
            resources: resources.clone(),
            attributed: *attributed,
            count: 1,
        };
        self.0.push_back(Entry { only: Some(voter), summary });
        if self.0.len() > LIMIT {
            self.0.remove(self.displaced(voter));
        }
        true
    }

    /// The oldest of the proxy that has most, and of `voter` rather than of another with as many: so a proxy that
    /// rejects with ever different texts displaces its own. The oldest of all if no proxy has more than one.
    fn displaced(&self, voter: Voter) -> usize {
        let mut counts = HashMap::<Voter, usize>::new();
        for only in self.0.iter().filter_map(|entry| entry.only) {
            *counts.entry(only).or_default() += 1;
        }
        let most = counts.into_iter().filter(|(_, count)| *count > 1);
        let most = most.max_by_key(|(of, count)| (*count, *of == voter)).map(|(of, _)| of);
        let is_its = |entry: &Entry| most.is_none_or(|most| entry.only == Some(most));
        self.0.iter().position(is_its).unwrap_or_default()
    }
}

impl RejectionSummary {
    /// Whether this is what a client says now.
    fn is_like(&self, rejection: &Rejection) -> bool {
        let Rejection { kind, detail, resources, attributed } = rejection;
        let is_same =
            self.kind == *kind && self.detail == *detail && self.attributed == *attributed;
        // While the culprit is searched for, each part that is rejected is the same complaint.
        is_same && (!attributed || self.resources == *resources)
    }

    /// Whether this is one of those that a culprit was searched for, and now it is found.
    fn is_explained_by(&self, rejection: &Rejection) -> bool {
        let mut resources = self.resources.iter();
        rejection.attributed
            && !self.attributed
            && self.kind == rejection.kind
            && (self.detail == rejection.detail
                || resources.any(|it| rejection.resources.contains(it)))
    }

    fn is_about(&self, dispute: &Dispute) -> bool {
        let Dispute { kind, name, version, .. } = dispute;
        let mut resources = self.resources.iter();
        self.kind == *kind && resources.any(|(of, at)| of == name && *at == Some(*version))
    }

    /// Whether the view still has something of what was rejected. If not, the rejection is healed.
    fn concerns(&self, view: &View) -> bool {
        let mut resources = self.resources.iter();
        self.resources.is_empty()
            || resources.any(|(name, version)| view.has(self.kind, name, *version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot, Version};

    fn rejection(detail: &str) -> Rejection {
        let (kind, detail) = (ResourceType::Cluster, detail.to_owned());
        Rejection { kind, detail, resources: vec![], attributed: true }
    }

    fn words(rejections: &Rejections) -> Vec<&str> {
        rejections.0.iter().map(|entry| &*entry.summary.detail).collect()
    }

    #[test]
    fn rejections_are_summed_up_and_bounded() {
        let mut rejections = Rejections::default();
        assert!(rejections.add(Voter(1), &rejection("0")));
        assert!(!rejections.add(Voter(1), &rejection("0")));
        assert!(!rejections.add(Voter(2), &rejection("0")));
        assert_eq!(rejections.0[0].summary.count, 3);
        for number in 0..100 {
            rejections.add(Voter(number), &rejection(&number.to_string()));
        }
        let last: Vec<_> = (84..100).map(|number| number.to_string()).collect();
        assert_eq!(words(&rejections), last);
    }

    #[test]
    fn who_rejects_in_ever_other_words_displaces_its_own() {
        let mut rejections = Rejections::default();
        rejections.add(Voter(1), &rejection("of one"));
        rejections.add(Voter(9), &rejection("of several"));
        rejections.add(Voter(2), &rejection("of several"));
        rejections.add(Voter(3), &rejection("one of two"));
        rejections.add(Voter(3), &rejection("two of two"));
        for number in 0..100 {
            assert!(rejections.add(Voter(9), &rejection(&number.to_string())));
        }
        let words = words(&rejections);
        assert_eq!(words[..4], ["of one", "of several", "one of two", "two of two"]);
        let last: Vec<_> = (88..100).map(|number| number.to_string()).collect();
        assert_eq!(words[4..], last);
    }

    #[test]
    fn a_rejection_is_healed_once_nothing_of_it_is_there() {
        let view = |resources: &[(&str, &'static str)]| {
            let changes = resources.iter().map(|(name, body)| {
                let resource = Resource::new(*name, Bytes::from_static(body.as_bytes()));
                Change::Set(ResourceType::Cluster, Arc::new(resource))
            });
            let empty = Snapshot::empty(FleetName::new("default", "gateway"));
            View::new(Arc::new(empty.with(Head::default(), changes)))
        };
        let rejection = RejectionSummary {
            kind: ResourceType::Cluster,
            detail: String::new(),
            resources: ["a", "b"].map(|name| (name.into(), Some(Version::of(b"bad")))).into(),
            attributed: true,
            count: 1,
        };
        assert!(rejection.concerns(&view(&[("a", "bad"), ("b", "good")])));
        assert!(!rejection.concerns(&view(&[("a", "good"), ("b", "good")])));
        assert!(!rejection.concerns(&view(&[])));
        let removal = RejectionSummary { resources: vec![("a".into(), None)], ..rejection };
        assert!(removal.concerns(&view(&[])));
        assert!(!removal.concerns(&view(&[("a", "back")])));
    }
}

//! A resource that proxies reject goes into quarantine: proxies that do not have it are served the last good version.

use crate::feedback::{Backing, DisputeCount, FleetFeedback, Votes};
use heliograph_snapshot::{
    Change, Head, Internal, Resource, ResourceType, Snapshot, Tree, Version,
};
use heliograph_views::{Quarantined, served};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The resources of a fleet that are in quarantine, and the versions before.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    entries: BTreeMap<ResourceId, Quarantined>,
    /// What was published lately, oldest first.
    stages: VecDeque<Stage>,
    feedback: Arc<FleetFeedback>,
    /// How many bytes are kept only for the sake of earlier stages.
    retained: usize,
    /// What was decided since this was asked for.
    decisions: Vec<Decision>,
}

/// That what proxies are served of a resource is another one now, because of what they said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub kind: ResourceType,
    pub name: Arc<str>,
    /// What was rejected.
    pub version: Version,
    pub rejected: u64,
    pub accepted: u64,
    /// It is served as it is again: more proxies have it than reject it.
    pub lifted: bool,
}

/// Consecutive publications in which nothing differs that could be gone back to.
#[derive(Debug)]
struct Stage {
    first: Head,
    last: Head,
    /// As it was served.
    trees: BTreeMap<ResourceType, Tree>,
    /// Whether proxies acknowledged all of it: two, or one of very few.
    accepted: bool,
    /// How many bytes of it the next stage does not have: about what is freed with it.
    replaced: usize,
}

type ResourceId = (ResourceType, Arc<str>);

/// How many resources of a fleet may be in quarantine. Each of them is stored once more.
const ENTRIES: usize = 64;
/// How many stages are remembered that a proxy accepted: the newest one may be what all others reject.
const ACCEPTED: usize = 8;
/// How many are remembered after those, until proxies have had the time to answer.
const UNANSWERED: usize = 64;
/// How many bytes may be kept of a fleet only for the sake of earlier stages.
const REPLACED: usize = 64 << 20;

impl Quarantine {
    /// Takes over what an earlier term had published.
    pub(super) fn inherit(&mut self, snapshot: &Arc<Snapshot>) {
        for entry in Quarantined::all(snapshot) {
            self.entries.entry(resource_id(&entry)).or_insert(entry);
        }
        self.published(snapshot);
    }

    /// This is in the store now.
    pub(super) fn published(&mut self, snapshot: &Arc<Snapshot>) {
        let served = served(snapshot, &Quarantined::all(snapshot));
        let kinds = ResourceType::ALL.into_iter().filter(|kind| kind.properties().has_quarantine);
        let trees: BTreeMap<_, _> = kinds.map(|kind| (kind, served.tree(kind).clone())).collect();
        let head = snapshot.head;
        let same = |stage: &&mut Stage| {
            trees.iter().all(|(kind, tree)| stage.trees[kind].address() == tree.address())
        };
        match self.stages.back_mut().filter(same) {
            Some(stage) => stage.last = head,
            None => {
                if let Some(stage) = self.stages.back_mut() {
                    stage.replaced = replaced(&stage.trees, &trees);
                }
                let (first, last, accepted, replaced) = (head, head, false, 0);
                self.stages.push_back(Stage { first, last, trees, accepted, replaced });
            }
        }
        self.update_accepted();
    }

    /// Receives the answers of proxies. Returns whether a step may follow.
    pub(super) fn receive(&mut self, feedback: Arc<FleetFeedback>) -> bool {
        self.feedback = feedback;
        self.update_accepted();
        !self.entries.is_empty() || !self.feedback.votes.disputes.is_empty()
    }

    /// The content with what is in quarantine.
    pub(super) fn applied_to(&mut self, content: Arc<Snapshot>) -> Arc<Snapshot> {
        self.decide(&content);
        if self.entries.is_empty() {
            return content;
        }
        let entries = self
            .entries
            .values()
            .map(|entry| Change::SetInternal(Internal::Quarantine, Arc::new(entry.resource())));
        Arc::new(content.with(content.head, entries))
    }

    /// The last good version of a resource, if another one is published.
    pub(super) fn last_good(
        &self,
        kind: ResourceType,
        published: &Resource,
    ) -> Option<Arc<Resource>> {
        last_good(&self.stages, kind, published)
    }

    /// A version of a resource that was published lately, and the last head that has it.
    pub(super) fn published_as(
        &self,
        kind: ResourceType,
        name: &str,
        version: Version,
    ) -> Option<(Head, Arc<Resource>)> {
        self.stages.iter().rev().find_map(|stage| {
            let resource = stage.trees.get(&kind)?.get(name)?;
            (resource.version == version).then(|| (stage.last, resource.clone()))
        })
    }

    pub(super) fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    fn decide(&mut self, content: &Snapshot) {
        // What has changed is another thing, and may be better.
        self.entries.retain(|(kind, name), entry| {
            content.get(*kind, name).is_some_and(|it| it.version == entry.rejected.version)
        });
        for ((kind, name, version), count) in &self.feedback.votes.disputes {
            let current = content.get(*kind, name).filter(|it| it.version == *version);
            let Some(rejected) = current else { continue };
            let is_full = self.entries.len() >= ENTRIES;
            let entry = self.entries.get_mut(&(*kind, name.clone()));
            let lifted = match &entry {
                Some(entry) => lifts(*count, entry.lifted),
                // What many have is no matter of theirs.
                None if is_full || lifts(*count, false) || count.rejected == 0 => continue,
                None => false,
            };
            match entry {
                Some(entry) if entry.lifted == lifted => continue,
                Some(entry) => entry.lifted = lifted,
                None => {
                    let Some(good) = last_good(&self.stages, *kind, rejected) else { continue };
                    if !Quarantined::is_possible(*kind, rejected, &good) {
                        continue;
                    }
                    let entry =
                        Quarantined { kind: *kind, rejected: rejected.clone(), good, lifted };
                    self.entries.insert(resource_id(&entry), entry);
                }
            }
            let DisputeCount { rejected, accepted } = *count;
            let (kind, name, version) = (*kind, name.clone(), *version);
            self.decisions.push(Decision { kind, name, version, rejected, accepted, lifted });
        }
    }

    fn update_accepted(&mut self) {
        let Votes { acknowledged, are_many, .. } = &self.feedback.votes;
        for stage in &mut self.stages {
            let heads = acknowledged.range(stage.first..=stage.last);
            let backing = heads.fold(Backing::Nobody, |sum, (_, backing)| sum.and(*backing));
            stage.accepted |= backing.suffices(*are_many);
        }
        // What came before one that was accepted is only of use if it was accepted too.
        let newest = self.stages.iter().rev().find(|stage| stage.accepted).map(|it| it.first);
        self.stages.retain(|stage| stage.accepted || Some(stage.first) > newest);
        let accepted = self.stages.iter().filter(|stage| stage.accepted).count();
        self.stages.drain(..accepted.saturating_sub(ACCEPTED));
        let accepted = accepted.min(ACCEPTED);
        let unanswered = self.stages.len() - accepted;
        self.stages.drain(accepted..accepted + unanswered.saturating_sub(UNANSWERED));
        self.retained = self.stages.iter().map(|stage| stage.replaced).sum();
        // Large ones are few.
        while self.retained > REPLACED && self.has_spare() {
            self.forget();
        }
    }

    /// How many bytes are kept only for the sake of earlier stages.
    pub(super) fn retained(&self) -> usize {
        self.retained
    }

    /// Whether there are other stages than the newest accepted one and what came last.
    pub(super) fn has_spare(&self) -> bool {
        self.stages.len() > 2
    }

    /// Forgets the oldest of these other stages.
    pub(super) fn forget(&mut self) {
        if !self.has_spare() {
            return;
        }
        let oldest = usize::from(!self.stages[1].accepted && self.stages[0].accepted);
        let gone = self.stages.remove(oldest).map_or(0, |stage| stage.replaced);
        self.retained -= gone;
    }
}

/// Whether the newest version is to be served. One odd proxy among many does not keep it from the others; without any
/// votes the last decision stands.
fn lifts(count: DisputeCount, lifted: bool) -> bool {
    let DisputeCount { rejected, accepted } = count;
    if rejected == 0 && accepted == 0 { lifted } else { accepted > rejected }
}

/// How many bytes of what there was are no more.
fn replaced(before: &BTreeMap<ResourceType, Tree>, after: &BTreeMap<ResourceType, Tree>) -> usize {
    let of = |(kind, tree): (&ResourceType, &Tree)| {
        let differences = after[kind].differences(tree).into_iter();
        differences.filter_map(|it| it.before).map(|gone| gone.body.len()).sum::<usize>()
    };
    before.iter().map(of).sum()
}

/// The last version that a proxy accepted before what was rejected. None if there was no such resource then.
fn last_good(
    stages: &VecDeque<Stage>,
    kind: ResourceType,
    rejected: &Resource,
) -> Option<Arc<Resource>> {
    let accepted = stages.iter().rev().filter(|stage| stage.accepted);
    for stage in accepted {
        let then = stage.trees.get(&kind)?.get(&rejected.name)?;
        if then.version != rejected.version {
            return Some(then.clone());
        }
    }
    None
}

fn resource_id(entry: &Quarantined) -> ResourceId {
    (entry.kind, entry.rejected.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::FleetName;

    #[test]
    fn large_versions_are_few() {
        let mut quarantine = Quarantine::default();
        let head = |sequence| Head { epoch: 0, fence: 1, sequence };
        let published = |quarantine: &mut Quarantine, sequence: u64| {
            let body = vec![u8::try_from(sequence).unwrap(); 10 << 20];
            let table = Change::Set(ResourceType::Route, Arc::new(Resource::new("a", body.into())));
            let empty = Snapshot::empty(FleetName::new("shop", "web"));
            quarantine.published(&Arc::new(empty.with(head(sequence), [table])));
        };
        published(&mut quarantine, 1);
        let acknowledged = BTreeMap::from([(head(1), Backing::Several)]);
        let votes = Votes { acknowledged, ..Votes::default() };
        quarantine.receive(Arc::new(FleetFeedback { votes, ..FleetFeedback::default() }));
        for sequence in 2..20 {
            published(&mut quarantine, sequence);
            let retained = quarantine.retained();
            assert!(retained <= REPLACED, "{retained}");
        }
        let heads: Vec<_> = quarantine.stages.iter().map(|stage| stage.first.sequence).collect();
        assert_eq!(heads, [1, 14, 15, 16, 17, 18, 19], "the last that was accepted stays");
    }
}

//! A resource that more proxies reject than accept is published again without the part of the object that caused the
//! rejection. This module decides which part of which object is left out; the world leaves it out.
//!
//! The cause is a guess until proxies accept the rest, so each rejection starts a [`Search`].

mod case;
mod delay;
mod retry;
mod search;

use crate::feedback::{FleetFeedback, Rejection};
use crate::publish::StoredHead;
use case::{CONFIRMING, Case, Suspect, cut};
use delay::Delay;
use heliograph_gateway::objects::ObjectKey;
use heliograph_gateway::{Culprit, RejectedResource, World};
use heliograph_snapshot::{FleetName, Head, Resource, ResourceType, Version};
use heliograph_views::LeftOut;
use retry::Retries;
use search::{Extent, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The searches of all fleets.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    cases: BTreeMap<Subject, Case>,
    /// What was rejected whatever was left out, and which content of which objects there was then.
    given_up: BTreeMap<Subject, BTreeSet<(ObjectKey, String)>>,
    /// Since when more proxies reject something than accept it.
    standing: BTreeMap<(FleetName, Version), Instant>,
    /// The rejected versions that count as a rejection already.
    counted: BTreeSet<(FleetName, Version)>,
    retries: Retries,
    pub(crate) delay: Delay,
}

/// The answers of a fleet's proxies.
pub(crate) struct FleetAnswers<'a> {
    pub(crate) fleet: &'a FleetName,
    pub(crate) feedback: &'a FleetFeedback,
    /// The head of the fleet in the store.
    pub(crate) stored_head: Option<StoredHead>,
    /// The number of the last change of the fleet.
    pub(crate) revision: u64,
    /// How often the world has been settled.
    pub(crate) settled: u64,
    pub(crate) now: Instant,
}

/// The published versions of a fleet's resources, and the accepted ones.
pub(crate) trait Versions {
    /// The last good version of a resource, if another one is published.
    fn last_good(&self, kind: ResourceType, name: &str) -> Option<Arc<Resource>>;

    /// A version that was published lately, and the last head that has it.
    fn published_as(
        &self,
        kind: ResourceType,
        name: &str,
        version: Version,
    ) -> Option<(Head, Arc<Resource>)>;
}

/// Something else is left out of an object than before. `None`: nothing.
pub(crate) type Change = (ObjectKey, Option<LeftOut>);

/// The subject of a search. All tables of a fleet are one subject, since they share routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Tables(FleetName),
    /// What policies make of a resource for some clients.
    Variant(FleetName, ResourceType, Arc<str>),
}

/// A resource of a fleet that more proxies reject than accept.
struct Rejected<'a> {
    kind: ResourceType,
    name: &'a Arc<str>,
    version: Version,
    words: &'a str,
    /// What was rejected, and the last head that has it, if it was published lately.
    published: Option<(Head, Arc<Resource>)>,
}

/// How many objects of one namespace are searched one by one. Beyond this number, all of its suspects are left out
/// together, so that one namespace cannot delay all others with one bad object after the other.
const OF_NAMESPACE: usize = 8;

/// How much of a proxy's words is kept.
const WORDS: usize = 1024;

/// How long more proxies must reject something than accept it, where those are not most of the connected ones: the others may
/// not have answered yet.
const STANDING: Duration = Duration::from_secs(4);

/// When to look whether what was decided is published.
const PUBLISHING: Duration = Duration::from_secs(1);

impl Isolation {
    /// Decides anew for a fleet.
    pub(crate) fn decide(
        &mut self,
        answers: &FleetAnswers<'_>,
        world: &World,
        versions: &impl Versions,
    ) -> Vec<Change> {
        let fleet = answers.fleet;
        let rejected = self.rejected(answers, versions);
        let mut changes = self.go_on(answers, &rejected, world);
        let offending = self.offending(answers, world);
        let mut culprits: BTreeMap<Subject, (Vec<Culprit>, &str)> = BTreeMap::new();
        for it in &rejected {
            let subject = it.subject(fleet, world);
            if self.cases.contains_key(&subject) {
                continue;
            }
            let good = versions.last_good(it.kind, it.name);
            self.count(it, good.as_deref(), answers, world, &offending);
            let found = it.culprits(fleet, world, good.as_deref());
            let (all, _) = culprits.entry(subject).or_insert((Vec::new(), it.words));
            found.into_iter().for_each(|culprit| add(all, culprit));
        }
        for (subject, (mut culprits, words)) in culprits {
            let offends = |it: &Culprit| offending.contains(&it.object.name.namespace);
            culprits.sort_by_key(|culprit| (!culprit.is_meant, !offends(culprit)));
            let suspects = suspects(culprits, fleet, world);
            if suspects.is_empty() || self.is_hopeless(&subject, &suspects) {
                continue;
            }
            self.given_up.remove(&subject);
            let offenders = offenders(&suspects, words, fleet, world);
            if !offenders.is_empty() {
                changes.extend(offenders);
                continue;
            }
            let case = Case::new(suspects, offends, words, answers);
            changes.extend(case.changes(fleet, world));
            self.cases.insert(subject, case);
        }
        // Not while something else is searched for: the answers would be about both.
        if self.cases.keys().all(|subject| subject.fleet() != fleet)
            && let Some(object) = self.retries.next(fleet, world, answers.now)
        {
            changes.push((object, None));
        }
        changes
    }

    /// The namespaces of what is left out, and of what was found out lately.
    fn offending(&self, answers: &FleetAnswers<'_>, world: &World) -> BTreeSet<Arc<str>> {
        let left_out = world.left_out(answers.fleet).filter(|(_, it)| !it.is_suspect);
        let mut offending: BTreeSet<_> =
            left_out.map(|(object, _)| object.name.namespace.clone()).collect();
        offending.extend(self.delay.offending(answers.now).map(Into::into));
        offending
    }

    /// Each rejected table counts once against the namespaces that may have caused it, whether its routes are still the
    /// same or not: those alone that offended before, if there are any. A search's own publications do not count.
    fn count(
        &mut self,
        rejected: &Rejected<'_>,
        good: Option<&Resource>,
        answers: &FleetAnswers<'_>,
        world: &World,
        offending: &BTreeSet<Arc<str>>,
    ) {
        let FleetAnswers { fleet, now, .. } = answers;
        if self.counted.insert(((*fleet).clone(), rejected.version)) {
            let suspects = world.suspects_at(fleet, &rejected.resource(good));
            let mut namespaces: BTreeSet<_> =
                suspects.iter().map(|it| &it.name.namespace).collect();
            if namespaces.iter().any(|it| offending.contains(*it)) {
                namespaces.retain(|it| offending.contains(*it));
            }
            namespaces.into_iter().for_each(|namespace| self.delay.rejected(namespace, *now));
        }
    }

    /// When to decide again although proxies say nothing new, if that may change something.
    pub(crate) fn due(&self) -> Option<Instant> {
        let standing = self.standing.values().map(|since| *since + STANDING);
        // What was decided may change nothing, and then proxies say nothing new.
        let cases = self.cases.values().map(|case| match case.published {
            Some((since, _)) => since + CONFIRMING,
            None => case.decided_at + PUBLISHING,
        });
        standing.chain(cases).chain(self.retries.due()).min()
    }

    /// Whether there is something to decide for a fleet.
    pub(crate) fn concerns(
        &self,
        fleet: &FleetName,
        feedback: &FleetFeedback,
        world: &World,
    ) -> bool {
        !feedback.rejections.is_empty()
            || self.retries.has(fleet)
            || world.left_out(fleet).next().is_some()
            || self.cases.keys().any(|subject| subject.fleet() == fleet)
            || self.standing.keys().any(|(of, _)| of == fleet)
            || self.counted.iter().any(|(of, _)| of == fleet)
    }

    /// Forgets the fleets that are no more.
    pub(crate) fn retired(&mut self, fleets: &[FleetName]) {
        self.cases.retain(|subject, _| !fleets.contains(subject.fleet()));
        self.given_up.retain(|subject, _| !fleets.contains(subject.fleet()));
        self.standing.retain(|(fleet, _), _| !fleets.contains(fleet));
        self.counted.retain(|(fleet, _)| !fleets.contains(fleet));
        self.retries.retired(fleets);
    }

    /// The resources that more proxies reject than accept: either more than half of all connected proxies do, or it has
    /// been so for a while.
    fn rejected<'a>(
        &mut self,
        answers: &FleetAnswers<'a>,
        versions: &impl Versions,
    ) -> Vec<Rejected<'a>> {
        let FleetAnswers { fleet, feedback, now, .. } = answers;
        let outvoted = feedback.rejections.iter().filter(|(_, it)| it.rejected > it.accepted);
        let outvoted: Vec<_> = outvoted.collect();
        let is_outvoted = |version: &Version| outvoted.iter().any(|((.., it), _)| it == version);
        self.standing.retain(|(of, version), _| of != *fleet || is_outvoted(version));
        self.counted.retain(|(of, version)| of != *fleet || is_outvoted(version));
        let mut rejected = Vec::new();
        for ((kind, name, version), Rejection { words, rejected: count, .. }) in outvoted {
            let is_most = count.saturating_mul(2) > feedback.votes.connected;
            let key = ((*fleet).clone(), *version);
            if !is_most && *now < *self.standing.entry(key.clone()).or_insert(*now) + STANDING {
                continue;
            }
            self.standing.remove(&key);
            let (kind, version) = (*kind, *version);
            let published = versions.published_as(kind, name, version);
            rejected.push(Rejected { kind, name, version, words, published });
        }
        rejected
    }

    fn go_on(
        &mut self,
        answers: &FleetAnswers<'_>,
        rejected: &[Rejected<'_>],
        world: &World,
    ) -> Vec<Change> {
        let (mut changes, mut over) = (Vec::new(), Vec::new());
        let fleet = answers.fleet;
        let of_fleet = self.cases.iter_mut().filter(|(subject, _)| subject.fleet() == fleet);
        for (subject, case) in of_fleet {
            if case.has_lost_its_trial(world) {
                // What was left out and has changed is served again, so the answers say nothing of the others.
                changes.extend(case.restored(fleet, world));
                over.push(subject.clone());
                continue;
            }
            if !case.is_published(answers) {
                continue;
            }
            let mut about = rejected.iter().filter(|it| it.is_about(subject, world));
            match case.answer(answers, about.any(|it| case.is_newer(it, fleet, world))) {
                None => continue,
                Some(true) => case.search.accepted(),
                Some(false) => case.search.rejected(),
            }
            case.widen();
            case.decides(answers);
            changes.extend(case.changes(fleet, world));
            if case.search.is_over() {
                over.push(subject.clone());
            }
        }
        for subject in over {
            let Some(case) = self.cases.remove(&subject) else { continue };
            for namespace in case.guilty() {
                self.delay.found(namespace, answers.now);
            }
            if case.search.is_over() && case.search.trial().is_none() {
                self.given_up.insert(subject, case.contents());
            }
        }
        changes
    }

    /// Whether all of it was tried already.
    fn is_hopeless(&self, subject: &Subject, suspects: &[Suspect]) -> bool {
        let contents = suspects.iter().map(Suspect::content).collect();
        self.given_up.get(subject).is_some_and(|tried| *tried == contents)
    }
}

impl Subject {
    fn fleet(&self) -> &FleetName {
        match self {
            Self::Tables(fleet) | Self::Variant(fleet, ..) => fleet,
        }
    }
}

impl Rejected<'_> {
    fn subject(&self, fleet: &FleetName, world: &World) -> Subject {
        let is_table = self.published.is_some()
            || world.version(fleet, self.kind, self.name) == Some(self.version);
        match is_table && self.kind == ResourceType::Route {
            true => Subject::Tables(fleet.clone()),
            false => Subject::Variant(fleet.clone(), self.kind, self.name.clone()),
        }
    }

    fn is_about(&self, subject: &Subject, world: &World) -> bool {
        let fleet = subject.fleet();
        self.subject(fleet, world) == *subject
            && (matches!(subject, Subject::Tables(_))
                // No object is to blame for a version that is not the current one.
                || !self.culprits(fleet, world, None).is_empty())
    }

    fn culprits(&self, fleet: &FleetName, world: &World, good: Option<&Resource>) -> Vec<Culprit> {
        world.culprits(fleet, &self.resource(good))
    }

    fn resource<'a>(&'a self, good: Option<&'a Resource>) -> RejectedResource<'a> {
        let good = good.map(|good| &good.body);
        let Self { kind, name, version, words, ref published } = *self;
        let body = published.as_ref().map(|(_, rejected)| &rejected.body);
        RejectedResource { kind, name, version, body, words, good }
    }
}

/// Adds what one table says to what others say.
fn add(culprits: &mut Vec<Culprit>, culprit: Culprit) {
    match culprits.iter_mut().find(|known| known.object == culprit.object) {
        Some(known) => {
            known.is_meant |= culprit.is_meant;
            known.matches.extend(culprit.matches);
        }
        None => culprits.push(culprit),
    }
}

/// Those of which not all is left out already.
fn suspects(culprits: Vec<Culprit>, fleet: &FleetName, world: &World) -> Vec<Suspect> {
    let left_out: BTreeMap<_, _> = world.left_out(fleet).collect();
    let suspect = |culprit: Culprit| {
        let before = left_out.get(&culprit.object).copied();
        let revision = world.revision(&culprit.object)?;
        let is_out = before.is_some_and(|before| before.is_dropped && !before.has_outlines);
        let before = before.cloned();
        (!is_out).then_some(Suspect { culprit, revision, before })
    };
    culprits.into_iter().filter_map(suspect).collect()
}

/// Leaves all suspects out of the namespaces that have too many objects left out already, guilty or not.
fn offenders(suspects: &[Suspect], words: &str, fleet: &FleetName, world: &World) -> Vec<Change> {
    let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    for (object, _) in world.left_out(fleet) {
        *namespaces.entry(&object.name.namespace).or_default() += 1;
    }
    let is_full = |suspect: &&Suspect| {
        let left_out = namespaces.get(&*suspect.culprit.object.name.namespace);
        left_out.is_some_and(|left_out| *left_out >= OF_NAMESPACE)
    };
    let trial = Trial { out: BTreeSet::new(), extent: Extent::Actions, is_final: true };
    let words = cut(words);
    let left_out = |suspect: &Suspect| {
        let left_out = LeftOut { rules: Vec::new(), ..suspect.left_out(&trial, &words) };
        (suspect.culprit.object.clone(), Some(left_out))
    };
    suspects.iter().filter(is_full).map(left_out).collect()
}

#[cfg(test)]
mod tests;

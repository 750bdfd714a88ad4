//! What more proxies reject than accept is published again without the part of the object that caused it. Decides what is
//! left out of which object; the world does it.
//!
//! Whom a rejection means is a guess until proxies accept what is left, so each is a [`Search`].

mod search;

use crate::proxies::{FleetProxies, Rejection};
use crate::publish::Stands;
use heliograph_snapshot::{FleetName, Resource, ResourceType, Version};
use heliograph_translator_core::left_out::object_name;
use heliograph_translator_core::objects::ObjectKey;
use heliograph_translator_core::{Culprit, World};
use heliograph_views::{LeftOut, LeftOutRule};
use search::{Extent, Search, Trial};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The searches of all fleets.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    cases: BTreeMap<Subject, Case>,
    /// What was rejected whatever was left out, and which content of which objects there was then.
    given_up: BTreeMap<Subject, Vec<(ObjectKey, String)>>,
    /// Since when more proxies reject something than accept it.
    standing: BTreeMap<(FleetName, Version), Instant>,
}

/// What is known of a fleet when its proxies have answered.
pub(crate) struct Answered<'a> {
    pub(crate) fleet: &'a FleetName,
    pub(crate) said: &'a FleetProxies,
    /// Where the fleet stands in the store, if it holds all that was translated.
    pub(crate) stands: Option<Stands>,
    /// How often the world has been settled.
    pub(crate) settled: u64,
    pub(crate) now: Instant,
}

/// Something else is left out of an object than before. `None`: nothing.
pub(crate) type Change = (ObjectKey, Option<LeftOut>);

/// What a search is about. The tables of a fleet are one thing: they share routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Tables(FleetName),
    /// What policies make of a resource for some clients.
    Variant(FleetName, ResourceType, Arc<str>),
}

#[derive(Debug)]
struct Case {
    suspects: Vec<Suspect>,
    search: Search,
    words: Arc<str>,
    /// How often the world had been settled when this was last decided: what follows from it is not published before.
    decided: u64,
    /// Since when what was decided is published.
    published: Option<Instant>,
}

#[derive(Debug)]
struct Suspect {
    culprit: Culprit,
    revision: String,
    /// What was left out of it before.
    before: Option<LeftOut>,
}

/// A resource of a fleet that more proxies reject than accept.
struct Rejected<'a> {
    kind: ResourceType,
    name: &'a Arc<str>,
    version: Version,
    words: &'a str,
}

/// How many objects may be left out of a fleet. Beyond, tables stay as they were accepted last.
const OBJECTS: usize = 256;

/// How much of a proxy's words is kept.
const WORDS: usize = 1024;

/// How long more proxies must reject something than accept it, where those are not most of the connected ones: the others may
/// not have answered yet.
const STANDING: Duration = Duration::from_secs(4);

/// How long proxies have to reject what is published: one that rejects something else, too, acknowledges nothing.
const ANSWERING: Duration = Duration::from_secs(8);

impl Isolation {
    /// Decides anew for a fleet. `good` says what was last accepted of a resource.
    pub(crate) fn decide(
        &mut self,
        answered: &Answered<'_>,
        world: &World,
        good: impl Fn(ResourceType, &Arc<str>) -> Option<Arc<Resource>>,
    ) -> Vec<Change> {
        let rejected = self.rejected(answered);
        let mut changes = self.go_on(answered, &rejected, world);
        let mut culprits: BTreeMap<Subject, (Vec<Culprit>, &str)> = BTreeMap::new();
        for it in &rejected {
            let subject = it.subject(answered.fleet, world);
            if self.cases.contains_key(&subject) {
                continue;
            }
            let good = good(it.kind, it.name);
            let found = it.culprits(answered.fleet, world, good.as_deref());
            let (all, _) = culprits.entry(subject).or_insert((Vec::new(), it.words));
            found.into_iter().for_each(|culprit| add(all, culprit));
        }
        for (subject, (mut culprits, words)) in culprits {
            culprits.sort_by_key(|culprit| !culprit.is_meant);
            let suspects = suspects(culprits, answered.fleet, world);
            if suspects.is_empty() || self.is_hopeless(&subject, &suspects) {
                continue;
            }
            self.given_up.remove(&subject);
            let case = Case::new(suspects, words, answered.settled);
            changes.extend(case.changes(answered.fleet, world));
            self.cases.insert(subject, case);
        }
        changes
    }

    /// When to decide again although proxies say nothing new, if that may change something.
    pub(crate) fn due(&self) -> Option<Instant> {
        let standing = self.standing.values().map(|since| *since + STANDING);
        let published = self.cases.values().filter_map(|case| case.published);
        standing.chain(published.map(|since| since + ANSWERING)).min()
    }

    /// Whether there is something to decide for a fleet.
    pub(crate) fn concerns(&self, fleet: &FleetName, said: &FleetProxies) -> bool {
        !said.rejections.is_empty()
            || self.cases.keys().any(|subject| subject.fleet() == fleet)
            || self.standing.keys().any(|(of, _)| of == fleet)
    }

    /// Forgets the fleets that are no more.
    pub(crate) fn retired(&mut self, fleets: &[FleetName]) {
        self.cases.retain(|subject, _| !fleets.contains(subject.fleet()));
        self.given_up.retain(|subject, _| !fleets.contains(subject.fleet()));
        self.standing.retain(|(fleet, _), _| !fleets.contains(fleet));
    }

    /// What more proxies reject than accept. Those are most of all that are connected, or it has been so for a while.
    fn rejected<'a>(&mut self, answered: &Answered<'a>) -> Vec<Rejected<'a>> {
        let Answered { fleet, said, now, .. } = answered;
        let outvoted = said.rejections.iter().filter(|(_, it)| it.rejected > it.accepted);
        let outvoted: Vec<_> = outvoted.collect();
        let is_outvoted = |version: &Version| outvoted.iter().any(|((.., it), _)| it == version);
        self.standing.retain(|(of, version), _| of != *fleet || is_outvoted(version));
        let mut rejected = Vec::new();
        for ((kind, name, version), Rejection { words, rejected: count, .. }) in outvoted {
            let is_most = count.saturating_mul(2) > said.connected;
            let key = ((*fleet).clone(), *version);
            if !is_most && *now < *self.standing.entry(key.clone()).or_insert(*now) + STANDING {
                continue;
            }
            self.standing.remove(&key);
            rejected.push(Rejected { kind: *kind, name, version: *version, words });
        }
        rejected
    }

    fn go_on(
        &mut self,
        answered: &Answered<'_>,
        rejected: &[Rejected<'_>],
        world: &World,
    ) -> Vec<Change> {
        let (mut changes, mut over) = (Vec::new(), Vec::new());
        let fleet = answered.fleet;
        let of_fleet = self.cases.iter_mut().filter(|(subject, _)| subject.fleet() == fleet);
        for (subject, case) in of_fleet {
            if case.suspects.iter().any(|suspect| suspect.has_changed(world)) {
                // What has changed is tried again by itself, and the others are no more suspect than before.
                changes.extend(case.restored(fleet, world));
                over.push(subject.clone());
                continue;
            }
            let mut about = rejected.iter().filter(|it| it.is_about(subject, world));
            match case.answer(answered, about.next().is_some()) {
                None => continue,
                Some(true) => case.search.accepted(),
                Some(false) => case.search.rejected(),
            }
            (case.decided, case.published) = (answered.settled, None);
            changes.extend(case.changes(fleet, world));
            if case.search.is_over() {
                over.push(subject.clone());
            }
        }
        for subject in over {
            let Some(case) = self.cases.remove(&subject) else { continue };
            if case.search.is_over() && case.search.trial().is_none() {
                self.given_up.insert(subject, case.contents());
            }
        }
        changes
    }

    /// Whether all of it was tried already.
    fn is_hopeless(&self, subject: &Subject, suspects: &[Suspect]) -> bool {
        let tried = self.given_up.get(subject);
        let is_tried = |suspect: &Suspect, (object, content): &(ObjectKey, String)| {
            suspect.culprit.object == *object && suspect.revision == *content
        };
        tried.is_some_and(|tried| {
            tried.len() == suspects.len()
                && suspects.iter().zip(tried).all(|(suspect, tried)| is_tried(suspect, tried))
        })
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
        let is_table = self.kind == ResourceType::Route
            && world.version(fleet, self.kind, self.name) == Some(self.version);
        match is_table {
            true => Subject::Tables(fleet.clone()),
            false => Subject::Variant(fleet.clone(), self.kind, self.name.clone()),
        }
    }

    fn is_about(&self, subject: &Subject, world: &World) -> bool {
        let fleet = subject.fleet();
        self.subject(fleet, world) == *subject
            && (matches!(subject, Subject::Tables(_))
                // A version that nothing is made of any more is nobody's.
                || !self.culprits(fleet, world, None).is_empty())
    }

    fn culprits(&self, fleet: &FleetName, world: &World, good: Option<&Resource>) -> Vec<Culprit> {
        let good = good.map(|good| &good.body);
        world.culprits(fleet, self.kind, self.name, self.version, self.words, good)
    }
}

impl Case {
    fn new(suspects: Vec<Suspect>, words: &str, settled: u64) -> Self {
        let meant = suspects.iter().take_while(|it| it.culprit.is_meant).count();
        let has_parts = suspects[..meant].iter().all(|it| !it.culprit.places.is_empty());
        let search = Search::new(suspects.len(), meant, has_parts);
        let words = words[..words.floor_char_boundary(WORDS)].into();
        Self { suspects, search, words, decided: settled, published: None }
    }

    /// Whether proxies accept what is published now; `None` while they have not answered.
    fn answer(&mut self, answered: &Answered<'_>, is_rejected: bool) -> Option<bool> {
        if answered.settled <= self.decided {
            return None;
        }
        let stands = answered.stands?;
        if is_rejected {
            return Some(false);
        }
        let since = *self.published.get_or_insert(answered.now);
        let said = answered.said;
        let is_silent = said.connected > 0 && answered.now >= since + ANSWERING;
        (said.have(stands.head) > 0 || is_silent).then_some(true)
    }

    /// What is to be left out of the suspects now, where it is something else.
    fn changes(&self, fleet: &FleetName, world: &World) -> Vec<Change> {
        let trial = self.search.trial();
        let wanted = self.suspects.iter().enumerate().map(|(index, suspect)| {
            let trial = trial.as_ref().filter(|trial| trial.out.contains(&index));
            let left_out = match trial {
                Some(trial) => Some(suspect.left_out(trial, &self.words)),
                None => suspect.before.clone(),
            };
            (suspect.culprit.object.clone(), left_out)
        });
        different(wanted, fleet, world)
    }

    /// All as it was before.
    fn restored(&self, fleet: &FleetName, world: &World) -> Vec<Change> {
        let before = self.suspects.iter().map(|it| (it.culprit.object.clone(), it.before.clone()));
        different(before, fleet, world)
    }

    fn contents(&self) -> Vec<(ObjectKey, String)> {
        let content = |it: &Suspect| (it.culprit.object.clone(), it.revision.clone());
        self.suspects.iter().map(content).collect()
    }
}

impl Suspect {
    fn has_changed(&self, world: &World) -> bool {
        world.revision(&self.culprit.object).as_ref() != Some(&self.revision)
    }

    fn left_out(&self, trial: &Trial, words: &str) -> LeftOut {
        let Culprit { object, places, .. } = &self.culprit;
        let mut rules: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for place in places {
            let dropped = rules.entry(place.rule).or_default();
            if place.is_match || trial.extent == Extent::Matches {
                dropped.push(place.index);
            }
        }
        // What was left out for another reason stays so. Where that is all but the matches, they are what is left.
        let is_bare = self.before.as_ref().is_some_and(|before| before.rules.is_empty());
        let is_dropped = trial.extent == Extent::Whole || is_bare;
        if is_dropped {
            rules.clear();
        } else if !rules.is_empty() {
            for rule in self.before.iter().flat_map(|before| &before.rules) {
                rules.entry(rule.index).or_default().extend(&rule.dropped);
            }
        }
        let rule = |(index, dropped)| LeftOutRule { index, dropped };
        LeftOut {
            object: object_name(object),
            revision: self.revision.clone(),
            rules: rules.into_iter().map(rule).collect(),
            is_dropped,
            is_suspect: !trial.is_final && trial.out.len() > 1,
            words: words.to_owned(),
        }
    }
}

/// Adds what one table says to what others say.
fn add(culprits: &mut Vec<Culprit>, culprit: Culprit) {
    match culprits.iter_mut().find(|known| known.object == culprit.object) {
        Some(known) => {
            known.is_meant |= culprit.is_meant;
            known.places.extend(culprit.places);
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
        let is_out = before.is_some_and(|before| before.is_dropped);
        let before = before.cloned();
        (!is_out).then_some(Suspect { culprit, revision, before })
    };
    match left_out.len() < OBJECTS {
        true => culprits.into_iter().filter_map(suspect).collect(),
        false => Vec::new(),
    }
}

fn different(
    wanted: impl Iterator<Item = Change>,
    fleet: &FleetName,
    world: &World,
) -> Vec<Change> {
    let now: BTreeMap<_, _> = world.left_out(fleet).collect();
    wanted.filter(|(object, wanted)| now.get(object).copied() != wanted.as_ref()).collect()
}

#[cfg(test)]
mod tests;

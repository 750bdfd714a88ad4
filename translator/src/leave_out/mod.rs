//! What more proxies reject than accept is published again without the part of the object that caused it. Decides what is
//! left out of which object; the world does it.
//!
//! Whom a rejection means is a guess until proxies accept what is left, so each is a [`Search`].

mod search;

use crate::proxies::{FleetProxies, Rejection};
use crate::publish::Stands;
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use heliograph_translator_core::left_out::object_name;
use heliograph_translator_core::objects::ObjectKey;
use heliograph_translator_core::{Culprit, World};
use heliograph_views::{LeftOut, LeftOutRule};
use search::{Extent, Search, Trial};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The searches of all fleets.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    searches: BTreeMap<Subject, Case>,
    /// What was rejected whatever was left out, and which content of which objects there was then.
    given_up: BTreeMap<Subject, Vec<(ObjectKey, String)>>,
}

/// What is known of a fleet when its proxies have answered.
pub(crate) struct Answered<'a> {
    pub(crate) fleet: &'a FleetName,
    pub(crate) said: &'a FleetProxies,
    /// Where the fleet stands in the store, if it holds all that was translated.
    pub(crate) stands: Option<Stands>,
    /// How often the world has been settled.
    pub(crate) settled: u64,
}

/// Something else is left out of an object than before. `None`: nothing.
pub(crate) type Change = (ObjectKey, Option<LeftOut>);

type Subject = (FleetName, ResourceType, Arc<str>);

#[derive(Debug)]
struct Case {
    suspects: Vec<Suspect>,
    search: Search,
    words: Arc<str>,
    /// How often the world had been settled when this was last decided: what follows from it is not published before.
    decided: u64,
}

#[derive(Debug)]
struct Suspect {
    culprit: Culprit,
    revision: String,
    /// What was left out of it before.
    before: Option<LeftOut>,
}

/// How many objects may be left out of a fleet. Beyond, tables stay as they were accepted last.
const OBJECTS: usize = 256;

/// How much of a proxy's words is kept.
const WORDS: usize = 1024;

impl Isolation {
    /// Decides anew for a fleet. `good` says what was last accepted of a resource.
    pub(crate) fn decide(
        &mut self,
        answered: &Answered<'_>,
        world: &World,
        good: impl Fn(ResourceType, &Arc<str>) -> Option<Arc<Resource>>,
    ) -> Vec<Change> {
        let mut changes = self.go_on(answered, world);
        for ((kind, name, version), rejection) in &answered.said.rejections {
            let subject = (answered.fleet.clone(), *kind, name.clone());
            if !is_rejected(rejection) || self.searches.contains_key(&subject) {
                continue;
            }
            let good = good(*kind, name);
            let good = good.as_ref().map(|good| &good.body);
            let culprits =
                world.culprits(answered.fleet, *kind, name, *version, &rejection.words, good);
            let suspects = suspects(culprits, answered.fleet, world);
            if suspects.is_empty() || self.is_hopeless(&subject, &suspects) {
                continue;
            }
            self.given_up.remove(&subject);
            let case = Case::new(suspects, &rejection.words, answered.settled);
            changes.extend(case.changes(answered.fleet, world));
            self.searches.insert(subject, case);
        }
        changes
    }

    /// Whether there is something to decide for a fleet.
    pub(crate) fn concerns(&self, fleet: &FleetName, said: &FleetProxies) -> bool {
        !said.rejections.is_empty() || self.searches.keys().any(|(of, ..)| of == fleet)
    }

    /// Forgets the fleets that are no more.
    pub(crate) fn retired(&mut self, fleets: &[FleetName]) {
        self.searches.retain(|(fleet, ..), _| !fleets.contains(fleet));
        self.given_up.retain(|(fleet, ..), _| !fleets.contains(fleet));
    }

    fn go_on(&mut self, answered: &Answered<'_>, world: &World) -> Vec<Change> {
        let (mut changes, mut over) = (Vec::new(), Vec::new());
        let fleet = answered.fleet;
        let of_fleet = self.searches.iter_mut().filter(|((of, ..), _)| of == fleet);
        for (subject, case) in of_fleet {
            let (_, kind, name) = subject;
            if case
                .suspects
                .iter()
                .any(|it| world.revision(&it.culprit.object).as_ref() != Some(&it.revision))
            {
                // What has changed is tried again by itself, and the others are no more suspect than before.
                changes.extend(case.restored(world, fleet));
                over.push(subject.clone());
                continue;
            }
            match case.answer(answered, world, *kind, name) {
                None => continue,
                Some(true) => case.search.accepted(),
                Some(false) => case.search.rejected(),
            }
            case.decided = answered.settled;
            changes.extend(case.changes(fleet, world));
            if case.search.is_over() {
                over.push(subject.clone());
            }
        }
        for subject in over {
            let Some(case) = self.searches.remove(&subject) else { continue };
            if case.search.trial().is_none() {
                self.given_up.insert(subject, case.contents());
            }
        }
        changes
    }

    /// Whether all of it was tried already.
    fn is_hopeless(&self, subject: &Subject, suspects: &[Suspect]) -> bool {
        let contents = suspects.iter().map(|it| (&it.culprit.object, &it.revision));
        let tried = self.given_up.get(subject);
        tried.is_some_and(|tried| {
            tried.iter().map(|(object, content)| (object, content)).eq(contents)
        })
    }
}

impl Case {
    fn new(suspects: Vec<Suspect>, words: &str, settled: u64) -> Self {
        let meant = suspects.iter().take_while(|it| it.culprit.is_meant).count();
        let has_parts = suspects[..meant].iter().all(|it| !it.culprit.places.is_empty());
        let search = Search::new(suspects.len(), meant, has_parts);
        let mut words = words.to_owned();
        words.truncate(words.floor_char_boundary(WORDS));
        Self { suspects, search, words: words.into(), decided: settled }
    }

    /// Whether proxies accept what is published now; `None` while they have not answered.
    fn answer(
        &self,
        answered: &Answered<'_>,
        world: &World,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<bool> {
        if answered.settled <= self.decided {
            return None;
        }
        let stands = answered.stands?;
        let rejections = &answered.said.rejections;
        let of_resource = rejections.iter().filter(|((of, its, _), _)| (*of, its) == (kind, name));
        let current = world.version(answered.fleet, kind, name);
        let is_current = |version| Some(version) == current;
        let mut now = of_resource.filter(|((_, _, version), rejection)| {
            is_rejected(rejection) && (is_current(*version) || self.is_of_policies())
        });
        if now.next().is_some() {
            return Some(false);
        }
        (answered.said.have(stands.head) > 0).then_some(true)
    }

    fn is_of_policies(&self) -> bool {
        self.suspects.iter().any(|it| !it.culprit.object.kind.is_route())
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
    fn restored(&self, world: &World, fleet: &FleetName) -> Vec<Change> {
        let before = self.suspects.iter().map(|it| (it.culprit.object.clone(), it.before.clone()));
        different(before, fleet, world)
    }

    fn contents(&self) -> Vec<(ObjectKey, String)> {
        let content = |it: &Suspect| (it.culprit.object.clone(), it.revision.clone());
        self.suspects.iter().map(content).collect()
    }
}

impl Suspect {
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
        LeftOut {
            object: object_name(object),
            revision: self.revision.clone(),
            rules: rules
                .into_iter()
                .map(|(index, dropped)| LeftOutRule { index, dropped })
                .collect(),
            is_dropped,
            is_suspect: !trial.is_final && trial.out.len() > 1,
            words: words.to_owned(),
        }
    }
}

/// Whether more proxies reject it than have it.
fn is_rejected(rejection: &Rejection) -> bool {
    rejection.rejected > rejection.accepted
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

//! One search for the cause of a rejection: the parts that each step leaves out, and the meaning of the proxies'
//! answers.

use super::search::{Extent, Search, Trial};
use super::{Change, FleetAnswers, Rejected, WORDS};
use heliograph_gateway::left_out::object_name;
use heliograph_gateway::objects::ObjectKey;
use heliograph_gateway::{Culprit, World};
use heliograph_snapshot::{FleetName, Head};
use heliograph_views::{LeftOut, LeftOutRule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Case {
    pub(super) suspects: Vec<Suspect>,
    pub(super) search: Search,
    /// The search is among the first suspects alone. The others are searched if it is in vain.
    is_narrow: bool,
    words: Arc<str>,
    /// How often the world had been settled when this was last decided: what follows from it is not published before.
    decided: u64,
    pub(super) decided_at: Instant,
    /// The change of the fleet that has what was decided, once there is one.
    revision: Option<u64>,
    /// When and at which head that was first seen in the store.
    pub(super) published: Option<(Instant, Head)>,
}

#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) culprit: Culprit,
    pub(super) revision: String,
    /// What was left out of it before.
    pub(super) before: Option<LeftOut>,
}

/// How long proxies have to reject what is published, at least: the first that acknowledge it do not speak for the others.
pub(super) const CONFIRMING: Duration = Duration::from_secs(4);

/// After this time a resource that no proxy rejects counts as accepted, acknowledged or not: a proxy that also rejects
/// something else acknowledges nothing.
const SILENCE: Duration = Duration::from_secs(10);

impl Case {
    /// The suspects that words mean come first, and of both parts those that have offended before. Those are tried alone, so
    /// that nothing of others is left out meanwhile.
    pub(super) fn new(
        suspects: Vec<Suspect>,
        has_offended: impl Fn(&Culprit) -> bool,
        words: &str,
        answers: &FleetAnswers<'_>,
    ) -> Self {
        let is_meant = suspects.first().is_some_and(|it| it.culprit.is_meant);
        let first = suspects.iter().take_while(|it| it.culprit.is_meant == is_meant).count();
        let alone = suspects.iter().take(first).take_while(|it| has_offended(&it.culprit)).count();
        let is_narrow = (1..first).contains(&alone);
        let search = search_among(if is_narrow { &suspects[..alone] } else { &suspects });
        let words = cut(words);
        let (decided, decided_at) = (answers.settled, answers.now);
        let (revision, published) = (None, None);
        Self { suspects, search, is_narrow, words, decided, decided_at, revision, published }
    }

    /// Searches among all suspects, if it was in vain to search among those that have offended before.
    pub(super) fn widen(&mut self) {
        if self.is_narrow && self.search.trial().is_none() {
            (self.search, self.is_narrow) = (search_among(&self.suspects), false);
        }
    }

    /// The namespaces of what was found to be the cause.
    pub(super) fn guilty(&self) -> impl Iterator<Item = &str> {
        let found = self.search.trial().filter(|trial| trial.is_final);
        let guilty = found.into_iter().flat_map(|trial| trial.out);
        guilty.filter_map(|index| Some(&*self.suspects.get(index)?.culprit.object.name.namespace))
    }

    /// Something else is to be left out from now on.
    pub(super) fn decides(&mut self, answers: &FleetAnswers<'_>) {
        (self.decided, self.decided_at) = (answers.settled, answers.now);
        (self.revision, self.published) = (None, None);
    }

    /// Whether something that is left out now has changed. Whatever else has, goes on to be suspect as it is.
    pub(super) fn has_lost_its_trial(&mut self, world: &World) -> bool {
        let trial = self.search.trial();
        for (index, suspect) in self.suspects.iter_mut().enumerate() {
            let Some(now) = world.revision(&suspect.culprit.object) else { continue };
            if now != suspect.revision {
                if trial.as_ref().is_some_and(|trial| trial.out.contains(&index)) {
                    return true;
                }
                (suspect.revision, suspect.before) = (now, None);
                suspect.culprit.matches.clear();
            }
        }
        false
    }

    /// Whether what was decided is in the store.
    pub(super) fn is_published(&mut self, answers: &FleetAnswers<'_>) -> bool {
        if answers.settled <= self.decided {
            return false;
        }
        let revision = *self.revision.get_or_insert(answers.revision);
        let stored_head =
            answers.stored_head.filter(|stored_head| stored_head.revision >= revision);
        if let Some(stored_head) = stored_head {
            self.published.get_or_insert((answers.now, stored_head.head));
        }
        self.published.is_some()
    }

    /// Whether what was rejected has what was decided.
    pub(super) fn is_newer(
        &self,
        rejected: &Rejected<'_>,
        fleet: &FleetName,
        world: &World,
    ) -> bool {
        let since = self.published.map(|(_, head)| head);
        let is_current =
            world.version(fleet, rejected.kind, rejected.name) == Some(rejected.version);
        is_current || rejected.published.as_ref().is_none_or(|(head, _)| Some(*head) >= since)
    }

    /// Whether proxies accept what is published now; `None` while they have not answered.
    pub(super) fn answer(&self, answers: &FleetAnswers<'_>, is_rejected: bool) -> Option<bool> {
        if is_rejected {
            return Some(false);
        }
        let (since, head) = self.published?;
        let (votes, age) = (&answers.feedback.votes, answers.now.duration_since(since));
        let is_acknowledged = age >= CONFIRMING && votes.confirmed >= Some(head);
        let is_silent = age >= SILENCE && votes.connected > 0;
        (is_acknowledged || is_silent).then_some(true)
    }

    /// The parts of suspects that are to be left out now, where they differ from what is left out.
    pub(super) fn changes(&self, fleet: &FleetName, world: &World) -> Vec<Change> {
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
    pub(super) fn restored(&self, fleet: &FleetName, world: &World) -> Vec<Change> {
        let before = self.suspects.iter().map(|it| (it.culprit.object.clone(), it.before.clone()));
        different(before, fleet, world)
    }

    pub(super) fn contents(&self) -> BTreeSet<(ObjectKey, String)> {
        self.suspects.iter().map(Suspect::content).collect()
    }
}

/// Those that words mean come first.
fn search_among(suspects: &[Suspect]) -> Search {
    let meant = suspects.iter().take_while(|it| it.culprit.is_meant).count();
    let has_parts = suspects[..meant].iter().all(|it| !it.culprit.matches.is_empty());
    Search::new(suspects.len(), meant, has_parts)
}

impl Suspect {
    pub(super) fn content(&self) -> (ObjectKey, String) {
        (self.culprit.object.clone(), self.revision.clone())
    }

    pub(super) fn left_out(&self, trial: &Trial, words: &str) -> LeftOut {
        let Culprit { object, matches, .. } = &self.culprit;
        let mut rules: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for found in matches {
            let dropped = rules.entry(found.rule).or_default();
            if found.is_match || trial.extent == Extent::Matches {
                dropped.push(found.index);
            }
        }
        // What was left out for another reason stays so. Where that is all but the matches, they are what is left; and where
        // only outlines of them are left, those.
        let before = self.before.as_ref().filter(|before| before.rules.is_empty());
        let is_whole = trial.extent == Extent::Whole || before.is_some_and(|it| it.is_dropped);
        let is_dropped = is_whole || trial.extent == Extent::Outlines || before.is_some();
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
            has_outlines: is_dropped && !is_whole,
            is_suspect: !trial.is_final,
            words: words.to_owned(),
        }
    }
}

pub(super) fn cut(words: &str) -> Arc<str> {
    words[..words.floor_char_boundary(WORDS)].into()
}

fn different(
    wanted: impl Iterator<Item = Change>,
    fleet: &FleetName,
    world: &World,
) -> Vec<Change> {
    let now: BTreeMap<_, _> = world.left_out(fleet).collect();
    wanted.filter(|(object, wanted)| now.get(object).copied() != wanted.as_ref()).collect()
}

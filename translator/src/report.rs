use crate::publish::News;
use heliograph_snapshot::{FleetName, Head};
use heliograph_translator_core::objects::ObjectKey;
use heliograph_translator_core::status::{Problem, Status};
use heliograph_translator_core::{Outcome, ir};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the translator last found, for all who want to read it. A copy costs pointers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is to be said of each object, as `status` of the object in Kubernetes would say it.
    pub statuses: BTreeMap<ObjectKey, Arc<Status>>,
    /// What is to run for each fleet.
    pub infra: BTreeMap<FleetName, Arc<ir::Infra>>,
    /// Where each fleet stands in the store.
    pub heads: BTreeMap<FleetName, Head>,
    /// All objects that there are have been translated: what is not here is not wanted.
    pub complete: bool,
}

impl Report {
    /// Takes over what was translated.
    pub(crate) fn note(&mut self, outcome: Outcome) {
        let Outcome { changes: _, retired: _, statuses, infra, work: _ } = outcome;
        self.complete = true;
        for (key, status) in statuses {
            match status {
                Some(status) => self.statuses.insert(key, Arc::new(status)),
                None => self.statuses.remove(&key),
            };
        }
        for (fleet, infra) in infra {
            match infra {
                Some(infra) => self.infra.insert(fleet, infra),
                None => self.infra.remove(&fleet),
            };
        }
    }

    /// Takes over what is in the store.
    pub(crate) fn note_news(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Stands { fleet, head, .. } => self.heads.insert(fleet, head),
                News::Retired { fleet, .. } => self.heads.remove(&fleet),
                News::Decided { .. } => None,
            };
        }
    }
}

/// A problem in one line: `HTTPRoute shop/cart, parent web: ResolvedRefs: BackendNotFound: ...`.
pub fn in_words(problem: &Problem) -> String {
    let Problem { object, part, condition, reason, message } = problem;
    let part = part.as_ref().map(|part| format!(", {part}")).unwrap_or_default();
    format!("{object}{part}: {condition}: {reason}: {message}")
}

/// `1 route`, `2 routes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

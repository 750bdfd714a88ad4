use super::contents::Count;
use super::holdings::Remark;
use super::trouble::{Reason, Trouble};
use crate::metrics::KubernetesMetrics;
use heliograph_gateway::objects::{Kind, ObjectKey};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something an operator should know of what the API serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiRemark {
    /// An object, or a kind.
    pub of: String,
    pub text: String,
}

/// All that is to be said of what the API serves. A copy costs a pointer.
#[derive(Clone, Debug)]
pub struct Board(Arc<Shared>);

/// How many objects a page shows; the metric counts them all.
const MOST_SHOWN: usize = 1000;

#[derive(Debug)]
struct Shared {
    metrics: KubernetesMetrics,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    unreadable: BTreeMap<ObjectKey, Remark>,
    /// What objects name and could not be fetched.
    unfetched: BTreeMap<ObjectKey, (Reason, String)>,
    /// How many these are.
    counts: BTreeMap<(Kind, Reason), usize>,
    troubles: BTreeMap<Kind, (Reason, String)>,
    /// Objects whose last change waits.
    waiting: BTreeSet<ObjectKey>,
    /// How many these are.
    waiting_of: BTreeMap<Kind, usize>,
    /// The protecting kinds that they wait for.
    stale: BTreeSet<Kind>,
}

impl fmt::Display for ApiRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.text)
    }
}

impl Board {
    pub(super) fn new(metrics: KubernetesMetrics) -> Self {
        for kind in Kind::ALL.iter().filter(|kind| kind.api_version().is_some()) {
            metrics.may_fail(*kind, Reason::ALL.map(Reason::as_str));
            metrics.waiting(*kind, 0);
        }
        for kind in Kind::ALL.iter().filter(|kind| kind.is_read_by_reference()) {
            metrics.fetched(*kind, 0, 0);
            metrics.unfetched(*kind, 0);
        }
        Self(Arc::new(Shared { metrics, said: Mutex::default() }))
    }

    pub fn remarks(&self) -> Vec<ApiRemark> {
        let said = self.said();
        let of_kinds = said.troubles.iter().map(|(kind, (_, text))| ApiRemark {
            of: kind.as_str().to_owned(),
            text: text.clone(),
        });
        let of_objects = said.unreadable.iter().take(MOST_SHOWN);
        let of_objects = of_objects
            .map(|(key, remark)| ApiRemark { of: key.to_string(), text: cannot_be_read(remark) });
        let unfetched = said.unfetched.iter().take(MOST_SHOWN);
        let unfetched =
            unfetched.map(|(key, (_, text))| ApiRemark { of: key.to_string(), text: text.clone() });
        let waits = format!(
            "its last change waits until all of {} is known, which may forbid it",
            names_of(&said.stale)
        );
        let waiting = said.waiting.iter().take(MOST_SHOWN);
        let waiting = waiting.map(|key| ApiRemark { of: key.to_string(), text: waits.clone() });
        of_kinds.chain(waiting).chain(unfetched).chain(of_objects).collect()
    }

    /// What there is to say of an object has changed.
    pub(super) fn note_object(&self, key: &ObjectKey, remark: Option<Remark>) {
        match remark {
            Some(remark) => {
                tracing::warn!("{key}: {}", cannot_be_read(&remark));
                self.said().unreadable.insert(key.clone(), remark);
            }
            None => {
                if self.said().unreadable.remove(key).is_some() {
                    tracing::info!("{key}: can be read again");
                }
            }
        }
    }

    /// An object is no more.
    pub(super) fn forget_object(&self, key: &ObjectKey) {
        self.said().unreadable.remove(key);
    }

    /// An object that others name could not be fetched, more than once. One line says so for all of its kind.
    pub(super) fn note_unfetched(&self, key: &ObjectKey, trouble: &Trouble) {
        let Trouble { reason, cause } = trouble;
        let text = match reason {
            Reason::Forbidden => format!(
                "it may not be fetched: allow this account to get objects of its kind; changes of what names it wait until \
                 then, and nothing else does ({cause})"
            ),
            _ => format!(
                "it cannot be fetched, and it is tried again; changes of what names it wait until then, and nothing else \
                 does ({cause})"
            ),
        };
        let mut said = self.said();
        let is_told = said.unfetched_of(key.kind, Some(*reason)) > 0;
        said.forget_unfetched(key);
        *said.counts.entry((key.kind, *reason)).or_default() += 1;
        said.unfetched.insert(key.clone(), (*reason, text.clone()));
        self.0.metrics.unfetched(key.kind, said.unfetched_of(key.kind, None));
        drop(said);
        if !is_told {
            tracing::error!("{key}: {text}");
        }
    }

    /// It was fetched, or need not be any more.
    pub(super) fn note_fetched(&self, key: &ObjectKey) {
        let mut said = self.said();
        if !said.forget_unfetched(key) {
            return;
        }
        let left = said.unfetched_of(key.kind, None);
        self.0.metrics.unfetched(key.kind, left);
        drop(said);
        if left == 0 {
            tracing::info!("no {} is waited for any more", key.kind.as_str());
        }
    }

    /// The protecting kinds of which not everything is known.
    pub(super) fn record_stale(&self, kinds: BTreeSet<Kind>) {
        self.said().stale = kinds;
    }

    /// Whether the last change of an object waits for them.
    pub(super) fn record_waiting(&self, key: ObjectKey, waits: bool) {
        let (kind, mut said) = (key.kind, self.said());
        let is_news = if waits { said.waiting.insert(key) } else { said.waiting.remove(&key) };
        let count = said.waiting_of.entry(kind).or_default();
        match (is_news, waits) {
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
            (false, _) => {}
        }
        self.0.metrics.waiting(kind, *count);
    }

    /// Changes have waited for long, or none waits any more.
    pub(super) fn log_waiting(&self, waits: bool) {
        let said = self.said();
        let (count, stale) = (said.waiting.len(), names_of(&said.stale));
        drop(said);
        match waits {
            true => tracing::error!(
                "the last change of {} waits until all of {stale} is known, and so does every new or changed route or \
                 listener; what is published stays in force, and endpoints, Secrets and deletions do not wait: /status \
                 has the cause, and what waits",
                crate::report::count(count, "object")
            ),
            false => tracing::info!("no change waits any more"),
        }
    }

    /// So many objects of a kind are named, and held or withheld.
    pub(super) fn count_fetched(&self, kind: Kind, count: Count) {
        self.0.metrics.fetched(kind, count.held, count.withheld);
    }

    /// A kind has been listed, with so many objects, of which so many cannot be read.
    pub(super) fn count(&self, kind: Kind, objects: usize, unreadable: usize) {
        self.0.metrics.objects(kind, objects, unreadable);
    }

    /// A kind cannot be listed or watched. It is told when that is new, and what is true of the whole API once.
    pub(super) fn note_trouble(&self, kind: Kind, plural: &str, trouble: &Trouble) {
        if trouble.reason == Reason::Absent && kind.is_optional() {
            tracing::debug!(kind = kind.as_str(), "the API does not serve the kind");
            // Whatever hindered it before is over: nothing of it is missing.
            if self.said().troubles.remove(&kind).is_some() {
                self.0.metrics.watched(kind, true);
            }
            return;
        }
        self.0.metrics.failed(kind, trouble.reason.as_str());
        self.0.metrics.watched(kind, false);
        let text = trouble.in_words(kind, plural);
        let mut said = self.said();
        let reason = trouble.reason;
        let is_known = match reason.is_of_all() {
            true => said.troubles.values().any(|(known, _)| *known == reason),
            false => said.troubles.get(&kind).is_some_and(|(known, _)| *known == reason),
        };
        said.troubles.insert(kind, (reason, text.clone()));
        drop(said);
        match reason {
            _ if is_known => {}
            Reason::Absent => tracing::warn!("{text}"),
            _ => tracing::error!("{text}"),
        }
    }

    /// The watch of a kind broke in a way that happens every day.
    pub(super) fn note_hiccup(&self, kind: Kind, trouble: &Trouble) {
        self.0.metrics.failed(kind, trouble.reason.as_str());
        tracing::debug!(kind = kind.as_str(), cause = trouble.cause, "the watch is begun again");
    }

    /// A kind is listed and watched.
    pub(super) fn note_watched(&self, kind: Kind) {
        self.0.metrics.watched(kind, true);
        let mut said = self.said();
        let Some((reason, _)) = said.troubles.remove(&kind) else { return };
        let is_over = !said.troubles.values().any(|(other, _)| *other == reason);
        drop(said);
        match reason {
            Reason::Unauthorised | Reason::Unavailable if is_over => {
                tracing::info!("the API answers again");
            }
            Reason::Absent | Reason::OtherVersion => {
                tracing::info!("the API serves {} now", kind.as_str());
            }
            Reason::Forbidden => tracing::info!("{} may be read now", kind.as_str()),
            Reason::Failed => tracing::info!("{} can be read again", kind.as_str()),
            _ => {}
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// Whether it was there.
    fn forget_unfetched(&mut self, key: &ObjectKey) -> bool {
        let Some((reason, _)) = self.unfetched.remove(key) else { return false };
        let count = self.counts.entry((key.kind, reason)).or_default();
        *count = count.saturating_sub(1);
        true
    }

    fn unfetched_of(&self, kind: Kind, reason: Option<Reason>) -> usize {
        let counts = self
            .counts
            .iter()
            .filter(|((of, why), _)| *of == kind && reason.is_none_or(|reason| reason == *why));
        counts.map(|(_, count)| count).sum()
    }
}

fn names_of(kinds: &BTreeSet<Kind>) -> String {
    let names: Vec<&str> = kinds.iter().copied().map(Kind::as_str).collect();
    names.join(" and ")
}

fn cannot_be_read(Remark { reason, is_kept }: &Remark) -> String {
    let what = match is_kept {
        true => "what was read of it before counts until it can",
        false => "counts as absent until it can",
    };
    format!("cannot be read, and {what}: {reason}")
}

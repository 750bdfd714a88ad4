use super::api_failure::{ApiFailure, FailureReason};
use super::contents::Count;
use super::object_cache::ReadFailure;
use crate::metrics::KubernetesMetrics;
use heliograph_gateway::objects::{Kind, ObjectKey};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Something an operator should know of what the API serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiRemark {
    /// An object, or a kind.
    pub of: String,
    pub text: String,
}

/// The health of all watches, and of the objects that they found. A copy costs a pointer.
#[derive(Clone, Debug)]
pub struct WatchHealth(Arc<Shared>);

/// How many objects a page shows; the metric counts them all.
const MOST_SHOWN: usize = 1000;

#[derive(Debug)]
struct Shared {
    metrics: KubernetesMetrics,
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    unreadable: BTreeMap<ObjectKey, ReadFailure>,
    /// What objects name and could not be fetched.
    unfetched: BTreeMap<ObjectKey, (FailureReason, String)>,
    /// How many these are.
    counts: BTreeMap<(Kind, FailureReason), usize>,
    failures: BTreeMap<Kind, (FailureReason, String)>,
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

impl WatchHealth {
    pub(super) fn new(metrics: KubernetesMetrics) -> Self {
        for kind in Kind::ALL.iter().filter(|kind| kind.api_version().is_some()) {
            metrics.may_fail(*kind, FailureReason::ALL.map(FailureReason::as_str));
            metrics.waiting(*kind, 0);
        }
        for kind in Kind::ALL.iter().filter(|kind| kind.is_read_by_reference()) {
            metrics.fetched(*kind, 0, 0);
            metrics.unfetched(*kind, 0);
        }
        Self(Arc::new(Shared { metrics, state: Mutex::default() }))
    }

    pub fn remarks(&self) -> Vec<ApiRemark> {
        let state = self.state();
        let of_kinds = state.failures.iter().map(|(kind, (_, text))| ApiRemark {
            of: kind.as_str().to_owned(),
            text: text.clone(),
        });
        let of_objects = state.unreadable.iter().take(MOST_SHOWN);
        let of_objects = of_objects
            .map(|(key, failure)| ApiRemark { of: key.to_string(), text: cannot_be_read(failure) });
        let unfetched = state.unfetched.iter().take(MOST_SHOWN);
        let unfetched =
            unfetched.map(|(key, (_, text))| ApiRemark { of: key.to_string(), text: text.clone() });
        let waits = format!(
            "its last change waits until every {} can be listed, because one may forbid it",
            names_of(&state.stale)
        );
        let waiting = state.waiting.iter().take(MOST_SHOWN);
        let waiting = waiting.map(|key| ApiRemark { of: key.to_string(), text: waits.clone() });
        of_kinds.chain(waiting).chain(unfetched).chain(of_objects).collect()
    }

    /// Records that an object cannot be read, or can be read again.
    pub(super) fn record_object(&self, key: &ObjectKey, failure: Option<ReadFailure>) {
        match failure {
            Some(failure) => {
                tracing::warn!("{key}: {}", cannot_be_read(&failure));
                self.state().unreadable.insert(key.clone(), failure);
            }
            None => {
                if self.state().unreadable.remove(key).is_some() {
                    tracing::info!("{key}: can be decoded again");
                }
            }
        }
    }

    /// An object is no more.
    pub(super) fn forget_object(&self, key: &ObjectKey) {
        self.state().unreadable.remove(key);
    }

    /// Records that an object that others name could not be fetched, more than once. One log line is for all of its kind.
    pub(super) fn record_fetch_failure(&self, key: &ObjectKey, failure: &ApiFailure) {
        let ApiFailure { reason, cause } = failure;
        let text = match reason {
            FailureReason::Forbidden => format!(
                "there is no permission to fetch it: grant this account get on its kind; until then, changes of objects that refer to it wait, and \
                 nothing else does ({cause})"
            ),
            _ => format!(
                "it cannot be fetched, and the translator retries; until then, changes of objects that refer to it wait, and nothing else does \
                 ({cause})"
            ),
        };
        let mut state = self.state();
        let is_logged = state.unfetched_of(key.kind, Some(*reason)) > 0;
        state.forget_unfetched(key);
        *state.counts.entry((key.kind, *reason)).or_default() += 1;
        state.unfetched.insert(key.clone(), (*reason, text.clone()));
        self.0.metrics.unfetched(key.kind, state.unfetched_of(key.kind, None));
        drop(state);
        if !is_logged {
            tracing::error!("{key}: {text}");
        }
    }

    /// Records that it was fetched, or need not be any more.
    pub(super) fn record_fetched(&self, key: &ObjectKey) {
        let mut state = self.state();
        if !state.forget_unfetched(key) {
            return;
        }
        let left = state.unfetched_of(key.kind, None);
        self.0.metrics.unfetched(key.kind, left);
        drop(state);
        if left == 0 {
            tracing::info!("every {} that objects refer to has been fetched", key.kind.as_str());
        }
    }

    /// The protecting kinds of which not everything is known.
    pub(super) fn record_stale(&self, kinds: BTreeSet<Kind>) {
        self.state().stale = kinds;
    }

    /// Whether the last change of an object waits for them.
    pub(super) fn record_waiting(&self, key: ObjectKey, waits: bool) {
        let (kind, mut state) = (key.kind, self.state());
        let is_news = if waits { state.waiting.insert(key) } else { state.waiting.remove(&key) };
        let count = state.waiting_of.entry(kind).or_default();
        match (is_news, waits) {
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
            (false, _) => {}
        }
        self.0.metrics.waiting(kind, *count);
    }

    /// Changes have waited for long, or none waits any more.
    pub(super) fn log_waiting(&self, waits: bool) {
        let state = self.state();
        let (count, stale) = (state.waiting.len(), names_of(&state.stale));
        drop(state);
        match waits {
            true => tracing::error!(
                "the last change of {} waits until every {stale} can be listed, and so does every new or changed route or listener; what is published \
                 stays in force, and endpoints, Secrets and deletions do not wait: /status has the cause, and what waits",
                crate::report::count(count, "object")
            ),
            false => tracing::info!("no change is waiting any more"),
        }
    }

    /// So many objects of a kind are named, and held or withheld.
    pub(super) fn count_fetched(&self, kind: Kind, count: Count) {
        self.0.metrics.fetched(kind, count.loaded, count.withheld);
    }

    /// A kind has been listed, with so many objects, of which so many cannot be read.
    pub(super) fn count(&self, kind: Kind, objects: usize, unreadable: usize) {
        self.0.metrics.objects(kind, objects, unreadable);
    }

    /// Records that a kind cannot be listed or watched. It is logged when that is new; what is true of the whole API is logged once.
    pub(super) fn record_failure(&self, kind: Kind, plural: &str, failure: &ApiFailure) {
        if failure.reason == FailureReason::Absent && kind.is_optional() {
            tracing::debug!(kind = kind.as_str(), "the API does not serve the kind");
            // Whatever hindered it before is over: nothing of it is missing.
            if self.state().failures.remove(&kind).is_some() {
                self.0.metrics.watched(kind, true);
            }
            return;
        }
        self.0.metrics.failed(kind, failure.reason.as_str());
        self.0.metrics.watched(kind, false);
        let text = failure.in_words(kind, plural);
        let mut state = self.state();
        let reason = failure.reason;
        let is_known = match reason.is_of_all() {
            true => state.failures.values().any(|(known, _)| *known == reason),
            false => state.failures.get(&kind).is_some_and(|(known, _)| *known == reason),
        };
        state.failures.insert(kind, (reason, text.clone()));
        drop(state);
        match reason {
            _ if is_known => {}
            FailureReason::Absent => tracing::warn!("{text}"),
            _ => tracing::error!("{text}"),
        }
    }

    /// Records that the watch of a kind broke in a way that happens every day.
    pub(super) fn record_interruption(&self, kind: Kind, failure: &ApiFailure) {
        self.0.metrics.failed(kind, failure.reason.as_str());
        tracing::debug!(kind = kind.as_str(), cause = failure.cause, "the watch is begun again");
    }

    /// Records that a kind is listed and watched.
    pub(super) fn record_watched(&self, kind: Kind) {
        self.0.metrics.watched(kind, true);
        let mut state = self.state();
        let Some((reason, _)) = state.failures.remove(&kind) else { return };
        let is_over = !state.failures.values().any(|(other, _)| *other == reason);
        drop(state);
        match reason {
            FailureReason::Unauthorised | FailureReason::Unavailable if is_over => {
                tracing::info!("the API server responds again");
            }
            FailureReason::Absent | FailureReason::OtherVersion => {
                tracing::info!("the API server serves {} now", kind.as_str());
            }
            FailureReason::Forbidden => {
                tracing::info!("there is permission to read {} now", kind.as_str())
            }
            FailureReason::Failed => tracing::info!("{} can be read again", kind.as_str()),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.0.state.lock()
    }
}

impl HealthState {
    /// Whether it was there.
    fn forget_unfetched(&mut self, key: &ObjectKey) -> bool {
        let Some((reason, _)) = self.unfetched.remove(key) else { return false };
        let count = self.counts.entry((key.kind, reason)).or_default();
        *count = count.saturating_sub(1);
        true
    }

    fn unfetched_of(&self, kind: Kind, reason: Option<FailureReason>) -> usize {
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

fn cannot_be_read(ReadFailure { reason, is_kept }: &ReadFailure) -> String {
    let what = match is_kept {
        true => "its previous version stays in force until it can",
        false => "counts as absent until it can",
    };
    format!("cannot be decoded, and {what}: {reason}")
}

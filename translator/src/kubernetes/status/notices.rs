//! Events for what a user must see. They are told once, when it is written to the status; more of them than anybody reads
//! are dropped and counted.

use super::metrics::StatusMetrics;
use super::plan::Notice;
use super::write;
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::objects::ObjectKey;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Tells users of what is wrong with their objects, beside the status that says the same.
pub(super) struct Notices {
    recorder: Recorder,
    metrics: StatusMetrics,
    /// How many may be under way.
    room: Arc<Semaphore>,
    allowance: Allowance,
}

/// So many at once, and one more every so often.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

const AT_ONCE: u32 = 25;
const ONE_MORE_EVERY: Duration = Duration::from_secs(1);

/// How many are sent at a time.
const UNDER_WAY: usize = 2;

/// How long the API server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the API allows for a note.
const NOTE: usize = 1024;

impl Notices {
    pub(super) fn new(client: Client, metrics: StatusMetrics) -> Self {
        let reporter = Reporter { controller: CONTROLLER_NAME.to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client, reporter),
            metrics,
            room: Arc::new(Semaphore::new(UNDER_WAY)),
            allowance: Allowance { left: AT_ONCE, since: Instant::now() },
        }
    }

    /// Nobody waits for this.
    pub(super) fn tell(&mut self, key: &ObjectKey, uid: &str, notices: Vec<Notice>, now: Instant) {
        for notice in notices {
            if !self.allowance.take(now) {
                self.metrics.dropped_notice();
                continue;
            }
            let (recorder, room) = (self.recorder.clone(), self.room.clone());
            let (event, about) = (event(notice), reference(key, uid));
            let (metrics, object) = (self.metrics.clone(), key.to_string());
            // At most as many as the allowance has, for as long as each may take.
            tokio::spawn(async move {
                let Ok(_turn) = room.acquire().await else { return };
                let told = timeout(PATIENCE, recorder.publish(&event, &about)).await;
                metrics.told_notice(matches!(told, Ok(Ok(()))));
                if let Ok(Err(error)) = told {
                    tracing::debug!(object, "an event was not taken: {error}");
                }
            });
        }
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.since).as_secs() / ONE_MORE_EVERY.as_secs();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(AT_ONCE);
            self.left = self.left.saturating_add(earned).min(AT_ONCE);
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

fn event(Notice { reason, mut note }: Notice) -> Event {
    if note.len() > NOTE {
        note.truncate(note.floor_char_boundary(NOTE - '…'.len_utf8()));
        note.push('…');
    }
    let action = "Translate".to_owned();
    let reason = reason.as_str().to_owned();
    Event { type_: EventType::Warning, reason, note: Some(note), action, secondary: None }
}

fn reference(key: &ObjectKey, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: write::resource(key.kind).map(|resource| resource.api_version),
        kind: Some(key.kind.as_str().to_owned()),
        name: Some(key.name.name.to_string()),
        namespace: Some(key.name.namespace.to_string()).filter(|it| !it.is_empty()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::status::reasons::EventReason;

    #[test]
    fn a_flood_is_cut_and_a_trickle_is_not() {
        let start = Instant::now();
        let mut allowance = Allowance { left: AT_ONCE, since: start };
        let told = (0..1_000).filter(|_| allowance.take(start)).count();
        assert_eq!(told, AT_ONCE as usize);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!((1..100).all(|second| allowance.take(later(second))));
        assert!(!allowance.take(later(99)));
    }

    #[test]
    fn a_note_fits() {
        let note = "ü".repeat(2_000);
        let Event { note, .. } = event(Notice { reason: EventReason::RejectedByProxies, note });
        let note = note.unwrap();
        assert!(note.len() <= NOTE && note.ends_with('…'), "{}", note.len());
    }
}

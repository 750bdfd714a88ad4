//! Kubernetes events for conditions that a user must see. Each is recorded once, when its condition is written to the
//! status; events beyond the rate limit are dropped and counted.

use super::metrics::StatusMetrics;
use super::plan::ObjectEvent;
use super::write;
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::objects::ObjectKey;
use heliograph_shared::token_bucket::TokenBucket;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Records events of what is wrong with objects, beside the status that says the same.
pub(super) struct StatusEvents {
    recorder: Recorder,
    metrics: StatusMetrics,
    /// How many may be sent at a time.
    concurrency: Arc<Semaphore>,
    rate_limit: TokenBucket<Instant>,
}

const BURST: f64 = 25.0;
const EVENTS_PER_SECOND: f64 = 1.0;

/// How many are sent at a time.
const CONCURRENCY: usize = 2;

/// The time limit of one event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest note that the API allows.
const LONGEST_NOTE: usize = 1024;

impl StatusEvents {
    pub(super) fn new(client: Client, metrics: StatusMetrics) -> Self {
        let reporter = Reporter { controller: CONTROLLER_NAME.to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client, reporter),
            metrics,
            concurrency: Arc::new(Semaphore::new(CONCURRENCY)),
            rate_limit: TokenBucket::new(EVENTS_PER_SECOND, BURST, Instant::now()),
        }
    }

    /// Sends them in the background; no task waits for this.
    pub(super) fn send(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        events: Vec<ObjectEvent>,
        now: Instant,
    ) {
        for event in events {
            if self.rate_limit.acquire(now).is_err() {
                self.metrics.event_dropped();
                continue;
            }
            let (recorder, concurrency) = (self.recorder.clone(), self.concurrency.clone());
            let (event, about) = (kubernetes_event(event), reference(key, uid));
            let (metrics, object) = (self.metrics.clone(), key.to_string());
            // At most as many as the rate limit allows, for as long as each may take.
            tokio::spawn(async move {
                let Ok(_turn) = concurrency.acquire().await else { return };
                let sent = timeout(EVENT_TIMEOUT, recorder.publish(&event, &about)).await;
                metrics.event_sent(matches!(sent, Ok(Ok(()))));
                if let Ok(Err(error)) = sent {
                    tracing::debug!(object, "an event was not taken: {error}");
                }
            });
        }
    }
}

fn kubernetes_event(ObjectEvent { reason, mut note }: ObjectEvent) -> Event {
    if note.len() > LONGEST_NOTE {
        note.truncate(note.floor_char_boundary(LONGEST_NOTE - '…'.len_utf8()));
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
        let mut rate_limit = TokenBucket::new(EVENTS_PER_SECOND, BURST, start);
        let sent = (0..1_000).filter(|_| rate_limit.acquire(start).is_ok()).count();
        assert_eq!(sent, BURST as usize);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!((1..100).all(|second| rate_limit.acquire(later(second)).is_ok()));
        assert!(rate_limit.acquire(later(99)).is_err());
    }

    #[test]
    fn a_note_fits() {
        let note = "ü".repeat(2_000);
        let Event { note, .. } =
            kubernetes_event(ObjectEvent { reason: EventReason::RejectedByProxies, note });
        let note = note.unwrap();
        assert!(note.len() <= LONGEST_NOTE && note.ends_with('…'), "{}", note.len());
    }
}

use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The time limit for the answer to the request of a watch; after it, the watch counts as failing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Since when a request has no answer. kube's watcher shows that it has one when something happens.
#[derive(Debug)]
pub(super) struct Unanswered(watch::Sender<Option<Instant>>);

impl Unanswered {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// For one request at a time.
    pub(super) fn client(&self, client: &Client) -> Client {
        let (client, since) = (client.clone(), self.0.clone());
        since.send_replace(None);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, since) = (client.clone(), since.clone());
            async move {
                since.send_replace(Some(Instant::now()));
                let answer: Result<Response<Body>, kube::Error> = client.send(request).await;
                since.send_replace(None);
                answer
            }
        });
        Client::new(service, namespace)
    }

    /// Waits until a request has had no answer for too long.
    pub(super) async fn for_long(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let due = changes.borrow_and_update().map(|since| since + ANSWER_TIMEOUT);
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // An answer that is there already counts.
                biased;
                // The sender is our own.
                _ = changes.changed() => {}
                () = is_due => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_noticed_and_one_with_an_answer_is_not() {
        let unanswered = Unanswered::new();
        let begin = Instant::now();
        unanswered.0.send_replace(Some(begin));
        unanswered.for_long().await;
        assert_eq!(begin.elapsed().as_secs(), ANSWER_TIMEOUT.as_secs());
        unanswered.0.send_replace(None);
        let waited = tokio::time::timeout(10 * ANSWER_TIMEOUT, unanswered.for_long()).await;
        assert!(waited.is_err());
    }
}

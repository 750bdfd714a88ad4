//! Requests that flow while something else happens.

use crate::harness::{Client, HttpRequest, HttpResponse, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;
use tokio::task::JoinSet;

const HOST: &str = "web.test";

/// Clients that send one request after the other, on connections that they keep.
pub(crate) struct Traffic {
    stop: watch::Sender<bool>,
    answered: Arc<AtomicUsize>,
    /// Those return what failed.
    clients: JoinSet<Vec<Result<HttpResponse, String>>>,
}

impl Traffic {
    /// To `web.test`.
    pub(crate) fn start(port: u16) -> Self {
        Self::to(HOST, port)
    }

    pub(crate) fn to(host: &'static str, port: u16) -> Self {
        let stop = watch::Sender::new(false);
        let answered = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for _ in 0..2 {
            let (stop, answered) = (stop.subscribe(), answered.clone());
            clients.spawn(async move {
                let mut failed = Vec::new();
                let mut client = Client::new(port);
                let request = HttpRequest { host, ..ask_for("/") };
                while !*stop.borrow() {
                    failed.extend(Some(client.ask(&request).await).filter(|it| !is_good(it, host)));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                failed
            });
        }
        Self { stop, answered, clients }
    }

    /// Waits until some more requests have been answered.
    pub(crate) async fn until_more(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        until("requests are answered", || async {
            self.answered.load(Ordering::Relaxed) >= before + 50
        })
        .await
        .unwrap();
    }

    /// Ends it, and returns how many requests there were. Fails if one of them did.
    pub(crate) async fn stop(self) -> usize {
        self.stop.send_replace(true);
        let failed = self.clients.join_all().await.concat();
        let answered = self.answered.load(Ordering::Relaxed);
        assert!(failed.is_empty(), "{} of {answered} failed: {failed:?}", failed.len());
        answered
    }
}

/// What a request to `web.test` is answered.
pub(crate) async fn answer(port: u16, path: &str) -> String {
    ask(port, path).await.unwrap().body
}

/// The same where it may be too early for an answer.
pub(crate) async fn ask(port: u16, path: &str) -> Result<HttpResponse, String> {
    ask_for(path).ask(port).await
}

const fn ask_for(path: &str) -> HttpRequest<'_> {
    HttpRequest { method: "GET", host: HOST, path, headers: &[] }
}

/// A backend has it, and may have been sent headers.
fn is_good(answer: &Result<HttpResponse, String>, host: &str) -> bool {
    let Ok(HttpResponse { status: 200, body, .. }) = answer else { return false };
    let rest = body.strip_prefix("blue ").or(body.strip_prefix("green "));
    let rest = rest.and_then(|rest| rest.strip_prefix(host)?.strip_prefix(" /"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" x-"))
}

use crate::bench::BenchError;
use crate::security::Security;
use heliograph_client::{Client, ClientError, Options, Protocol, State};
use heliograph_snapshot::ResourceType;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A simulated Envoy that remembers when it was told what.
#[derive(Debug)]
pub(super) struct Proxy {
    client: Client,
    heard: Arc<watch::Sender<Heard>>,
}

/// What a proxy was told since it was last asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// What to look for: of which type, and which text is in it.
    wanted: Option<(ResourceType, String)>,
    pub(super) found: Option<Instant>,
    /// Of all resources.
    pub(super) bytes: u64,
    /// Responses with route tables.
    pub(super) tables: u64,
}

const AGAIN: Duration = Duration::from_millis(200);

impl Proxy {
    /// Connects, and waits until it has what an Envoy needs before it takes traffic.
    pub(super) async fn connect(
        address: &str,
        security: &Security,
        fleet: &str,
        within: Duration,
    ) -> Result<Self, BenchError> {
        let server =
            security.server(address).map_err(|error| BenchError::Proxy(error.to_string()))?;
        let heard = Arc::new(watch::Sender::new(Heard::default()));
        let told = Mutex::new(heard.clone());
        let mut options = Options::new(address, Protocol::Delta, fleet);
        options.witness = Arc::new(move |received, resources| {
            let now = Instant::now();
            let told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.send_modify(|heard| {
                heard.tables += u64::from(received.kind == ResourceType::Route);
                heard.bytes +=
                    resources.iter().map(|(_, held)| held.body.len() as u64).sum::<u64>();
                let Some((kind, text)) = &heard.wanted else { return };
                let mut bodies = resources.iter().map(|(_, held)| &held.body);
                if heard.found.is_none()
                    && received.kind == *kind
                    && bodies.any(|body| contains(body, text.as_bytes()))
                {
                    heard.found = Some(now);
                }
            });
        });
        let mut proxy = Self { client: Client::connect_to(server, options), heard };
        let begun = Instant::now();
        loop {
            let left = within.saturating_sub(begun.elapsed());
            let known = |state: &State| state.ended.is_some() || has_routes(state);
            let state = proxy.client.until("route table", left, known).await.map_err(failed)?;
            match state.ended {
                None => return Ok(proxy),
                Some((code, why)) if left.is_zero() => {
                    return Err(BenchError::Proxy(format!("{code:?}: {why}")));
                }
                // It may not listen yet.
                Some(_) => tokio::time::sleep(AGAIN).await,
            }
            proxy.client.reconnect();
        }
    }

    /// From now on it is looked for a text in resources of a type.
    pub(super) fn look_for(&self, kind: ResourceType, text: String) {
        let wanted = Some((kind, text));
        self.heard.send_replace(Heard { wanted, ..Heard::default() });
    }

    pub(super) fn heard(&self) -> Heard {
        self.heard.borrow().clone()
    }

    /// What it heard, and when, once it has what was looked for.
    pub(super) async fn found(&self, within: Duration) -> Result<(Heard, Instant), BenchError> {
        let mut heard = self.heard.subscribe();
        let found = heard.wait_for(|heard| heard.found.is_some());
        if let Ok(Ok(heard)) = tokio::time::timeout(within, found).await
            && let Some(at) = heard.found
        {
            return Ok((heard.clone(), at));
        }
        let wanted = self.heard.borrow().wanted.clone();
        let ended = self.client.state().ended;
        Err(BenchError::Proxy(format!("no {wanted:?} within {within:?}; its stream: {ended:?}")))
    }
}

fn has_routes(state: &State) -> bool {
    state.is_warm() && state.held.contains_key(&ResourceType::Route)
}

fn failed(error: ClientError) -> BenchError {
    let mut text = error.to_string();
    // It lists all that the client has.
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
    }
    BenchError::Proxy(text)
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else { return true };
    let starts = body.iter().enumerate().filter(|(_, byte)| *byte == first);
    starts.into_iter().any(|(at, _)| body.get(at..).is_some_and(|rest| rest.starts_with(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_bytes() {
        assert!(contains(b"..app-1.example", b"app-1."));
        assert!(!contains(b"..app-10.example", b"app-1."));
        assert!(!contains(b"app", b"app-1."));
    }
}

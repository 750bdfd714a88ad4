use crate::bench::BenchError;
use crate::security::Security;
use heliograph_client::{Client, ClientError, Options, Protocol, State};
use heliograph_snapshot::ResourceType;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A simulated Envoy that remembers when it received what.
#[derive(Debug)]
pub(super) struct Proxy {
    client: Client,
    observed: Arc<watch::Sender<Observed>>,
}

/// The resources that a proxy received since the last call.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// What to look for: of which type, and which text is in it.
    wanted: Option<(ResourceType, String)>,
    pub(super) found: Option<Instant>,
    /// Of all resources.
    pub(super) bytes: u64,
    /// Responses with route tables.
    pub(super) tables: u64,
}

const RETRY_INTERVAL: Duration = Duration::from_millis(200);

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
        let observed = Arc::new(watch::Sender::new(Observed::default()));
        let sender = Mutex::new(observed.clone());
        let mut options = Options::new(address, Protocol::Delta, fleet);
        options.witness = Arc::new(move |received, resources| {
            let now = Instant::now();
            let sender = sender.lock();
            sender.send_modify(|observed| {
                observed.tables += u64::from(received.kind == ResourceType::Route);
                observed.bytes +=
                    resources.iter().map(|(_, held)| held.body.len() as u64).sum::<u64>();
                let Some((kind, text)) = &observed.wanted else { return };
                let mut bodies = resources.iter().map(|(_, held)| &held.body);
                if observed.found.is_none()
                    && received.kind == *kind
                    && bodies.any(|body| contains(body, text.as_bytes()))
                {
                    observed.found = Some(now);
                }
            });
        });
        let mut proxy = Self { client: Client::connect_to(server, options), observed };
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
                Some(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
            proxy.client.reconnect();
        }
    }

    /// From now on it is looked for a text in resources of a type.
    pub(super) fn look_for(&self, kind: ResourceType, text: String) {
        let wanted = Some((kind, text));
        self.observed.send_replace(Observed { wanted, ..Observed::default() });
    }

    pub(super) fn observed(&self) -> Observed {
        self.observed.borrow().clone()
    }

    /// Its observations and their time, once it has the wanted resource.
    pub(super) async fn found(&self, within: Duration) -> Result<(Observed, Instant), BenchError> {
        let mut observed = self.observed.subscribe();
        let found = observed.wait_for(|observed| observed.found.is_some());
        if let Ok(Ok(observed)) = tokio::time::timeout(within, found).await
            && let Some(at) = observed.found
        {
            return Ok((observed.clone(), at));
        }
        let wanted = self.observed.borrow().wanted.clone();
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

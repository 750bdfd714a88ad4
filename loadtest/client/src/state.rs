use crate::holdings::{Holdings, Taken, Verdict};
use crate::request::Ask;
use crate::resources::Held;
use crate::response::{Received, Response};
use crate::wire::Protocol;
use std::fmt;
use std::ops::Deref;

/// What one simulated Envoy holds and has heard.
#[derive(Clone, Debug)]
pub struct State {
    holdings: Holdings,
    /// Every response of the current stream, in order.
    pub received: Vec<Received>,
    /// Why the server ended the stream.
    pub ended: Option<(tonic::Code, String)>,
}

/// Hears of every response and of what was in it, in order and on all streams, before the client answers.
pub type Witness = dyn Fn(&Received, &[(String, Held)]) + Send + Sync;

/// A state without bodies.
pub(crate) struct Summary<'a>(pub(crate) &'a State);

impl State {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { holdings: Holdings::new(protocol), received: Vec::new(), ended: None }
    }

    /// Whether everything was answered that Envoy needs before it takes traffic.
    pub fn is_warm(&self) -> bool {
        self.holdings.is_warm()
    }

    pub(crate) fn open(&mut self) -> Vec<Ask> {
        self.received.clear();
        self.ended = None;
        self.holdings.open()
    }

    pub(crate) fn take(
        &mut self,
        response: Response,
        verdict: &Verdict,
        witness: &Witness,
    ) -> Vec<Ask> {
        let Taken { received, resources, asks, .. } = self.holdings.take(response, verdict);
        witness(&received, &resources);
        self.received.push(received);
        asks
    }
}

impl Deref for State {
    type Target = Holdings;

    fn deref(&self) -> &Holdings {
        &self.holdings
    }
}

impl fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { holdings, received, ended } = self.0;
        for (kind, resources) in &holdings.held {
            write!(f, "{kind}: {:?}, ", resources.keys().collect::<Vec<_>>())?;
        }
        write!(f, "after {} responses", received.len())?;
        match ended {
            Some((code, message)) => write!(f, ", and was told {code:?}: {message}"),
            None => Ok(()),
        }
    }
}

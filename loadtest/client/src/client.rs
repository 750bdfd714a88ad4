use crate::cache::Validator;
use crate::crowd::Backoff;
use crate::request::Request;
use crate::response::Response;
use crate::state::{State, StateSummary, Witness};
use crate::wire::{Ended, Pool, Protocol, Server, ServerError, Stream};
use heliograph_envoy::envoy::config::core::v3::Node;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::Code;

/// A simulated Envoy. It is disconnected when dropped.
#[derive(Debug)]
pub struct Client {
    options: Options,
    server: Server,
    state: Arc<watch::Sender<State>>,
    task: Option<AbortHandle>,
}

#[derive(Clone)]
pub struct Options {
    /// `http://HOST:PORT`.
    pub server: String,
    pub protocol: Protocol,
    pub node_id: String,
    /// `NAMESPACE/NAME` of its Gateway.
    pub fleet: String,
    /// Which resources it rejects, and with which words.
    pub rejects: Arc<Validator>,
    pub witness: Arc<Witness>,
    /// Called for each stream that the client opens by itself after it lost one, as an Envoy does. Without this
    /// callback, a client whose stream has ended has none until a caller reconnects it.
    pub reconnects: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("no {what} within {after:?}; the client has {state}")]
    Late { what: String, after: Duration, state: String },
}

impl Client {
    /// Begins to connect. The client's state has the result.
    pub fn connect(options: Options) -> Result<Self, ClientError> {
        let server = Server::new(&options.server, None, None)?;
        Ok(Self::connect_to(server, options))
    }

    /// The same at a server that asks for more than its address, as for a certificate or a token.
    pub fn connect_to(server: Server, options: Options) -> Self {
        let state = Arc::new(watch::Sender::new(State::new(options.protocol)));
        let mut client = Self { options, server, state, task: None };
        client.reconnect();
        client
    }

    /// Ends the stream and opens another at another server, with all that the client holds.
    pub fn move_to(&mut self, server: impl Into<String>) -> Result<(), ClientError> {
        self.options.server = server.into();
        self.server = Server::new(&self.options.server, None, None)?;
        self.reconnect();
        Ok(())
    }

    /// Ends the stream and opens another, with all that the client holds.
    pub fn reconnect(&mut self) {
        self.disconnect();
        let stream = run(self.server.clone(), self.options.clone(), self.state.clone());
        self.task = Some(tokio::spawn(stream).abort_handle());
    }

    pub fn disconnect(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The state as soon as it satisfies `condition`. `what` is the condition in words.
    pub async fn until(
        &self,
        what: &str,
        deadline: Duration,
        condition: impl FnMut(&State) -> bool,
    ) -> Result<State, ClientError> {
        let mut states = self.state.subscribe();
        // The sender is our own, so the wait ends with the condition or with the deadline.
        match tokio::time::timeout(deadline, states.wait_for(condition)).await {
            Ok(Ok(state)) => Ok(state.clone()),
            _ => Err(ClientError::Late {
                what: what.to_owned(),
                after: deadline,
                state: format!("{:?}", StateSummary(&self.state())),
            }),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl Options {
    /// A client that accepts everything.
    pub fn new(server: impl Into<String>, protocol: Protocol, fleet: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            protocol,
            node_id: "simulated".to_owned(),
            fleet: fleet.into(),
            rejects: Arc::new(|_, _, _| None),
            witness: Arc::new(|_, _| {}),
            reconnects: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {} ({:?})", self.node_id, self.fleet, self.server, self.protocol)
    }
}

async fn run(server: Server, options: Options, state: Arc<watch::Sender<State>>) {
    let mut failures = 0;
    loop {
        let end = converse(&server, &options, &state).await;
        let ended = match end {
            Ended::Status { code: Code::Ok, .. } => (Code::Ok, end.to_string()),
            Ended::Status { code, message } => (code, message),
            other => (Code::Unavailable, other.to_string()),
        };
        state.send_modify(|state| state.ended = Some(ended));
        let Some(reconnects) = &options.reconnects else { return };
        let was_served = !state.borrow().received.is_empty();
        failures = if was_served { 0 } else { failures + 1 };
        tokio::time::sleep(Backoff::default().wait(failures)).await;
        reconnects();
    }
}

/// One stream, until it ends.
async fn converse(server: &Server, options: &Options, state: &watch::Sender<State>) -> Ended {
    let mut asks = Vec::new();
    state.send_modify(|state| asks = state.open());
    let mut stream = match open(server, options.protocol).await {
        Ok(stream) => stream,
        Err(ended) => return ended,
    };
    let node = Node { cluster: options.fleet.clone(), ..Default::default() };
    let mut introduction = Some((&node, options.node_id.as_str()));
    let pool = Pool::default();
    loop {
        for ask in asks.drain(..) {
            stream.send(&Request::new(options.protocol, ask), introduction.take());
        }
        let message = match stream.next(&pool).await {
            Ok(message) => message,
            Err(ended) => return ended,
        };
        match Response::read(options.protocol, &message.nonce, message.content.bytes()) {
            Ok(None) => {}
            Ok(Some(response)) => {
                stream.nonces().set(response.kind, &message.nonce);
                state.send_modify(|state| {
                    asks = state.receive(response, &*options.rejects, &*options.witness);
                });
            }
            Err(error) => return Ended::Unreadable(error.to_string()),
        }
    }
}

async fn open(server: &Server, protocol: Protocol) -> Result<Stream, Ended> {
    let (opener, connection) = server.connect().await?;
    Stream::open(server, protocol, opener, Some(connection)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_reconnects_on_its_own_comes_back_and_others_do_not() {
        for reconnects in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = format!("http://{}", listener.local_addr().unwrap());
            let mut options = Options::new(server, Protocol::Delta, "default/web");
            let count = Arc::new(AtomicUsize::new(0));
            let counted = count.clone();
            let count_one = move || {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            options.reconnects = reconnects.then(|| Arc::new(count_one) as _);
            let client = Client::connect(options).unwrap();
            drop(listener.accept().await.unwrap());
            client.until("an end", DEADLINE, |state| state.ended.is_some()).await.unwrap();
            if reconnects {
                drop(tokio::time::timeout(DEADLINE, listener.accept()).await.unwrap());
            } else {
                let has_ended = || client.task.as_ref().is_some_and(AbortHandle::is_finished);
                let ending = async {
                    while !has_ended() {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::time::timeout(DEADLINE, ending).await.unwrap();
            }
            assert_eq!(count.load(Ordering::Relaxed), usize::from(reconnects));
        }
    }
}

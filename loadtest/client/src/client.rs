use crate::connection::{self, Protocol};
use crate::state::{Ask, State, Verdict, Witness};
use futures::StreamExt;
use heliograph_envoy::envoy::config::core::v3::Node;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// A simulated Envoy. It is disconnected when dropped.
#[derive(Debug)]
pub struct Client {
    options: Options,
    channel: Channel,
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
    pub rejects: Arc<Verdict>,
    pub witness: Arc<Witness>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{server} is no address to connect to: {source}")]
    Address { server: String, source: tonic::transport::Error },
    #[error("no {what} within {after:?}; the client has {state}")]
    Late { what: String, after: Duration, state: String },
}

/// Requests that the connection has not taken yet. A server that does not read stops the client here.
const WAITING_REQUESTS: usize = 64;

impl Client {
    /// Begins to connect. What comes of it is in the client's state.
    pub fn connect(options: Options) -> Result<Self, ClientError> {
        let channel = channel_to(&options.server)?;
        let state = Arc::new(watch::Sender::new(State::default()));
        let mut client = Self { options, channel, state, task: None };
        client.reconnect();
        Ok(client)
    }

    /// Ends the stream and opens another at another server, with all that the client holds.
    pub fn move_to(&mut self, server: impl Into<String>) -> Result<(), ClientError> {
        self.options.server = server.into();
        self.channel = channel_to(&self.options.server)?;
        self.reconnect();
        Ok(())
    }

    /// Ends the stream and opens another, with all that the client holds.
    pub fn reconnect(&mut self) {
        self.disconnect();
        let stream = run(self.channel.clone(), self.options.clone(), self.state.clone());
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
                state: format!("{:?}", Summary(&self.state())),
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
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {} ({:?})", self.node_id, self.fleet, self.server, self.protocol)
    }
}

fn channel_to(server: &str) -> Result<Channel, ClientError> {
    let endpoint = Endpoint::from_shared(server.to_owned())
        .map_err(|source| ClientError::Address { server: server.to_owned(), source })?;
    Ok(endpoint.tcp_nodelay(true).connect_lazy())
}

async fn run(channel: Channel, options: Options, state: Arc<watch::Sender<State>>) {
    let (requests, waiting) = mpsc::channel(WAITING_REQUESTS);
    let node =
        Node { id: options.node_id.clone(), cluster: options.fleet.clone(), ..Default::default() };
    let mut asks = Vec::new();
    state.send_modify(|state| asks = state.open());
    let opening = connection::open(channel, options.protocol, node, ReceiverStream::new(waiting));
    let converse = async {
        // Some servers answer nothing, not even with headers, before they are asked.
        say(&requests, &mut asks).await;
        let mut responses = opening.await?;
        loop {
            say(&requests, &mut asks).await;
            match responses.next().await {
                Some(response) => {
                    if let Some(response) = response? {
                        state.send_modify(|state| {
                            asks = state.take(response, &*options.rejects, &*options.witness);
                        });
                    }
                }
                None => return Err(tonic::Status::ok("the server ended the stream")),
            }
        }
    };
    let end: Result<(), tonic::Status> = converse.await;
    if let Err(status) = end {
        state.send_modify(|state| state.ended = Some((status.code(), status.message().to_owned())));
    }
}

async fn say(requests: &mpsc::Sender<Ask>, asks: &mut Vec<Ask>) {
    for ask in asks.drain(..) {
        // If the server ended the stream, the next response says why.
        let _ = requests.send(ask).await;
    }
}

/// What a state holds, without bodies.
struct Summary<'a>(&'a State);

impl fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { held, received, ended, .. } = self.0;
        for (kind, resources) in held {
            write!(f, "{kind}: {:?}, ", resources.keys().collect::<Vec<_>>())?;
        }
        write!(f, "after {} responses", received.len())?;
        match ended {
            Some((code, message)) => write!(f, ", and was told {code:?}: {message}"),
            None => Ok(()),
        }
    }
}

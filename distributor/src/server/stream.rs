use super::Shared;
use super::admission_control::StreamPermit;
use super::pending_changes::PendingChanges;
use super::request::{Incoming, NodeName, Requests, refusal};
use crate::acks::StreamCounter;
use crate::clients::ClientEntry;
use crate::feed::{Fleet, Unserved, ViewsReceiver};
use crate::identity::Caller;
use crate::load::{Cause, SubscriptionPermit};
use crate::metrics::GaugeCount;
use crate::view::{ClassHandle, ClientInfo, Views};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream;
use heliograph_distributor_protocol::{
    Event, Message, Output, Protocol, Rejection, Request, Session,
};
use heliograph_snapshot::FleetName;
use heliograph_store::Voter;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;

/// One ADS stream. It is the response's body: it does something when the connection can take more, so that a client
/// which does not read makes nothing pile up.
pub(crate) struct AdsStream {
    shared: Arc<Shared>,
    protocol: Protocol,
    caller: Caller,
    requests: Requests,
    /// What is decided and not yet taken by the connection: at most one reply of each type.
    frames: VecDeque<Frame<Bytes>>,
    state: State,
    stream_permit: Arc<StreamPermit>,
    _present: GaugeCount,
}

enum State {
    /// The first message has not come yet.
    New,
    Serving(Box<Serving>),
    Ended,
}

/// A stream whose client has named itself.
struct Serving {
    client: ClientEntry,
    fleet: Arc<Fleet>,
    views: ViewsReceiver,
    class_handle: ClassHandle,
    session: Session,
    /// The session's times count from here.
    start: Instant,
    counter: StreamCounter,
    pending: PendingChanges,
    /// Whether the store was asked since the stream began if this replica is behind.
    compared: bool,
    /// For what the session keeps of names that its fleet does not have.
    absent_permit: Option<SubscriptionPermit>,
}

/// A fleet that is in memory and not retired.
struct Published {
    fleet: Arc<Fleet>,
    views: ViewsReceiver,
    /// Taken out of `views`: deriving a client's view takes a while, and would block the next publication.
    newest: Arc<Views>,
}

/// Node ids go into logs, and they are a client's to choose.
const NODE_ID_LIMIT: usize = 256;
/// Longer than a namespace and a name of Kubernetes can be.
const FLEET_NAME_LIMIT: usize = 512;
/// How long a client that may be ahead of this replica keeps what it has while the store does not answer.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client with a large first request waits for a fleet that is not published. Others wait for as long as
/// `--unpublished-timeout` says.
const LARGE_REQUEST_WAIT: Duration = Duration::from_secs(5);
/// How much of a client's words goes into the log.
const LOGGED_DETAIL: usize = 1 << 10;
const REJECTED: &str =
    "a proxy rejected some of its configuration, and continues without that part";

impl AdsStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        protocol: Protocol,
        caller: Caller,
        requests: Requests,
        stream_permit: Arc<StreamPermit>,
    ) -> Self {
        let present = shared.metrics.stream(protocol);
        let (frames, state) = (VecDeque::new(), State::New);
        Self { shared, protocol, caller, requests, frames, state, stream_permit, _present: present }
    }

    pub(crate) fn into_body(self) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
        // Waited for once: to begin anew at each step would take a lock each time.
        let ended = self.stream_permit.ended();
        StreamBody::new(stream::unfold((self, ended), async |(mut stream, mut ended)| {
            let frame = stream.next(&mut ended).await?;
            Some((Ok(frame), (stream, ended)))
        }))
    }

    /// `ended` resolves when the stream must end.
    async fn next(&mut self, ended: &mut BoxFuture<'_, Status>) -> Option<Frame<Bytes>> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            if matches!(self.state, State::Ended) {
                return None;
            }
            let outcome = tokio::select! {
                biased;
                // What was half done is lost with the stream. A message that was begun is not: its frames are above.
                status = &mut *ended => Err(status),
                outcome = self.work() => outcome,
            };
            if let Err(status) = outcome {
                self.end(&status);
            }
        }
    }

    async fn work(&mut self) -> Result<(), Status> {
        match &mut self.state {
            // What opening needs is kept for as long as that takes, and not for as long as the stream does.
            State::New => Box::pin(self.open()).await,
            State::Serving(serving) => {
                let Self { shared, stream_permit, requests, frames, .. } = self;
                serving.step(shared, stream_permit, requests, frames).await
            }
            State::Ended => Ok(()),
        }
    }

    /// Waits for the first message, which says who the client is, and then until its fleet is there.
    async fn open(&mut self) -> Result<(), Status> {
        let Some(mut first) = self.first().await? else { return Err(Status::ok("")) };
        let node = NodeName::read(&first.node.take().ok_or_else(no_node)?)?;
        let name = fleet_of(&node)?;
        self.caller.admit(&name)?;
        let identity = self.caller.identity();
        let info = ClientInfo {
            node: node.id.chars().take(NODE_ID_LIMIT).collect(),
            claims: node.claims,
            namespace: identity.namespace().map(str::to_owned),
        };
        let address = self.stream_permit.address();
        let voter = self.caller.voter(address.ip(), &info.node);
        let (caller, clients) = (self.caller.clone(), &self.shared.clients);
        let client = clients.join(self.protocol, name.clone(), info, caller, address);
        let published = match self.shared.fleets.subscribe(&name).and_then(Published::now) {
            Some(published) => published,
            // Boxed, so that what is rare is not part of every stream.
            None => {
                let longest = self.stream_permit.unpublished_timeout();
                // A large request takes the room of others.
                let longest = first.room.as_ref().map_or(longest, |_| LARGE_REQUEST_WAIT);
                let node = &client.info().node;
                let waiting = timeout(longest, wait_for(&self.shared, &name, node, &first.request));
                let waited = Box::pin(self.requests.during(&first.request, waiting)).await?;
                waited.map_err(|_| self.stream_permit.unpublished())??
            }
        };
        let mut serving = Serving::new(published, client, self.protocol, voter);
        tracing::debug!(fleet = %name, node = serving.client.info().node, %identity, "stream opened");
        serving.compare(&self.shared, &first, &mut self.frames).await?;
        let setup = self.stream_permit.set_up().await;
        serving.on_request(&self.shared, &self.stream_permit, &first, &mut self.frames).await?;
        drop(setup);
        self.state = State::Serving(Box::new(serving));
        Ok(())
    }

    /// A stream without a request takes the place of another.
    async fn first(&mut self) -> Result<Option<Incoming>, Status> {
        let limit = self.stream_permit.first_request_timeout();
        if limit.is_zero() {
            return self.requests.next().await;
        }
        let silent = |_| Status::deadline_exceeded("no request came in time");
        timeout(limit, self.requests.next()).await.map_err(silent)?
    }

    fn end(&mut self, status: &Status) {
        if let State::Serving(serving) = &self.state {
            let (fleet, node) = (&serving.fleet.name, &serving.client.info().node);
            tracing::debug!(%fleet, node, code = ?status.code(), reason = status.message(), "stream ended");
        }
        if matches!(status.code(), tonic::Code::InvalidArgument | tonic::Code::ResourceExhausted) {
            self.shared.metrics.refused();
        }
        let mut trailers = HeaderMap::new();
        // Only a message with bytes that no header may have is refused, and it is percent-encoded.
        let _ = status.add_header(&mut trailers);
        self.frames.push_back(Frame::trailers(trailers));
        self.state = State::Ended;
    }
}

impl Published {
    /// `None` while the fleet is retired.
    fn now((fleet, mut views): (Arc<Fleet>, ViewsReceiver)) -> Option<Self> {
        let newest = views.borrow_and_update().clone()?;
        Some(Self { fleet, views, newest })
    }

    /// Waits for a fleet that is retired to come back.
    async fn wait((fleet, mut views): (Arc<Fleet>, ViewsReceiver)) -> Result<Self, Status> {
        let newest = views.wait_for(Option::is_some).await.map_err(|_| closing())?.clone();
        Ok(Self { fleet, newest: newest.ok_or_else(closing)?, views })
    }
}

impl Serving {
    fn new(published: Published, client: ClientEntry, protocol: Protocol, voter: Voter) -> Self {
        let Published { fleet, views, newest } = published;
        let mut class_handle = ClassHandle::default();
        let view = newest.of(client.info(), &mut class_handle);
        Self {
            client,
            views,
            class_handle,
            session: Session::new(protocol, view, fleet.transitions.clone()),
            start: Instant::now(),
            counter: StreamCounter::join(fleet.clone(), voter),
            pending: PendingChanges::default(),
            fleet,
            compared: false,
            absent_permit: None,
        }
    }

    /// Waits for one thing to happen, and queues what follows from it.
    async fn step(
        &mut self,
        shared: &Shared,
        stream_permit: &StreamPermit,
        requests: &mut Requests,
        frames: &mut VecDeque<Frame<Bytes>>,
    ) -> Result<(), Status> {
        let silence = self.session.wake_at();
        let deadline = self.start + silence.unwrap_or_default();
        let output = tokio::select! {
            // In this order: an answer that is there already is read before the clock takes it for silence.
            biased;
            request = requests.next() => match request? {
                Some(incoming) => {
                    self.on_request(shared, stream_permit, &incoming, frames).await?;
                    requests.charge(self.session.names(&incoming.request));
                    return Ok(());
                }
                None => return Err(Status::ok("")),
            },
            changed = self.views.changed() => {
                changed.map_err(|_| closing())?;
                self.update_view()
            },
            () = sleep_until(deadline), if silence.is_some() => self.session.on_clock(self.now()),
        };
        stream_permit.charge_absent_memory(
            &mut self.absent_permit,
            &self.session.absent_memory(),
            Cause::Replica,
        )?;
        self.send(shared, output, frames);
        Ok(())
    }

    async fn on_request(
        &mut self,
        shared: &Shared,
        stream_permit: &StreamPermit,
        incoming: &Incoming,
        frames: &mut VecDeque<Frame<Bytes>>,
    ) -> Result<(), Status> {
        self.compare(shared, incoming, frames).await?;
        let request = &incoming.request;
        let output = self.session.on_request(self.now(), request).map_err(refusal)?;
        stream_permit.charge_absent_memory(
            &mut self.absent_permit,
            &self.session.absent_memory(),
            Cause::Client,
        )?;
        self.on_event(shared, output.event.as_ref(), request.nonce());
        self.send(shared, output, frames);
        Ok(())
    }

    /// A client that may be ahead of this replica is not answered before the replica has caught up.
    async fn compare(
        &mut self,
        shared: &Shared,
        incoming: &Incoming,
        frames: &mut VecDeque<Frame<Bytes>>,
    ) -> Result<(), Status> {
        if !self.compared && self.session.holds_other(&incoming.request).map_err(refusal)? {
            self.compared = true;
            // Once in a stream's life, and not to be kept for all of it.
            Box::pin(self.wait_for_comparison(shared, incoming)).await?;
            let output = self.update_view();
            self.send(shared, output, frames);
        }
        Ok(())
    }

    /// Waits for a comparison: for a bounded time if there was one since this replica started. Without any it may be behind by
    /// hours, and the client has something to go on with.
    async fn wait_for_comparison(
        &self,
        shared: &Shared,
        incoming: &Incoming,
    ) -> Result<(), Status> {
        let (start, mut caught_up) = (Instant::now(), pin!(self.catch_up(shared)));
        while timeout(COMPARISON_TIMEOUT, &mut caught_up).await.is_err() {
            if !shared.comparisons.is_unconfirmed(&self.fleet) {
                shared.metrics.stale_read_fallback();
                break;
            }
            // A large request takes the room of others.
            if incoming.room.is_some() && start.elapsed() >= LARGE_REQUEST_WAIT {
                return Err(not_compared());
            }
        }
        Ok(())
    }

    /// Waits until this replica is not behind what the store has now.
    async fn catch_up(&self, shared: &Shared) {
        let head = shared.comparisons.head_of(&self.fleet).await;
        let arrived = |views: &Option<Arc<Views>>| {
            // Where the fleet is retired, nothing newer comes.
            views.as_ref().is_none_or(|views| views.head() >= head)
        };
        // The feed lives as long as the server, so this ends because it arrived.
        let _ = self.views.clone().wait_for(arrived).await;
    }

    /// Gives the newest view to the session.
    fn update_view(&mut self) -> Output {
        let views = self.views.borrow_and_update().clone();
        match views {
            Some(views) => {
                let view = views.of(self.client.info(), &mut self.class_handle);
                let output = self.session.on_view(self.now(), &view);
                // A change that sends the client nothing is acknowledged already.
                let acknowledged = self.session.acknowledged();
                if let Some(change) = views.change().filter(|it| acknowledged < Some(it.head)) {
                    self.pending.arrived(change);
                }
                output
            }
            // Retired: the client keeps what it has.
            None => Output::default(),
        }
    }

    fn on_event(&mut self, shared: &Shared, event: Option<&Event>, nonce: &str) {
        let Some(event) = event else { return };
        shared.metrics.event(event);
        if let Event::Rejected(rejection) = event {
            self.client.rejected(rejection);
            self.pending.rejected();
            self.log_rejection(rejection, nonce);
        }
    }

    fn send(&mut self, shared: &Shared, output: Output, frames: &mut VecDeque<Frame<Bytes>>) {
        for reply in &output.replies {
            let protocol = self.session.protocol();
            let message = self.fleet.encodings.message(protocol, reply, &shared.identifier);
            shared.metrics.response(reply.kind, message.size());
            frames.extend(framed(message).map(Frame::data));
        }
        self.counter.at(self.session.acknowledged(), self.session.client_state());
        let applied = self.pending.at(self.session.acknowledged());
        applied.into_iter().flatten().for_each(|time| shared.metrics.applied(time));
        self.client.at(self.session.client_state(), &self.class_handle);
    }

    /// Warns once of a rejection that ten thousand proxies may send, and once in a minute of those that one proxy sends in ever other words.
    fn log_rejection(&self, rejection: &Rejection, nonce: &str) {
        let Rejection { kind, detail, resources: _, attributed: _ } = rejection;
        let detail = &detail[..detail.floor_char_boundary(LOGGED_DETAIL)];
        let (fleet, node) = (&self.fleet.name, &self.client.info().node);
        if let Some(suppressed) = self.counter.rejected(rejection) {
            tracing::warn!(%fleet, node, %kind, nonce, detail, suppressed, "{REJECTED}");
        } else {
            tracing::debug!(%fleet, node, %kind, nonce, detail, "{REJECTED}");
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Waits for a fleet that is not in memory, or retired.
async fn wait_for(
    shared: &Shared,
    name: &FleetName,
    node: &str,
    first: &Request,
) -> Result<Published, Status> {
    if !shared.fleets.is_published(name)
        && let Some(suppressed) = shared.unpublished.allow(name, Instant::now())
    {
        tracing::info!(fleet = %name, node, suppressed, "a proxy waits for a fleet that is not published");
    }
    // It is kept for as long as this takes.
    first.check().map_err(refusal)?;
    let entered = shared.fleets.wait_for(name).await.map_err(|unserved| {
        if unserved != Unserved::Ended {
            shared.metrics.unserved();
        }
        Status::unavailable(unserved.to_string())
    })?;
    // One that is retired is in memory for as long as it has a stream.
    Published::wait(entered).await
}

/// A gRPC message: a flag for "not compressed", the length, and the pieces.
fn framed(message: Message) -> impl Iterator<Item = Bytes> {
    let length = u32::try_from(message.size()).unwrap_or(u32::MAX);
    let Message { own, removed, shared } = message;
    let mut prefix = BytesMut::with_capacity(5 + own.len());
    prefix.put_u8(0);
    prefix.put_u32(length);
    prefix.put(own);
    [prefix.freeze(), shared, removed].into_iter().filter(|piece| !piece.is_empty())
}

fn fleet_of(node: &NodeName) -> Result<FleetName, Status> {
    let invalid = |error: &dyn Display| {
        Status::invalid_argument(format!(
            "node.cluster must name the proxy's fleet: {error} (Envoy: --service-cluster NAMESPACE/NAME)"
        ))
    };
    // The name is kept while the stream waits for its fleet.
    match node.cluster.len() {
        ..=FLEET_NAME_LIMIT => node.cluster.parse().map_err(|error| invalid(&error)),
        length => Err(invalid(&format_args!("this name has {length} bytes"))),
    }
}

fn no_node() -> Status {
    Status::invalid_argument(
        "the first request of a stream must carry a node, and node.cluster the fleet as NAMESPACE/NAME",
    )
}

fn not_compared() -> Status {
    Status::unavailable(
        "this replica does not know yet whether it is behind, because it started without the store: connect again",
    )
}

fn closing() -> Status {
    Status::unavailable("this replica is shutting down: connect again")
}

use super::conduct::{self, Conduct, FLOOD_TICK, GARBAGE_TICK, Rejection};
use super::handle::{MemberHandle, Orders};
use super::lines::Lines;
use super::shared_state::{Follower, SharedState};
use super::transitions::TransitionCache;
use super::{Backoff, Member, Observer};
use crate::request::Request;
use crate::wire::{Ended, Message, Pool, Server, Stream};
use parking_lot::RwLock;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tonic::Code;

/// The state that all members of a crowd share.
pub(super) struct Inner<F, O> {
    servers: RwLock<(Arc<[Server]>, u64)>,
    handles: RwLock<Vec<Arc<MemberHandle<F>>>>,
    lines: Lines,
    transitions: TransitionCache<F>,
    pool: Pool,
    backoff: Backoff,
    observer: Arc<O>,
}

/// One member on one stream.
struct Conversation<'a, F, O> {
    crowd: &'a Inner<F, O>,
    member: usize,
    handle: &'a MemberHandle<F>,
    stream: Stream,
    state: Arc<SharedState<F>>,
    conduct: Conduct,
    rejection: Option<Arc<Rejection>>,
    /// When the conduct asks for something next.
    due: Option<Pin<Box<Sleep>>>,
    flood: f64,
    reads: bool,
    has_answered: bool,
}

impl<F: Follower, O: Observer<F>> Inner<F, O> {
    pub(super) fn new(
        servers: Vec<Server>,
        streams_per_connection: usize,
        backoff: Backoff,
        observer: Arc<O>,
    ) -> Self {
        Self {
            servers: RwLock::new((servers.into(), 0)),
            handles: RwLock::default(),
            lines: Lines::new(streams_per_connection),
            transitions: TransitionCache::default(),
            pool: Pool::default(),
            backoff,
            observer,
        }
    }

    /// The handle of a member, and its task.
    pub(super) fn admit(
        self: Arc<Self>,
        member: Member<F>,
    ) -> (usize, impl Future<Output = ()> + Send + 'static) {
        let Member { name, node, protocol, server, conduct, follower } = member;
        let servers = self.servers().1;
        let orders = Orders { conduct, server, servers, reconnects: 0, leaves: false };
        let state = self.transitions.start(protocol, follower);
        let handle = Arc::new(MemberHandle::new(name, node, orders, state));
        let number = {
            let mut handles = self.handles.write();
            handles.push(handle.clone());
            handles.len() - 1
        };
        (number, async move { self.live(number, &handle).await })
    }

    pub(super) fn servers(&self) -> (Arc<[Server]>, u64) {
        self.servers.read().clone()
    }

    pub(super) fn set_servers(&self, servers: Vec<Server>) {
        let mut known = self.servers.write();
        *known = (servers.into(), known.1 + 1);
    }

    pub(super) fn handles(&self, members: Range<usize>) -> Vec<Arc<MemberHandle<F>>> {
        let handles = self.handles.read();
        let end = members.end.min(handles.len());
        handles.get(members.start..end).unwrap_or_default().to_vec()
    }

    pub(super) fn distinct_states(&self) -> usize {
        self.transitions.distinct_states()
    }

    async fn live(&self, member: usize, handle: &MemberHandle<F>) {
        let mut failures = 0_u32;
        let mut elsewhere = false;
        loop {
            let orders = handle.orders();
            if orders.leaves {
                return;
            }
            let Some(server) = self.choose(handle, &orders, elsewhere) else { return };
            let (ended, has_answered) = self.attend(member, handle, &server, &orders).await;
            self.observer.ended(member, &ended);
            elsewhere = false;
            if matches!(ended, Ended::Requested) {
                continue;
            }
            // As Envoy, which begins anew once a server has answered.
            failures = if has_answered { 0 } else { failures.saturating_add(1) };
            let wait = self.backoff.wait(failures.saturating_sub(1));
            let sent_away = matches!(ended, Ended::Status { code: Code::Unavailable, .. });
            tokio::select! {
                () = end_requested(handle, &orders) => {}
                () = tokio::time::sleep(wait) => elsewhere = !has_answered || sent_away,
            }
        }
    }

    /// The server that it was ordered to use; any, as a load balancer has it, if there are other servers than before, or if
    /// that one does not answer or sends clients away.
    fn choose(&self, handle: &MemberHandle<F>, orders: &Orders, elsewhere: bool) -> Option<Server> {
        let (servers, list) = self.servers();
        if servers.is_empty() {
            return None;
        }
        let mut server = orders.server % servers.len();
        if elsewhere || orders.servers != list {
            server = fastrand::usize(..servers.len());
            handle.choose(server, list);
        }
        servers.get(server).cloned()
    }

    /// One stream, until it ends. Whether the server has answered.
    async fn attend(
        &self,
        member: usize,
        handle: &MemberHandle<F>,
        server: &Server,
        begun: &Orders,
    ) -> (Ended, bool) {
        let state = handle.state();
        // In a box, as it is large and soon over.
        let connecting = Box::pin(self.lines.stream(server, state.cache().protocol(), || {
            self.observer.connected(member);
        }));
        let connected = tokio::select! {
            connected = connecting => connected,
            () = end_requested(handle, begun) => Err(Ended::Requested),
        };
        let (stream, line) = match connected {
            Ok(connected) => connected,
            Err(ended) => return (ended, false),
        };
        let mut conversation = Conversation {
            crowd: self,
            member,
            handle,
            stream,
            state,
            rejection: None,
            conduct: Conduct::Well,
            due: None,
            flood: 0.0,
            reads: true,
            has_answered: false,
        };
        conversation.behave(handle.orders().conduct);
        conversation.open().await;
        let ended = conversation.run(begun).await;
        drop(line);
        (ended, conversation.has_answered)
    }
}

impl<F: Follower, O: Observer<F>> Conversation<'_, F, O> {
    async fn open(&mut self) {
        let opening = self.crowd.transitions.open(&self.state, Instant::now());
        self.set_state(opening.to.clone());
        if self.conduct == Conduct::Garbage {
            self.stream.send_bytes(conduct::garbage(self.state.cache()).into());
        } else {
            let mut introduction = Some((&*self.handle.node, &*self.handle.name));
            for request in &opening.requests {
                let bytes = self.stream.send(request, introduction.take());
                self.crowd.observer.asked(self.member, bytes, Instant::now());
            }
        }
        self.stream.flush().await;
    }

    async fn run(&mut self, begun: &Orders) -> Ended {
        loop {
            let due = async {
                match &mut self.due {
                    Some(due) => due.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.handle.ordered() => {
                    let orders = self.handle.orders();
                    if orders.is_to_end(begun) {
                        return Ended::Requested;
                    }
                    if orders.conduct != self.conduct {
                        self.behave(orders.conduct);
                    }
                }
                () = due => {
                    if self.misbehave().await {
                        return Ended::Requested;
                    }
                }
                message = self.stream.next(&self.crowd.pool), if self.reads => {
                    let received = match message {
                        Ok(message) => self.receive(message).await,
                        Err(ended) => Err(ended),
                    };
                    if let Err(ended) = received {
                        return ended;
                    }
                }
            }
        }
    }

    async fn receive(&mut self, message: Message) -> Result<(), Ended> {
        let now = Instant::now();
        self.has_answered = true;
        let rejection = self.rejection.as_ref();
        let step = self.crowd.transitions.receive(
            &self.state,
            &message,
            rejection,
            &self.handle.name,
            now,
        );
        let step = step.map_err(|error| Ended::Unreadable(error.to_string()))?;
        let Some(step) = step else { return Ok(()) };
        self.crowd.observer.received(self.member, &step, message.length, now);
        self.stream.nonces().set(step.kind, &message.nonce);
        // The first one is the answer.
        let mut sent = step.requests.iter().map(|request| self.stream.send(request, None));
        let answer = sent.next().unwrap_or(0);
        for bytes in sent {
            self.crowd.observer.asked(self.member, bytes, now);
        }
        self.stream.flush().await;
        self.crowd.observer.answered(self.member, &step, answer, Instant::now());
        self.set_state(step.to.clone());
        Ok(())
    }

    fn set_state(&mut self, state: Arc<SharedState<F>>) {
        if !Arc::ptr_eq(&state, &self.state) {
            self.handle.set_state(state.clone());
            self.state = state;
        }
    }

    fn behave(&mut self, conduct: Conduct) {
        self.rejection = conduct.rejection();
        self.due = conduct.begins().map(|after| Box::pin(tokio::time::sleep(after)));
        self.reads = true;
        self.conduct = conduct;
    }

    /// Does what the conduct requires now. Returns whether that is to end the stream.
    async fn misbehave(&mut self) -> bool {
        match self.conduct {
            Conduct::Well | Conduct::Rejects { .. } => self.due = None,
            Conduct::StopsReading { .. } => (self.reads, self.due) = (false, None),
            Conduct::Reconnects { .. } => return true,
            Conduct::Floods { .. } => {
                let again = self.state.cache().acknowledged();
                let again = Request::new(self.state.cache().protocol(), again);
                for _ in 0..self.conduct.flood(&mut self.flood) {
                    // A server that does not read must not fill the memory of the client.
                    if self.stream.has_room_for(&again) {
                        let bytes = self.stream.send(&again, None);
                        self.crowd.observer.asked(self.member, bytes, Instant::now());
                    }
                }
                self.stream.flush().await;
                self.again_after(FLOOD_TICK);
            }
            Conduct::Garbage => {
                let bytes = conduct::garbage(self.state.cache());
                self.stream.send_bytes(bytes.into());
                self.stream.flush().await;
                self.again_after(GARBAGE_TICK);
            }
        }
        false
    }

    fn again_after(&mut self, wait: Duration) {
        if let Some(due) = &mut self.due {
            due.as_mut().reset(tokio::time::Instant::now() + wait);
        }
    }
}

impl Orders {
    /// Whether they ask for more than those that a stream began with.
    fn is_to_end(&self, begun: &Self) -> bool {
        self.leaves || self.reconnects != begun.reconnects
    }
}

async fn end_requested<F>(handle: &MemberHandle<F>, begun: &Orders) {
    loop {
        handle.ordered().await;
        if handle.orders().is_to_end(begun) {
            return;
        }
    }
}

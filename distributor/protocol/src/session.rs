use crate::absent::Allocation;
use crate::client_state::ClientState;
use crate::event::Event;
use crate::nonce::{Nonce, Nonces};
use crate::reply::Reply;
use crate::request::{Request, RequestError};
use crate::state::{Expired, RequestContext};
use crate::transition_cache::{Input, Position, Transition, TransitionCache};
use crate::view::View;
use crate::watch::{Answered, ReplyNumber, Watch};
use heliograph_snapshot::{Head, ResourceType};
use std::sync::Arc;
use std::time::Duration;

/// One client's stream. Times are durations since some fixed moment of the caller's choosing.
///
/// What is decided depends only on the position of the stream, which is shared with all others at the same position: the
/// stream's own are its nonces and its timers.
#[derive(Debug)]
pub struct Session {
    transitions: Arc<TransitionCache>,
    position: Arc<Position>,
    nonces: Nonces,
    /// The newest reply of each type.
    last: [Option<Sent>; ResourceType::ALL.len()],
    /// Replies that were presumed to be accepted before the newest, and that the client may still answer.
    older: Vec<(ResourceType, Sent)>,
    /// Past this many, those that are not awaited any more are swept out.
    sweep_at: usize,
    timers: Timers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Delta,
    StateOfTheWorld,
}

/// The outputs for an input: at most one reply of each type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub replies: Vec<Reply>,
    pub event: Option<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    nonce: Nonce,
    reply_number: ReplyNumber,
}

/// Since when the client is waited for.
#[derive(Debug, Default)]
struct Timers {
    /// The reply in flight, by type.
    flights: [Duration; ResourceType::ALL.len()],
    /// The last progress with the endpoints that are owed.
    owed: Duration,
    /// The first request of a client that was connected before.
    resuming: Duration,
}

/// How long the order of updates waits for a client that does not answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for an answer to clusters: Envoy withholds it while they are warming, which may take 15 s when a secret or
/// a first health check does not come. To call a client silent only if it answers nothing at all would be no bound:
/// endpoints that keep changing and are acknowledged would put off the others for ever.
pub const WARMING_TIMEOUT: Duration = Duration::from_secs(20);
/// So few older replies are not worth a sweep.
const SMALLEST_SWEEP: usize = 16;

impl Session {
    pub fn new(protocol: Protocol, view: Arc<View>, transitions: Arc<TransitionCache>) -> Self {
        Self {
            position: transitions.start(protocol, view),
            transitions,
            nonces: Nonces::default(),
            last: [None; ResourceType::ALL.len()],
            older: Vec::new(),
            sweep_at: SMALLEST_SWEEP,
            timers: Timers::default(),
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.position.state().protocol()
    }

    pub fn on_request(&mut self, now: Duration, request: &Request) -> Result<Output, RequestError> {
        let Some(kind) = request.kind() else {
            return Ok(Output { event: Some(Event::UnknownType), ..Output::default() });
        };
        let transition = self.transition(kind, request)?;
        Ok(self.apply(now, &transition))
    }

    /// Whether a client shows, with the first request of a type, that what it holds from before is not what the view has:
    /// something older, or something newer that it got elsewhere.
    pub fn holds_other(&self, request: &Request) -> Result<bool, RequestError> {
        let Some(kind) = request.kind() else { return Ok(false) };
        Ok(self.position.state().watch(kind).is_none()
            && self.transition(kind, request)?.holds_other)
    }

    /// Another view, if it is not an older one: a client never goes back. A client that changes its class gets another
    /// view of the same head.
    pub fn on_view(&mut self, now: Duration, view: &Arc<View>) -> Output {
        if Arc::ptr_eq(self.position.state().latest(), view) {
            return Output::default();
        }
        let transition = self.transitions.transition(&self.position, Input::View(view));
        transition.map(|transition| self.apply(now, &transition)).unwrap_or_default()
    }

    /// To be called at [`Session::wake_at`].
    pub fn on_clock(&mut self, now: Duration) -> Output {
        let expired = self.expired(now);
        let transition = self.transitions.transition(&self.position, Input::Clock(expired));
        transition.map(|transition| self.apply(now, &transition)).unwrap_or_default()
    }

    /// When silence of the client becomes too long.
    pub fn wake_at(&self) -> Option<Duration> {
        let replies = ResourceType::ALL.into_iter().filter_map(|kind| self.awaited_until(kind));
        replies.chain(self.owed_until()).chain(self.resuming_until()).min()
    }

    /// The newest head of which the client has acknowledged all that it asks for, in every type at least. Goes back
    /// only when the client asks for more, or rejects what it accepted before.
    pub fn acknowledged(&self) -> Option<Head> {
        self.position.acknowledged()
    }

    /// The state of the client, shared with all others at the same position.
    pub fn client_state(&self) -> ClientState {
        ClientState(self.position.clone())
    }

    /// How many resources of the request's type the client asks for by name. A request that asks for one more, or one less,
    /// costs as much as there are.
    pub fn names(&self, request: &Request) -> usize {
        let watch = request.kind().and_then(|kind| self.position.state().watch(kind));
        watch.map_or(0, Watch::names)
    }

    /// The memory that is kept for names that the view does not have, in bytes. A client can make up any number of them.
    pub fn absent_memory(&self) -> Vec<(Allocation, usize)> {
        self.position.state().absent_memory(self.position.id())
    }

    fn transition(
        &self,
        kind: ResourceType,
        request: &Request,
    ) -> Result<Arc<Transition>, RequestError> {
        let context = RequestContext {
            kind,
            answered: self.answered(kind, request.nonce()),
            stale: self.is_stale(kind, request.nonce()),
        };
        self.transitions.transition(&self.position, Input::Request(context, request))
    }

    /// The reply with this nonce, if it awaits an answer.
    fn answered(&self, kind: ResourceType, nonce: &str) -> Option<Answered> {
        let watch = self.position.state().watch(kind)?;
        let older = self.older.iter().filter(|(of, _)| *of == kind).map(|(_, sent)| sent);
        let mut sent = self.last[kind as usize].iter().chain(older);
        let Sent { nonce, reply_number } = *sent.find(|sent| sent.nonce.is(nonce))?;
        watch.awaits(reply_number).then(|| Answered { reply_number, head: nonce.head() })
    }

    /// State of the world: "the management server should not send a response for any request that has a stale
    /// nonce". The acknowledgement of the reply in flight repeats the subscription of such a request.
    fn is_stale(&self, kind: ResourceType, nonce: &str) -> bool {
        match self.last[kind as usize] {
            None => false,
            Some(_) if nonce.is_empty() => self.is_in_flight(kind),
            Some(last) => !last.nonce.is(nonce),
        }
    }

    fn apply(&mut self, now: Duration, transition: &Transition) -> Output {
        let resumed = self.position.state().is_resuming();
        self.position = transition.to.clone();
        if transition.progress {
            self.timers.owed = now;
        }
        if !resumed && self.position.state().is_resuming() {
            self.timers.resuming = now;
        }
        let mut replies = Vec::with_capacity(transition.responses.len());
        for response in &transition.responses {
            let kind = response.kind;
            let reply_number =
                transition.to.state().watch(kind).map(Watch::reply_number).unwrap_or_default();
            let nonce = self.nonces.next(response.head);
            self.timers.flights[kind as usize] = now;
            let before = self.last[kind as usize].replace(Sent { nonce, reply_number });
            self.remember(kind, before, reply_number);
            replies.push(Reply { nonce: nonce.to_string(), response: response.clone() });
        }
        Output { replies, event: transition.event.clone() }
    }

    /// Keeps the reply before the newest, if it was presumed to be accepted.
    fn remember(&mut self, kind: ResourceType, before: Option<Sent>, newest: ReplyNumber) {
        let position = self.position.clone();
        let awaits = |kind, reply_number| {
            position.state().watch(kind).is_some_and(|watch: &Watch| watch.awaits(reply_number))
        };
        // The numbers start again when nothing is awaited: one that is not below the newest is of another time.
        if self.older.iter().any(|(of, sent)| *of == kind && sent.reply_number >= newest) {
            self.older.retain(|(of, sent)| *of != kind || sent.reply_number < newest);
        }
        let awaited = |sent: &Sent| sent.reply_number < newest && awaits(kind, sent.reply_number);
        self.older.extend(before.filter(awaited).map(|sent| (kind, sent)));
        if self.older.len() > self.sweep_at {
            self.older.retain(|(kind, sent)| awaits(*kind, sent.reply_number));
            self.sweep_at = SMALLEST_SWEEP.max(2 * self.older.len());
        }
    }

    fn expired(&self, now: Duration) -> Expired {
        let passed = |until: Option<Duration>| until.is_some_and(|until| now >= until);
        Expired {
            flights: ResourceType::ALL.map(|kind| passed(self.awaited_until(kind))),
            owed: self.position.state().owes() && now >= self.timers.owed + ANSWER_TIMEOUT,
            resuming: passed(self.resuming_until()),
        }
    }

    fn is_in_flight(&self, kind: ResourceType) -> bool {
        self.position.state().watch(kind).is_some_and(Watch::is_in_flight)
    }

    /// When the reply in flight is taken for accepted.
    fn awaited_until(&self, kind: ResourceType) -> Option<Duration> {
        let timeout = match kind.properties().warmed_by {
            Some(_) => WARMING_TIMEOUT,
            None => ANSWER_TIMEOUT,
        };
        self.is_in_flight(kind).then(|| self.timers.flights[kind as usize] + timeout)
    }

    /// When the endpoints that are owed are given up.
    fn owed_until(&self) -> Option<Duration> {
        self.position.state().awaits_endpoints().then(|| self.timers.owed + ANSWER_TIMEOUT)
    }

    /// Until when a client that was connected before may be slow to name the types it asks for.
    fn resuming_until(&self) -> Option<Duration> {
        self.position.state().is_resuming().then(|| self.timers.resuming + ANSWER_TIMEOUT)
    }
}

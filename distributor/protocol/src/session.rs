use crate::event::Event;
use crate::names::NamePool;
use crate::nonce::Nonces;
use crate::order::{Owed, Watches};
use crate::reply::Reply;
use crate::request::{Asks, Request, RequestError};
use crate::view::View;
use crate::watch::{Settled, Watch};
use heliograph_snapshot::{Head, ResourceType};
use std::sync::Arc;
use std::time::Duration;

/// One client's stream. Times are durations since some fixed moment of the caller's choosing.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    names: Arc<NamePool>,
    watches: Watches,
    /// The newest view there is. Endpoints go there at any time.
    latest: Arc<View>,
    /// Where the running transition leads. The other types go there in order, and it is finished before the next
    /// begins: otherwise steady change among clusters would keep routes from ever moving.
    target: Arc<View>,
    owed: Owed,
    nonces: Nonces,
    /// Until when a client that was connected before may be slow to name the types it asks for.
    resuming: Option<Duration>,
    now: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Delta,
    StateOfTheWorld,
}

/// What follows from an input: at most one reply of each type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub replies: Vec<Reply>,
    pub events: Vec<Event>,
}

/// How long the order waits for a client that says nothing.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The same for an answer to clusters: Envoy withholds it while they are warming, which may take 15 s when a secret or
/// a first health check does not come. To call a client silent only if it answers nothing at all would be no bound:
/// endpoints that keep changing and are acknowledged would put off the others for ever.
pub const CLUSTER_PATIENCE: Duration = Duration::from_secs(20);

impl Session {
    pub fn new(protocol: Protocol, view: Arc<View>, names: Arc<NamePool>) -> Self {
        Self {
            protocol,
            names,
            watches: Watches::default(),
            latest: view.clone(),
            target: view,
            owed: Owed::default(),
            nonces: Nonces::default(),
            resuming: None,
            now: Duration::ZERO,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn on_request(&mut self, now: Duration, request: Request) -> Result<Output, RequestError> {
        self.now = now;
        let mut output = Output::default();
        let Request { type_url, nonce, error, asks } = request;
        let Some(kind) = ResourceType::from_type_url(&type_url) else {
            output.events.push(Event::UnknownType);
            return Ok(output);
        };
        match self.watches.get_mut(kind) {
            None => self.watch(kind, asks)?,
            Some(watch) => {
                let settled = watch.settle(&nonce, error.as_deref());
                let stale = watch.is_stale(&nonce);
                // Delta: names in a message with a stale nonce count all the same, as no later message repeats
                // them. They also count beside a rejection.
                if !(stale && matches!(asks, Asks::Whole { .. })) {
                    self.ask(kind, asks)?;
                }
                if let Some(settled) = settled {
                    self.settled(kind, &settled);
                    output.events.push(match settled.rejection {
                        Some(rejection) => Event::Rejected(rejection),
                        None => Event::Acknowledged(kind),
                    });
                }
            }
        }
        self.push(&mut output.replies);
        Ok(output)
    }

    /// Whether a client shows, with the first request of a type, that it holds from before what the view does not have:
    /// something older, or something newer that it got elsewhere.
    pub fn holds_other(&self, request: &Request) -> bool {
        let Some(kind) = ResourceType::from_type_url(&request.type_url) else { return false };
        if self.watches.get(kind).is_some() || !Watch::resumes(&request.asks) {
            return false;
        }
        let view = &self.latest;
        match &request.asks {
            Asks::Change { held, .. } => held.iter().any(|(name, version)| {
                view.version(kind, name).is_none_or(|known| known.as_str() != version)
            }),
            // Only the whole has a version, so it takes a trial.
            Asks::Whole { .. } => {
                let mut trial = Watch::new(self.protocol, kind, view.clone(), view.clone());
                trial.ask_first(request.asks.clone(), &self.names).is_ok() && trial.has_to_tell()
            }
        }
    }

    /// Another view, if it is not an older one: a client never goes back. A client that changes its class gets another
    /// view of the same head.
    pub fn on_view(&mut self, now: Duration, view: Arc<View>) -> Output {
        self.now = now;
        let mut output = Output::default();
        if view.head() >= self.latest.head() && !Arc::ptr_eq(&view, &self.latest) {
            self.latest = view;
            self.owe_only_what_there_is();
            self.push(&mut output.replies);
        }
        output
    }

    /// To be called at [`Session::wake_at`].
    pub fn on_clock(&mut self, now: Duration) -> Output {
        self.now = now;
        let mut output = Output::default();
        for kind in ResourceType::ALL {
            if let Some(settled) = self.watches.get_mut(kind).and_then(|watch| watch.presume(now)) {
                self.settled(kind, &settled);
            }
        }
        if self.owed_until().is_some_and(|until| now >= until) {
            self.owed.clear();
        }
        self.push(&mut output.replies);
        output
    }

    /// When silence of the client becomes too long.
    pub fn wake_at(&self) -> Option<Duration> {
        let replies = self.watches.iter().filter_map(Watch::awaited_until);
        let resuming = self.resuming.filter(|until| *until > self.now);
        replies.chain(self.owed_until()).chain(resuming).min()
    }

    /// The newest head of which the client has acknowledged all that it asks for, in every type at least. Goes back
    /// only when the client asks for more, or rejects what it accepted before.
    pub fn acknowledged(&self) -> Option<Head> {
        self.watches.iter().map(Watch::acknowledged).min().flatten()
    }

    fn watch(&mut self, kind: ResourceType, asks: Asks) -> Result<(), RequestError> {
        if Watch::resumes(&asks) && self.resuming.is_none() {
            self.resuming = Some(self.now + PATIENCE);
        }
        let (view, target) = (self.goal(kind).clone(), self.target.clone());
        let mut watch = Watch::new(self.protocol, kind, view, target);
        watch.ask_first(asks, &self.names)?;
        if kind == ResourceType::Endpoints {
            self.owed.covered_by(&watch).iter().for_each(|name| watch.tell(name));
        }
        self.watches.insert(kind, watch);
        Ok(())
    }

    fn ask(&mut self, kind: ResourceType, asks: Asks) -> Result<(), RequestError> {
        let Some(watch) = self.watches.get_mut(kind) else { return Ok(()) };
        if kind != ResourceType::Endpoints {
            return watch.ask(asks, &self.names);
        }
        let mut released = self.owed.covered_by(watch);
        watch.ask(asks, &self.names)?;
        released.retain(|name| !watch.covers(name));
        // Endpoints that the client no longer asks for need not follow, unless their cluster is under way to it: then
        // it speaks of the cluster before.
        let clusters = self.watches.get(ResourceType::Cluster);
        released.retain(|name| !clusters.is_some_and(|clusters| clusters.has_in_flight(name)));
        self.owed.settle(&released, self.now);
        Ok(())
    }

    fn settled(&mut self, kind: ResourceType, settled: &Settled) {
        match kind {
            ResourceType::Endpoints => self.owed.settle(&settled.names, self.now),
            // Envoy does not ask for the endpoints of a cluster that it rejected.
            ResourceType::Cluster if settled.rejection.is_some() => {
                self.owed.settle(&settled.names, self.now);
            }
            ResourceType::Cluster => self.owed.expect(&settled.names, self.now),
            ResourceType::Secret | ResourceType::Listener | ResourceType::Route => {}
        }
    }

    fn goal(&self, kind: ResourceType) -> &Arc<View> {
        if kind == ResourceType::Endpoints { &self.latest } else { &self.target }
    }

    /// Says all that may be said now.
    fn push(&mut self, replies: &mut Vec<Reply>) {
        loop {
            let mut moved = self.begin_next();
            for kind in ResourceType::ALL {
                moved |= self.advance(kind);
                if let Some(reply) = self.reply(kind) {
                    replies.push(reply);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Begins the next transition once the running one is finished: straight to the latest view, whatever there
    /// was in between.
    fn begin_next(&mut self) -> bool {
        let begins = !Arc::ptr_eq(&self.target, &self.latest)
            && self.watches.are_at(&self.target, self.is_resuming());
        if begins {
            self.target = self.latest.clone();
            self.watches.iter_mut().for_each(|watch| watch.aim(&self.target));
            self.owe_only_what_there_is();
        }
        begins
    }

    fn advance(&mut self, kind: ResourceType) -> bool {
        let goal = self.goal(kind).clone();
        let may = self.watches.may_advance(kind, &self.target, &self.owed);
        let Some(watch) = self.watches.get_mut(kind) else { return false };
        let moves = may && !(watch.is_open() && watch.is_at(&goal));
        if moves {
            watch.open();
            watch.advance(&goal);
        }
        moves
    }

    fn reply(&mut self, kind: ResourceType) -> Option<Reply> {
        let removals = self.watches.removals(kind, &self.target, self.is_resuming());
        let watch = self.watches.get_mut(kind)?;
        let told = watch.reply(removals, &mut self.nonces, self.now)?;
        if kind == ResourceType::Cluster {
            self.owed.settle(&told.removed, self.now);
            told.changed.into_iter().for_each(|name| self.owe_endpoints(name));
        }
        Some(told.reply)
    }

    fn owe_endpoints(&mut self, cluster: Arc<str>) {
        if !has_endpoints(&[&self.latest, &self.target], &cluster) {
            return;
        }
        if let Some(endpoints) = self.watches.get_mut(ResourceType::Endpoints) {
            if endpoints.rejects(&cluster) {
                return;
            }
            if endpoints.covers(&cluster) {
                endpoints.tell(&cluster);
            }
        }
        self.owed.add(cluster, self.now);
    }

    /// What neither view has any more will not come.
    fn owe_only_what_there_is(&mut self) {
        let views = [&*self.latest, &*self.target];
        self.owed.retain(|cluster| has_endpoints(&views, cluster), self.now);
    }

    /// When the endpoints that are owed are given up. Not while clusters are in flight: the client may have yet to see
    /// them.
    fn owed_until(&self) -> Option<Duration> {
        let clusters = self.watches.get(ResourceType::Cluster).and_then(Watch::awaited_until);
        self.owed.since().filter(|_| clusters.is_none()).map(|since| since + PATIENCE)
    }

    fn is_resuming(&self) -> bool {
        self.resuming.is_some_and(|until| self.now < until)
    }
}

fn has_endpoints(views: &[&View], cluster: &str) -> bool {
    views.iter().any(|view| view.get(ResourceType::Endpoints, cluster).is_some())
}

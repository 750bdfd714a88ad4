//! The state of a stream, and the transition that an input causes.

use crate::absent::Allocation;
use crate::event::Event;
use crate::names::NamePool;
use crate::order::{Owed, Watches};
use crate::reply::Response;
use crate::request::{RequestError, SubscriptionRequest};
use crate::session::Protocol;
use crate::view::View;
use crate::watch::{Answered, IdleWatch, Settled, Watch};
use heliograph_snapshot::{Head, Resource, ResourceType};
use std::sync::Arc;

/// Everything that decides what a client is sent next, without its own nonces and times. So all clients at the same
/// point have the same state.
#[derive(Clone, Debug)]
pub(crate) struct State {
    protocol: Protocol,
    watches: Watches,
    /// The newest view there is. Types that refer to nothing go there at any time.
    latest: Arc<View>,
    /// Where the running transition leads. The other types go there in order, and it is finished before the next
    /// begins: otherwise steady change among clusters would keep routes from ever moving.
    target: Arc<View>,
    owed: Owed,
    resuming: Resuming,
}

/// The responses and the event that follow from an input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// At most one of each type.
    pub(crate) responses: Vec<Response>,
    pub(crate) event: Option<Event>,
}

/// A message of one type, with what the client's nonce means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestContext {
    pub(crate) kind: ResourceType,
    /// The reply that it answers, if that awaits an answer.
    pub(crate) answered: Option<Answered>,
    /// The client sent it before it knew of the newest reply.
    pub(crate) stale: bool,
}

/// Which waits have lasted too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Expired {
    /// For answers, by type.
    pub(crate) flights: [bool; ResourceType::ALL.len()],
    /// For the client to ask for endpoints of the clusters it has.
    pub(crate) owed: bool,
    pub(crate) resuming: bool,
}

/// A state without pending work, in a few words: equal states have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdleState {
    protocol: Protocol,
    watches: [Option<IdleWatch>; ResourceType::ALL.len()],
    latest: u64,
    target: u64,
    resuming: Resuming,
}

/// Whether a client that was connected before may still be naming the types it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Resuming {
    No,
    Yes,
    /// It had its time.
    Over,
}

/// How many rejections of a client are reported.
const REJECTIONS_LIMIT: usize = 16;
/// The size of a state by itself, in hundreds of bytes.
const OWN_SIZE: usize = 8;

impl State {
    pub(crate) fn new(protocol: Protocol, view: Arc<View>) -> Self {
        Self {
            protocol,
            watches: Watches::default(),
            latest: view.clone(),
            target: view,
            owed: Owed::default(),
            resuming: Resuming::No,
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn watch(&self, kind: ResourceType) -> Option<&Watch> {
        self.watches.get(kind)
    }

    pub(crate) fn latest(&self) -> &Arc<View> {
        &self.latest
    }

    pub(crate) fn is_resuming(&self) -> bool {
        self.resuming == Resuming::Yes
    }

    /// Whether clusters were sent whose endpoints must follow.
    pub(crate) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Whether it is time that the client asks for endpoints. Not while clusters are in flight: the client may have
    /// yet to see them.
    pub(crate) fn awaits_endpoints(&self) -> bool {
        let is_in_flight = |kind| self.watches.get(kind).is_some_and(Watch::is_in_flight);
        self.owes() && !warming().any(|(kind, _)| is_in_flight(kind))
    }

    /// The newest head of which the client has acknowledged all that it asks for, in every type at least. Goes back
    /// only when the client asks for more, or rejects what it accepted before.
    pub(crate) fn acknowledged(&self) -> Option<Head> {
        self.watches.iter().map(Watch::acknowledged).min().flatten()
    }

    /// The resources of the current view that the client rejected, cut to a bounded number.
    pub(crate) fn rejections(&self) -> Vec<(ResourceType, Arc<Resource>)> {
        let watches = ResourceType::ALL.into_iter().filter_map(|kind| self.watches.get(kind));
        let rejections =
            watches.flat_map(|it| it.rejections().map(|resource| (it.kind(), resource.clone())));
        rejections.take(REJECTIONS_LIMIT).collect()
    }

    pub(crate) fn idle_state(&self) -> Option<IdleState> {
        let mut watches = [None; ResourceType::ALL.len()];
        for (idle, kind) in watches.iter_mut().zip(ResourceType::ALL) {
            if let Some(watch) = self.watches.get(kind) {
                *idle = Some(watch.idle()?);
            }
        }
        let Self { protocol, latest, target, resuming, .. } = self;
        let (latest, target) = (latest.id(), target.id());
        let (protocol, resuming) = (*protocol, *resuming);
        self.owed.is_empty().then_some(IdleState { protocol, watches, latest, target, resuming })
    }

    /// How much memory it keeps that `before`, where it comes from, does not, in hundreds of bytes.
    pub(crate) fn size_beyond(&self, before: &Self) -> usize {
        let watches = ResourceType::ALL
            .into_iter()
            .filter_map(|kind| Some(self.watches.get(kind)?.size_beyond(before.watches.get(kind))));
        OWN_SIZE + self.owed.len() + watches.sum::<usize>()
    }

    /// The memory that it keeps for names that its views do not have.
    pub(crate) fn absent_memory(&self, id: u64) -> Vec<(Allocation, usize)> {
        let in_hand = self.watches.iter().map(Watch::pending_memory).sum::<usize>();
        let mut kept: Vec<_> = self.watches.iter().filter_map(Watch::absent_memory).collect();
        // Types that are asked for by the same names share them.
        kept.sort_unstable_by(|one, other| other.cmp(one));
        kept.dedup_by_key(|(allocation, _)| *allocation);
        if in_hand > 0 {
            kept.push((Allocation::Position(id), in_hand));
        }
        kept
    }

    /// Whether endpoints that are owed came nearer since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        self.owed.take_moved()
    }

    pub(crate) fn receive(
        &mut self,
        context: RequestContext,
        error: Option<&str>,
        subscription_request: SubscriptionRequest,
        names: &NamePool,
    ) -> Result<Outcome, RequestError> {
        let RequestContext { kind, answered, stale } = context;
        let mut outcome = Outcome::default();
        match self.watches.get_mut(kind) {
            None => self.begin(kind, subscription_request, names)?,
            Some(watch) => {
                let settled = answered.and_then(|answered| watch.settle(answered, error));
                // Delta: names in a message with a stale nonce count all the same, as no later message repeats
                // them. They also count beside a rejection.
                if !(stale && matches!(subscription_request, SubscriptionRequest::Whole { .. })) {
                    self.update_subscription(kind, subscription_request, names)?;
                }
                if let Some(settled) = settled {
                    self.settled(kind, &settled);
                    outcome.event = Some(match settled.rejection {
                        Some(rejection) => Event::Rejected(Arc::new(rejection)),
                        None => Event::Acknowledged(kind),
                    });
                }
            }
        }
        self.push(&mut outcome.responses);
        Ok(outcome)
    }

    /// Whether a client shows, with the first request of a type, that what it holds from before is not what the view has:
    /// something older, or something newer that it got elsewhere.
    pub(crate) fn holds_other(
        &self,
        kind: ResourceType,
        subscription_request: &SubscriptionRequest,
        names: &NamePool,
    ) -> bool {
        if self.watches.get(kind).is_some() || !Watch::resumes(subscription_request) {
            return false;
        }
        let view = &self.latest;
        let trial = || {
            let mut trial = Watch::new(self.protocol, kind, view.clone(), view.clone());
            trial.start_subscription(subscription_request.clone(), names).ok().map(|()| trial)
        };
        match subscription_request {
            SubscriptionRequest::Change { held, .. } => {
                let is_other = |(name, version): (&String, &String)| {
                    !version.parse().is_ok_and(|version| view.has(kind, name, Some(version)))
                };
                // What it lacks may have been removed since.
                held.iter().any(is_other) || trial().is_some_and(|trial| trial.lacks_any())
            }
            // Only the whole has a version, so it takes a trial.
            SubscriptionRequest::Whole { .. } => trial().is_some_and(|trial| trial.has_pending()),
        }
    }

    /// Another view, if it is not an older one: a client never goes back. A client that changes its class gets another
    /// view of the same head.
    pub(crate) fn update_view(&mut self, view: Arc<View>) -> Outcome {
        let mut outcome = Outcome::default();
        if view.head() >= self.latest.head() && !Arc::ptr_eq(&view, &self.latest) {
            self.latest = view;
            self.forget_missing_owed();
            self.push(&mut outcome.responses);
        }
        outcome
    }

    pub(crate) fn expire(&mut self, expired: Expired) -> Outcome {
        let mut outcome = Outcome::default();
        for (kind, expired) in ResourceType::ALL.into_iter().zip(expired.flights) {
            let watch = self.watches.get_mut(kind).filter(|_| expired);
            if let Some(settled) = watch.and_then(Watch::presume) {
                self.settled(kind, &settled);
            }
        }
        // A client that is only now taken to have the clusters has its time from now on.
        if expired.owed && self.awaits_endpoints() && !self.owed.has_moved() {
            self.owed.clear();
        }
        if expired.resuming {
            self.resuming = Resuming::Over;
        }
        self.push(&mut outcome.responses);
        outcome
    }

    fn begin(
        &mut self,
        kind: ResourceType,
        subscription_request: SubscriptionRequest,
        names: &NamePool,
    ) -> Result<(), RequestError> {
        if Watch::resumes(&subscription_request) && self.resuming == Resuming::No {
            self.resuming = Resuming::Yes;
        }
        let (view, target) = (self.goal(kind).clone(), self.target.clone());
        let mut watch = Watch::new(self.protocol, kind, view, target);
        watch.start_subscription(subscription_request, names)?;
        if kind.warmed().is_some() {
            self.owed.covered_by(&watch).iter().for_each(|name| watch.resend(name));
        }
        self.watches.insert(kind, watch);
        Ok(())
    }

    fn update_subscription(
        &mut self,
        kind: ResourceType,
        subscription_request: SubscriptionRequest,
        names: &NamePool,
    ) -> Result<(), RequestError> {
        let Some(watch) = self.watches.get_mut(kind) else { return Ok(()) };
        let Some(warmed) = kind.warmed() else {
            return watch.update_subscription(subscription_request, names);
        };
        let mut released = self.owed.covered_by(watch);
        watch.update_subscription(subscription_request, names)?;
        released.retain(|name| !watch.covers(name));
        // Endpoints that the client no longer asks for need not follow, unless their cluster is under way to it: then
        // the request is about the previous cluster.
        let clusters = self.watches.get(warmed);
        released.retain(|name| !clusters.is_some_and(|clusters| clusters.has_in_flight(name)));
        self.owed.settle(&released);
        Ok(())
    }

    fn settled(&mut self, kind: ResourceType, settled: &Settled) {
        let must_be_warmed = kind.properties().warmed_by.is_some();
        if must_be_warmed && settled.rejection.is_none() {
            self.owed.expect(&settled.names);
        } else if must_be_warmed || kind.warmed().is_some() {
            // Envoy does not ask for the endpoints of a cluster that it rejected.
            self.owed.settle(&settled.names);
        }
    }

    fn goal(&self, kind: ResourceType) -> &Arc<View> {
        if kind.properties().is_immediate { &self.latest } else { &self.target }
    }

    /// Sends all that may be sent now.
    fn push(&mut self, responses: &mut Vec<Response>) {
        loop {
            let mut moved = self.begin_next();
            for kind in ResourceType::ALL {
                moved |= self.advance(kind);
                if let Some(response) = self.respond(kind) {
                    responses.push(response);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        self.watches.iter_mut().for_each(Watch::normalise);
    }

    /// Begins the next transition once the running one is finished: straight to the latest view, whatever there
    /// was in between.
    fn begin_next(&mut self) -> bool {
        let begins = !Arc::ptr_eq(&self.target, &self.latest)
            && self.watches.are_at(&self.target, self.is_resuming());
        if begins {
            self.target = self.latest.clone();
            self.watches.iter_mut().for_each(|watch| watch.set_target(&self.target));
            self.forget_missing_owed();
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

    fn respond(&mut self, kind: ResourceType) -> Option<Response> {
        let removals = self.watches.removals(kind, &self.target, self.is_resuming());
        let prepared = self.watches.get_mut(kind)?.reply(removals)?;
        if let Some(warmer) = kind.properties().warmed_by {
            self.owed.settle(&prepared.removed);
            prepared.changed.into_iter().for_each(|name| self.owe(warmer, name));
        }
        Some(prepared.response)
    }

    /// The endpoints of a cluster that was sent must follow.
    fn owe(&mut self, endpoints: ResourceType, cluster: Arc<str>) {
        if !is_there(&[&self.latest, &self.target], endpoints, &cluster) {
            return;
        }
        if let Some(endpoints) = self.watches.get_mut(endpoints) {
            if endpoints.rejects(&cluster) {
                return;
            }
            if endpoints.covers(&cluster) {
                endpoints.resend(&cluster);
            }
        }
        self.owed.add(cluster);
    }

    /// Forgets resources that neither view has any more: they will not come.
    fn forget_missing_owed(&mut self) {
        let views = [&*self.latest, &*self.target];
        self.owed.retain(|name| warming().any(|(_, warmer)| is_there(&views, warmer, name)));
    }
}

/// The types that must be warmed, each with the type that warms it. A client has one such pair.
fn warming() -> impl Iterator<Item = (ResourceType, ResourceType)> {
    ResourceType::ALL.into_iter().filter_map(|kind| Some((kind, kind.properties().warmed_by?)))
}

fn is_there(views: &[&View], kind: ResourceType, name: &str) -> bool {
    views.iter().any(|view| view.get(kind, name).is_some())
}

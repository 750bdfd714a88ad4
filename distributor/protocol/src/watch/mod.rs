//! One type on one stream: its subscription, and the versions that the client has.

mod absent;
mod progress;
mod respond;
mod search;
mod settle;
mod subscribe;

pub(crate) use settle::Settled;

use crate::absent::Absent;
use crate::order::RemovalGate;
use crate::session::Protocol;
use crate::subscription::Subscription;
use crate::view::View;
use heliograph_snapshot::{Head, Removal, Resource, ResourceType, Version};
use search::{Search, Suspicion};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pointer plus exceptions: the client holds what it asked for as `view` has it, but for the names in
/// `exceptions`. Those are the work in hand, and in the steady state there are none.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    protocol: Protocol,
    kind: ResourceType,
    subscription: Subscription,
    view: Arc<View>,
    /// Where the stream's transition leads: mostly this view too, else one that this type follows to in its turn,
    /// or, with endpoints, that it ran ahead of.
    target: Arc<View>,
    /// Closed until all that this type refers to has arrived at the client for the first time.
    open: bool,
    exceptions: BTreeMap<Arc<str>, Exception>,
    /// Of the names that are asked for, those that the view does not have.
    absent: Absent,
    /// How many names the client said to hold from before that the view does not have, until nothing is in hand.
    resumed: usize,
    /// The newest reply, while it awaits its answer.
    in_flight: Option<Flight>,
    /// The newest reply since the client last had nothing to answer.
    reply_number: ReplyNumber,
    /// The client asked for everything and must receive an empty response, or it waits until it times out.
    answer_due: bool,
    /// The client holds something from another stream, and only its version is known: state of the world, until the
    /// first whole list is accepted.
    unknown: bool,
    /// The newest reply that was taken for accepted because the client kept silent, until it answers.
    presumed: Option<ReplyNumber>,
    /// The newest head of which the client acknowledged all that it asks for.
    confirmed: Option<Head>,
    search: Search,
}

/// Counts the replies of a type that await an answer. It starts again when none does, so that streams which received more
/// or fewer replies before are at the same position then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplyNumber(pub(crate) u64);

/// A reply that a client answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answered {
    pub(crate) reply_number: ReplyNumber,
    /// What it was built from.
    pub(crate) head: Head,
}

/// The content of a watch without pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdleWatch {
    wildcard: bool,
    named: bool,
    /// Where the names are in memory: equal sets are one.
    names: usize,
    view: u64,
    target: u64,
    open: bool,
    unknown: bool,
    confirmed: Option<Head>,
}

#[derive(Clone, Debug)]
struct Flight {
    /// The names in it.
    names: Vec<Arc<str>>,
    /// Nothing of the view is left for another reply.
    whole: bool,
}

#[derive(Clone, Debug)]
struct Exception {
    held: ClientCopy,
    /// The client asked by name, and is sent the resource whatever it holds.
    resend: bool,
    sent: Option<Content>,
    /// What is not sent again.
    rejected: Option<Content>,
    /// It was in a rejected reply, and is perhaps not to blame.
    suspected: Option<Suspicion>,
    /// `held` is only presumed.
    presumed: Option<Presumed>,
}

/// A silent client was taken to have accepted a reply. It may still answer otherwise, until this name is presumed
/// again: one step back is enough, and two would need a history.
#[derive(Clone, Debug)]
struct Presumed {
    reply_number: ReplyNumber,
    /// What it holds if so.
    before: ClientCopy,
}

/// The copy that a client holds under one name.
#[derive(Clone, Debug)]
enum ClientCopy {
    Nothing,
    /// Something from before it connected, at a version that is not the view's.
    Other,
    At(Arc<Resource>),
}

/// The content of a name: a resource, or none.
type Content = Option<Arc<Resource>>;

/// The next action for one exception.
enum Action<'a> {
    Send(Option<&'a Arc<Resource>>),
    /// Something once others have moved: mostly a removal, when nothing refers to it any more.
    Wait,
    /// Nothing until something changes.
    Keep,
    /// Nothing ever: the client drops such a resource by itself.
    Forget,
}

impl Watch {
    pub(crate) fn new(
        protocol: Protocol,
        kind: ResourceType,
        view: Arc<View>,
        target: Arc<View>,
    ) -> Self {
        Self {
            protocol,
            kind,
            subscription: Subscription::new(kind),
            view,
            target,
            open: false,
            exceptions: BTreeMap::new(),
            absent: Absent::default(),
            resumed: 0,
            in_flight: None,
            reply_number: ReplyNumber::default(),
            answer_due: false,
            unknown: false,
            presumed: None,
            confirmed: None,
            search: Search::default(),
        }
    }

    pub(crate) fn kind(&self) -> ResourceType {
        self.kind
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.subscription.covers(name)
    }

    /// How many resources the client asks for by name.
    pub(crate) fn names(&self) -> usize {
        self.subscription.names().iter().len()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn is_at(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, view)
    }

    pub(crate) fn has_in_flight(&self, name: &str) -> bool {
        self.exceptions.get(name).is_some_and(|exception| exception.sent.is_some())
    }

    /// Whether a reply awaits its answer.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The newest reply, if it awaits its answer or was presumed to be accepted.
    pub(crate) fn reply_number(&self) -> ReplyNumber {
        self.reply_number
    }

    /// The content, if there is no pending work.
    pub(crate) fn idle(&self) -> Option<IdleWatch> {
        let busy = self.is_in_flight() || self.presumed.is_some() || self.answer_due;
        let (subscription, unknown) = (&self.subscription, self.unknown);
        (!busy && self.exceptions.is_empty()).then(|| IdleWatch {
            wildcard: subscription.wildcard(),
            named: subscription.is_named(),
            names: subscription.names().address(),
            view: self.view.id(),
            target: self.target.id(),
            open: self.open,
            unknown,
            confirmed: self.confirmed,
        })
    }

    /// How much memory it keeps that `before` does not, in hundreds of bytes.
    pub(crate) fn size_beyond(&self, before: Option<&Self>) -> usize {
        let names = self.subscription.names();
        let known = before.is_some_and(|it| it.subscription.names().address() == names.address());
        let names = if known { 0 } else { names.size() };
        // A map of a few takes as much as one of a dozen.
        let exceptions = if self.exceptions.is_empty() { 0 } else { 10 + self.exceptions.len() };
        2 + exceptions + names
    }

    /// The newest head of which the client has acknowledged all that it asks for.
    pub(crate) fn acknowledged(&self) -> Option<Head> {
        if self.is_acknowledged() { Some(self.view.head()) } else { self.confirmed }
    }

    /// Whether the client has acknowledged all that the view has for it.
    fn is_acknowledged(&self) -> bool {
        let busy = self.in_flight.is_some() || self.answer_due || self.presumed.is_some();
        let mut exceptions = self.exceptions.iter();
        self.open && !busy && exceptions.all(|(name, exception)| self.agrees(name, exception))
    }

    /// Whether nothing is under way and nothing is left to add or change.
    pub(crate) fn has_made(&self) -> bool {
        self.open
            && self.in_flight.is_none()
            && !self.actions(RemovalGate::Blocked).any(|it| matches!(it, Action::Send(_)))
    }

    /// Whether there is something to send, now or once others have moved.
    pub(crate) fn has_pending(&self) -> bool {
        self.answer_due || !self.exceptions.is_empty()
    }

    /// Whether the view has something that the client does not hold and does not ask for by name: it asks for everything, and
    /// comes from when that was not there yet, or not any more.
    pub(crate) fn lacks_any(&self) -> bool {
        let mut exceptions = self.exceptions.values();
        exceptions.any(|it| matches!(it.held, ClientCopy::Nothing) && !it.resend)
    }

    /// Whether something that the target has is still to arrive at the client for the first time.
    pub(crate) fn awaits_any(&self) -> bool {
        self.exceptions.iter().any(|(name, exception)| {
            matches!(exception.held, ClientCopy::Nothing)
                && self.target.get(self.kind, name).is_some()
                && !exception.rejects(|| self.wanted(name))
        })
    }

    /// Whether nothing is under way and nothing is left to do, but for removals that a rejection holds.
    pub(crate) fn is_quiet(&self, removals: RemovalGate) -> bool {
        self.open
            && self.in_flight.is_none()
            && !self.actions(removals).any(|it| matches!(it, Action::Send(_) | Action::Wait))
    }

    /// Whether the client stays at older content because it, or others, rejected the newest. Resources that the older
    /// content refers to may be gone from the view.
    pub(crate) fn is_disputed(&self) -> bool {
        let mut held_back = self.view.all_held_back(self.kind);
        let mut exceptions = self.exceptions.iter();
        held_back
            .any(|newest| self.covers(&newest.name) && !self.holds(&newest.name, newest.version))
            || exceptions.any(|(name, exception)| exception.rejects(|| self.wanted(name)))
    }

    /// Whether the client holds this, as far as is known.
    pub(crate) fn holds(&self, name: &str, version: Version) -> bool {
        self.held(name) == Some(version)
    }

    /// The version that the client has of a name, as far as is known.
    pub(crate) fn held(&self, name: &str) -> Option<Version> {
        match self.exceptions.get(name).map(|exception| &exception.held) {
            Some(ClientCopy::At(held)) => Some(held.version),
            Some(ClientCopy::Nothing | ClientCopy::Other) => None,
            None if self.covers(name) => self.viewed(name).map(|it| it.version),
            None => None,
        }
    }

    pub(crate) fn rejects(&self, name: &str) -> bool {
        self.exceptions.get(name).is_some_and(|exception| exception.rejects(|| self.wanted(name)))
    }

    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Moves on to a newer view. Resources that differ become exceptions, so the cost is in proportion to the change.
    pub(crate) fn advance(&mut self, view: &Arc<View>) {
        // Another view of the same head is still to be acknowledged.
        self.confirmed = self.acknowledged().filter(|head| *head < view.head());
        for difference in view.tree(self.kind).differences(self.view.tree(self.kind)) {
            // What is gone may have to be removed from a client of which that is not known.
            self.answer_due |= self.unknown;
            let Some(resource) = difference.after.or(difference.before) else { continue };
            if self.subscription.names().contains(&resource.name) {
                match (difference.before, difference.after) {
                    (None, Some(_)) => self.absent.remove(&resource.name),
                    (Some(_), None) => self.absent.add(&resource.name),
                    _ => {}
                }
            }
            if self.subscription.covers(&resource.name) {
                self.exceptions
                    .entry(resource.name.clone())
                    .or_insert_with(|| Exception::holding(difference.before));
            }
        }
        self.view = view.clone();
        self.tidy();
    }

    /// To be called when all that follows from an input is done: two streams that are in the same position must not
    /// differ in what they remember of the way.
    pub(crate) fn normalise(&mut self) {
        if self.is_acknowledged() {
            self.confirmed = Some(self.view.head());
        }
        if self.in_flight.is_none() && self.presumed.is_none() {
            self.reply_number = ReplyNumber::default();
        }
        if self.exceptions.is_empty() {
            self.resumed = 0;
        }
        self.end_search();
    }

    pub(crate) fn set_target(&mut self, target: &Arc<View>) {
        self.target = target.clone();
    }

    /// Has a resource sent once more, although the client may hold it.
    pub(crate) fn resend(&mut self, name: &Arc<str>) {
        let held = self.view.get(self.kind, name);
        self.exceptions.entry(name.clone()).or_insert_with(|| Exception::holding(held)).resend =
            true;
    }

    fn unexceptional(&self) -> Vec<Arc<Resource>> {
        let plain = |name: &Arc<str>| !self.exceptions.contains_key(name);
        if self.subscription.wildcard() {
            let all = self.view.ordered(self.kind).iter();
            all.filter(|resource| plain(&resource.name)).cloned().collect()
        } else {
            let named = self.subscription.names().iter().filter(|name| plain(name));
            named.filter_map(|name| self.viewed(name)).cloned().collect()
        }
    }

    fn viewed(&self, name: &str) -> Option<&Arc<Resource>> {
        self.view.get(self.kind, name)
    }

    /// The resource that the client is to have. Endpoints of the target stay, although the newer view dropped them: the
    /// clusters that use them are still there.
    fn wanted(&self, name: &str) -> Option<&Arc<Resource>> {
        let wanted = self.viewed(name);
        if self.kind.properties().is_immediate {
            return wanted.or_else(|| self.target.get(self.kind, name));
        }
        wanted
    }

    /// The newest version, which this client has although it is in quarantine for others.
    fn held_back<'a>(&'a self, name: &str, exception: &'a Exception) -> Option<&'a Arc<Resource>> {
        let ClientCopy::At(held) = &exception.held else { return None };
        let held_back = self.view.held_back(self.kind, name)?;
        (held.version == held_back.version).then_some(held)
    }

    /// Whether the client is known to hold what it is to hold, and there is nothing to say.
    fn agrees(&self, name: &str, exception: &Exception) -> bool {
        exception.agrees(|| self.held_back(name, exception).or_else(|| self.viewed(name)))
    }

    fn actions(&self, removals: RemovalGate) -> impl Iterator<Item = Action<'_>> {
        self.exceptions.iter().map(move |(name, exception)| self.action(name, exception, removals))
    }

    fn action<'a>(
        &'a self,
        name: &str,
        exception: &'a Exception,
        removals: RemovalGate,
    ) -> Action<'a> {
        if exception.sent.is_some() || exception.rejects(|| self.wanted(name)) {
            return Action::Keep;
        }
        let kept = self.held_back(name, exception);
        match (kept.or_else(|| self.wanted(name)), &exception.held) {
            (Some(wanted), ClientCopy::At(held))
                if held.version == wanted.version && !exception.resend =>
            {
                Action::Keep
            }
            (Some(wanted), _) => Action::Send(Some(wanted)),
            (None, ClientCopy::Nothing) if exception.resend && self.can_send_removals() => {
                // What the target has will be there in a moment: that is not the time to deny it.
                let soon = self.target.get(self.kind, name).is_some();
                if soon { Action::Wait } else { Action::Send(None) }
            }
            (None, ClientCopy::Nothing) if exception.presumed.is_some() => Action::Keep,
            (None, ClientCopy::Nothing) => Action::Forget,
            (None, _) if !self.can_send_removals() => Action::Forget,
            (None, held) => match (removals, held) {
                (RemovalGate::Open, _) => Action::Send(None),
                (_, ClientCopy::At(held)) if exception.resend => Action::Send(Some(held)),
                (RemovalGate::Waiting, _) => Action::Wait,
                (RemovalGate::Blocked, _) => Action::Keep,
            },
        }
    }

    /// Whether a removal can be sent at all. State of the world has no field for it but the absence from a whole
    /// list. In delta it is left out where Envoy drops what nothing refers to by itself, and a removal would do harm.
    fn can_send_removals(&self) -> bool {
        match self.protocol {
            Protocol::Delta => self.kind.properties().removal == Removal::Sent,
            Protocol::StateOfTheWorld => self.lists_everything(),
        }
    }

    fn lists_everything(&self) -> bool {
        self.kind.is_asked_whole() && self.protocol == Protocol::StateOfTheWorld
    }

    /// Drops an exception if it is none any more.
    fn tidy_up(&mut self, name: &str) {
        let (view, kind) = (&self.view, self.kind);
        let is_none = |exception: &Exception| exception.is_none(|| view.get(kind, name));
        if self.exceptions.get(name).is_some_and(is_none) {
            self.exceptions.remove(name);
        }
    }

    /// Drops the exceptions that are none any more.
    fn tidy(&mut self) {
        let (view, kind) = (&self.view, self.kind);
        self.exceptions.retain(|name, exception| !exception.is_none(|| view.get(kind, name)));
    }
}

impl Exception {
    fn holding(resource: Option<&Arc<Resource>>) -> Self {
        Self::new(resource.map_or(ClientCopy::Nothing, |resource| ClientCopy::At(resource.clone())))
    }

    fn new(held: ClientCopy) -> Self {
        let (sent, rejected, suspected, presumed) = (None, None, None, None);
        Self { held, resend: false, sent, rejected, suspected, presumed }
    }

    // The content is looked up only where the rest does not decide: with a thousand exceptions that is most of the work.

    fn rejects<'a>(&self, content: impl FnOnce() -> Option<&'a Arc<Resource>>) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| {
            rejected.as_ref().map(|resource| resource.version)
                == content().map(|resource| resource.version)
        })
    }

    /// Whether the client is known to hold what the view has, and there is nothing to say.
    fn agrees<'a>(&self, viewed: impl FnOnce() -> Option<&'a Arc<Resource>>) -> bool {
        let quiet = !self.resend && self.sent.is_none() && self.presumed.is_none();
        quiet
            && match (&self.held, viewed()) {
                (ClientCopy::Nothing, None) => true,
                (ClientCopy::At(held), Some(viewed)) => held.version == viewed.version,
                _ => false,
            }
    }

    /// A rejection is remembered for as long as the name lives and the client accepts nothing else of it.
    fn is_none<'a>(&self, viewed: impl Fn() -> Option<&'a Arc<Resource>>) -> bool {
        self.agrees(&viewed) && (self.rejected.is_none() || viewed().is_none())
    }
}

fn version_of(resources: &[Arc<Resource>]) -> Version {
    Version::of_set(resources.iter().map(|resource| (&*resource.name, resource.version)))
}

//! One type on one stream: what the client asked for, and what it holds.

mod ask;
mod settle;

pub(crate) use settle::Settled;

use crate::nonce::{Nonce, Nonces};
use crate::order::Gate;
use crate::reply::Reply;
use crate::session::Protocol;
use crate::subscription::Subscription;
use crate::view::View;
use heliograph_snapshot::{Resource, ResourceType, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A pointer plus exceptions: the client holds what it asked for as `view` has it, but for the names in
/// `exceptions`. Those are the work in hand, and in the steady state there are none.
#[derive(Debug)]
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
    /// Since when the newest reply awaits its answer.
    in_flight: Option<Duration>,
    /// The newest reply, which stays the current nonce once it is acknowledged.
    last: Option<Nonce>,
    /// The client asked for everything and must hear that there is nothing, or it waits until it times out.
    answer_due: bool,
    /// The client holds something from another stream, and only its version is known: state of the world, until the
    /// first whole list is accepted.
    unknown: bool,
    /// The last reply was taken for accepted because the client kept silent.
    presumed: bool,
}

#[derive(Debug)]
struct Exception {
    held: Held,
    /// The client asked by name, and is answered whatever it holds.
    tell: bool,
    sent: Option<Content>,
    rejected: Option<Content>,
}

/// What a client holds under one name.
#[derive(Debug)]
enum Held {
    Nothing,
    /// Something from before it connected, at a version that is not the view's.
    Other,
    At(Arc<Resource>),
}

/// What a name stands for: a resource, or that there is none.
type Content = Option<Arc<Resource>>;

/// What to do about one exception.
enum Step<'a> {
    Send(Option<&'a Arc<Resource>>),
    /// Something once others have moved: mostly a removal, when nothing refers to it any more.
    Wait,
    /// Nothing until something changes.
    Rest,
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
            in_flight: None,
            last: None,
            answer_due: false,
            unknown: false,
            presumed: false,
        }
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.subscription.covers(name)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn is_at(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, view)
    }

    pub(crate) fn in_flight_since(&self) -> Option<Duration> {
        self.in_flight
    }

    /// Whether the client has acknowledged all that the view has for it.
    pub(crate) fn is_acknowledged(&self) -> bool {
        let busy = self.in_flight.is_some() || self.answer_due || self.presumed;
        let mut exceptions = self.exceptions.iter();
        self.open
            && !busy
            && exceptions.all(|(name, exception)| exception.agrees(self.view.get(self.kind, name)))
    }

    /// Whether nothing is under way and nothing is left to add or change.
    pub(crate) fn has_made(&self) -> bool {
        self.open
            && self.in_flight.is_none()
            && !self.steps(Gate::Held).any(|step| matches!(step, Step::Send(_)))
    }

    /// Whether something that the target has is still to arrive at the client for the first time.
    pub(crate) fn awaits_any(&self) -> bool {
        self.exceptions.iter().any(|(name, exception)| {
            let target = self.target.get(self.kind, name);
            let nothing = matches!(exception.held, Held::Nothing);
            nothing && target.is_some() && !exception.rejects(self.wanted(name))
        })
    }

    /// Whether nothing is under way and nothing is left to do, but for removals that a rejection holds.
    pub(crate) fn is_quiet(&self, removals: Gate) -> bool {
        self.open
            && self.in_flight.is_none()
            && !self.steps(removals).any(|step| matches!(step, Step::Send(_) | Step::Wait))
    }

    /// Whether the client stays at older content because it rejected the view's.
    pub(crate) fn is_disputed(&self) -> bool {
        self.exceptions.iter().any(|(name, exception)| exception.rejects(self.wanted(name)))
    }

    pub(crate) fn rejects(&self, name: &str) -> bool {
        self.exceptions.get(name).is_some_and(|exception| exception.rejects(self.wanted(name)))
    }

    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Sets out for a newer view. What differs becomes an exception, so this costs what changed.
    pub(crate) fn advance(&mut self, view: &Arc<View>) {
        for difference in view.tree(self.kind).differences(self.view.tree(self.kind)) {
            // What is gone may have to be removed from a client of which that is not known.
            self.answer_due |= self.unknown;
            let Some(resource) = difference.after.or(difference.before) else { continue };
            if self.subscription.covers(&resource.name) {
                self.exceptions
                    .entry(resource.name.clone())
                    .or_insert_with(|| Exception::holding(difference.before));
            }
        }
        self.view = view.clone();
        self.tidy();
    }

    pub(crate) fn aim(&mut self, target: &Arc<View>) {
        self.target = target.clone();
    }

    /// Has a resource sent once more, although the client may hold it.
    pub(crate) fn tell(&mut self, name: &Arc<str>) {
        let held = self.view.get(self.kind, name);
        self.exceptions.entry(name.clone()).or_insert_with(|| Exception::holding(held)).tell = true;
    }

    /// The next reply, if there is something to say and no other reply of this type is under way. Beside it, the
    /// names that it adds or changes.
    pub(crate) fn reply(
        &mut self,
        removals: Gate,
        nonces: &mut Nonces,
        now: Duration,
    ) -> Option<(Reply, Vec<Arc<str>>)> {
        if !self.open || self.in_flight.is_some() {
            return None;
        }
        let (mut sends, mut forgotten) = (Vec::new(), Vec::new());
        for (name, exception) in &self.exceptions {
            match self.step(name, exception, removals) {
                Step::Send(content) => sends.push((name.clone(), content.cloned())),
                Step::Forget => forgotten.push(name.clone()),
                Step::Wait | Step::Rest => {}
            }
        }
        for name in forgotten {
            self.exceptions.remove(&name);
        }
        if self.kind == ResourceType::Route {
            one_table(&mut sends);
        }
        if sends.is_empty() && !self.answer_due {
            return None;
        }
        if self.lists_everything() && self.unknown {
            self.list_the_unknown(&mut sends);
        }
        for (name, content) in &sends {
            if let Some(exception) = self.exceptions.get_mut(name) {
                exception.sent = Some(content.clone());
                exception.tell = false;
            }
        }
        self.answer_due = false;
        let nonce = nonces.next(self.view.head());
        self.in_flight = Some(now);
        self.last = Some(nonce);
        let changed = sends.iter().filter(|(_, content)| content.is_some());
        let changed = changed.map(|(name, _)| name.clone()).collect();
        Some((self.written(nonce, sends), changed))
    }

    fn written(&self, nonce: Nonce, sends: Vec<(Arc<str>, Content)>) -> Reply {
        let (kind, nonce) = (self.kind, nonce.to_string());
        match self.protocol {
            Protocol::Delta => {
                let (mut resources, mut removed) = (Vec::new(), Vec::new());
                for (name, content) in sends {
                    match content {
                        Some(resource) => resources.push(resource),
                        None => removed.push(name),
                    }
                }
                let version = self.view.head().to_string();
                Reply { kind, nonce, version, resources, removed }
            }
            Protocol::StateOfTheWorld => {
                let held = self.held_after();
                let version = version_of(&held).to_string();
                // "For Listener and Cluster the server must include the complete state of the world"; the
                // responses of other types may be partial.
                let resources = if self.lists_everything() {
                    held
                } else {
                    sends.into_iter().filter_map(|(_, content)| content).collect()
                };
                Reply { kind, nonce, version, resources, removed: Vec::new() }
            }
        }
    }

    /// All that the client holds once it accepts what is in flight, by name.
    fn held_after(&self) -> Vec<Arc<Resource>> {
        let mut held = self.unexceptional();
        held.extend(self.exceptions.values().filter_map(|exception| {
            match (&exception.sent, &exception.held) {
                (Some(content), _) => content.clone(),
                (None, Held::At(resource)) => Some(resource.clone()),
                (None, Held::Nothing | Held::Other) => None,
            }
        }));
        held.sort_by(|one, other| one.name.cmp(&other.name));
        held
    }

    fn unexceptional(&self) -> Vec<Arc<Resource>> {
        let plain = |resource: &&Arc<Resource>| !self.exceptions.contains_key(&resource.name);
        if self.subscription.wildcard() {
            self.view.ordered(self.kind).iter().filter(plain).cloned().collect()
        } else {
            let named = self.subscription.names().iter();
            named.filter_map(|name| self.view.get(self.kind, name)).filter(plain).cloned().collect()
        }
    }

    /// What the client is to hold. Endpoints that the target has stay, although the view beyond it dropped them:
    /// the clusters that use them are still there.
    fn wanted(&self, name: &str) -> Option<&Arc<Resource>> {
        let wanted = self.view.get(self.kind, name);
        if self.kind == ResourceType::Endpoints {
            return wanted.or_else(|| self.target.get(self.kind, name));
        }
        wanted
    }

    fn steps(&self, removals: Gate) -> impl Iterator<Item = Step<'_>> {
        self.exceptions.iter().map(move |(name, exception)| self.step(name, exception, removals))
    }

    fn step<'a>(&'a self, name: &str, exception: &'a Exception, removals: Gate) -> Step<'a> {
        let wanted = self.wanted(name);
        if exception.sent.is_some() || exception.rejects(wanted) {
            return Step::Rest;
        }
        match (wanted, &exception.held) {
            (Some(wanted), Held::At(held)) if held.version == wanted.version && !exception.tell => {
                Step::Rest
            }
            (Some(wanted), _) => Step::Send(Some(wanted)),
            (None, Held::Nothing) if exception.tell && self.says_removals() => {
                // What the target has will be there in a moment: that is not the time to deny it.
                let soon = self.target.get(self.kind, name).is_some();
                if soon { Step::Wait } else { Step::Send(None) }
            }
            (None, Held::Nothing) => Step::Forget,
            (None, _) if !self.says_removals() => Step::Forget,
            (None, held) => match (removals, held) {
                (Gate::Open, _) => Step::Send(None),
                (_, Held::At(held)) if exception.tell => Step::Send(Some(held)),
                (Gate::Waiting, _) => Step::Wait,
                (Gate::Held, _) => Step::Rest,
            },
        }
    }

    /// Whether a removal can be said at all. State of the world has no words for it but the absence from a whole
    /// list. In delta a secret's removal is left out: Envoy drops a secret once nothing refers to it, and rejects
    /// being told to.
    fn says_removals(&self) -> bool {
        match self.protocol {
            Protocol::Delta => self.kind != ResourceType::Secret,
            Protocol::StateOfTheWorld => self.lists_everything(),
        }
    }

    fn lists_everything(&self) -> bool {
        let whole = matches!(self.kind, ResourceType::Cluster | ResourceType::Listener);
        whole && self.protocol == Protocol::StateOfTheWorld
    }

    /// To leave a name out of a whole list is to remove it. What the client rejected is listed as it last accepted
    /// it, and while that is not known, as it is.
    fn list_the_unknown(&self, sends: &mut Vec<(Arc<str>, Content)>) {
        let listed = |name: &Arc<str>| sends.binary_search_by(|(sent, _)| sent.cmp(name)).is_ok();
        let names = self.exceptions.keys().filter(|name| !listed(name));
        let more: Vec<_> = names.map(|name| (name.clone(), self.wanted(name).cloned())).collect();
        sends.extend(more);
    }

    /// Drops the exceptions that are none any more.
    fn tidy(&mut self) {
        let (view, kind) = (&self.view, self.kind);
        self.exceptions.retain(|name, exception| !exception.is_none(view.get(kind, name)));
    }
}

impl Exception {
    fn holding(resource: Option<&Arc<Resource>>) -> Self {
        Self::new(resource.map_or(Held::Nothing, |resource| Held::At(resource.clone())))
    }

    fn new(held: Held) -> Self {
        Self { held, tell: false, sent: None, rejected: None }
    }

    fn rejects(&self, content: Option<&Arc<Resource>>) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| {
            rejected.as_ref().map(|resource| resource.version)
                == content.map(|resource| resource.version)
        })
    }

    /// Whether the client holds what the view has, and there is nothing to say.
    fn agrees(&self, viewed: Option<&Arc<Resource>>) -> bool {
        let same = match (&self.held, viewed) {
            (Held::Nothing, None) => true,
            (Held::At(held), Some(viewed)) => held.version == viewed.version,
            _ => false,
        };
        same && !self.tell && self.sent.is_none()
    }

    /// A rejection is remembered for as long as the name lives and the client accepts nothing else of it.
    fn is_none(&self, viewed: Option<&Arc<Resource>>) -> bool {
        self.agrees(viewed) && (self.rejected.is_none() || viewed.is_none())
    }
}

fn version_of(resources: &[Arc<Resource>]) -> Version {
    Version::of_set(resources.iter().map(|resource| (&*resource.name, resource.version)))
}

/// One route table a response: Envoy applies none of the tables beside a bad one.
fn one_table(sends: &mut Vec<(Arc<str>, Content)>) {
    if let Some(at) = sends.iter().position(|(_, content)| content.is_some()) {
        sends.swap(0, at);
        sends.truncate(1);
    }
}

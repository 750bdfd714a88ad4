//! One stream under test, driven by hand, and views to drive it with.

use heliograph_distributor_protocol::{
    Event, Output, Protocol, Reply, Request, RequestError, Session, SubscriptionRequest,
    Substitute, TransitionCache, View,
};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use Protocol::{Delta, StateOfTheWorld};
pub(crate) use ResourceType::{Cluster, Endpoints, ExtensionConfig, Listener, Route, Secret};

pub(crate) const BOTH: [Protocol; 2] = [Delta, StateOfTheWorld];

pub(crate) struct Stream {
    pub(crate) session: Session,
    pub(crate) protocol: Protocol,
    pub(crate) now: Duration,
    pub(crate) events: Vec<Event>,
    /// State of the world repeats names and version with every request.
    names: BTreeMap<ResourceType, BTreeSet<String>>,
    accepted: BTreeMap<ResourceType, String>,
    nonces: BTreeMap<ResourceType, String>,
}

pub(crate) fn view(sequence: u64, resources: &[(ResourceType, &str, &str)]) -> Arc<View> {
    view_with(sequence, resources, Vec::new())
}

pub(crate) fn view_with(
    sequence: u64,
    resources: &[(ResourceType, impl AsRef<str>, impl AsRef<str>)],
    substitutes: Vec<Substitute>,
) -> Arc<View> {
    let changes = resources.iter().map(|(kind, name, content)| {
        let body = bytes::Bytes::from(content.as_ref().to_owned());
        Change::Set(*kind, Arc::new(Resource::new(name.as_ref(), body)))
    });
    let head = Head { epoch: 0, fence: 1, sequence };
    let snapshot = Snapshot::empty(FleetName::new("default", "gateway")).with(head, changes);
    Arc::new(View::with(Arc::new(snapshot), substitutes.into()))
}

pub(crate) fn names(reply: &Reply) -> Vec<&str> {
    reply.resources.iter().map(|resource| &*resource.name).collect()
}

pub(crate) fn removed(reply: &Reply) -> Vec<&str> {
    reply.removed.iter().map(|name| &**name).collect()
}

/// Names and bodies, which are text here.
pub(crate) fn content(reply: &Reply) -> Vec<(&str, &str)> {
    let resources = reply.resources.iter();
    resources.map(|r| (&*r.name, std::str::from_utf8(&r.body).unwrap())).collect()
}

pub(crate) fn kinds(replies: &[Reply]) -> Vec<ResourceType> {
    replies.iter().map(|reply| reply.kind).collect()
}

/// The only reply there is.
#[track_caller]
pub(crate) fn one(replies: Vec<Reply>) -> Reply {
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.into_iter().next().unwrap()
}

pub(crate) fn none<T>() -> Vec<T> {
    Vec::new()
}

impl Stream {
    pub(crate) fn new(protocol: Protocol, view: Arc<View>) -> Self {
        Self::among(Arc::default(), protocol, view)
    }

    /// One of several that share what they decide.
    pub(crate) fn among(
        transitions: Arc<TransitionCache>,
        protocol: Protocol,
        view: Arc<View>,
    ) -> Self {
        Self {
            session: Session::new(protocol, view, transitions),
            protocol,
            now: Duration::ZERO,
            events: Vec::new(),
            names: BTreeMap::new(),
            accepted: BTreeMap::new(),
            nonces: BTreeMap::new(),
        }
    }

    /// Asks for more names. An empty list is a request without names.
    pub(crate) fn ask(&mut self, kind: ResourceType, more: &[&str]) -> Vec<Reply> {
        let nonce = match self.protocol {
            Delta => String::new(),
            StateOfTheWorld => self.nonces.get(&kind).cloned().unwrap_or_default(),
        };
        let subscription_request = self.subscription_request(kind, more, &[]);
        self.request(kind, &nonce, None, subscription_request)
    }

    pub(crate) fn unask(&mut self, kind: ResourceType, fewer: &[&str]) -> Vec<Reply> {
        let nonce = match self.protocol {
            Delta => String::new(),
            StateOfTheWorld => self.nonces.get(&kind).cloned().unwrap_or_default(),
        };
        let subscription_request = self.subscription_request(kind, &[], fewer);
        self.request(kind, &nonce, None, subscription_request)
    }

    /// The first request of a type after a reconnect.
    pub(crate) fn resume(
        &mut self,
        kind: ResourceType,
        more: &[&str],
        held: &[(&str, &str)],
        version: &str,
    ) -> Vec<Reply> {
        if !version.is_empty() {
            self.accepted.insert(kind, version.to_owned());
        }
        let subscription_request = self.resuming(kind, more, held, version);
        self.request(kind, "", None, subscription_request)
    }

    /// What the first request of a type asks for after a reconnect.
    pub(crate) fn resuming(
        &mut self,
        kind: ResourceType,
        more: &[&str],
        held: &[(&str, &str)],
        version: &str,
    ) -> SubscriptionRequest {
        let mut subscription_request = self.subscription_request(kind, more, &[]);
        match &mut subscription_request {
            SubscriptionRequest::Change { held: map, .. } => {
                *map = held.iter().map(|(name, v)| (name.to_string(), v.to_string())).collect();
            }
            SubscriptionRequest::Whole { version: v, .. } => *v = version.to_owned(),
        }
        subscription_request
    }

    pub(crate) fn ack(&mut self, reply: &Reply) -> Vec<Reply> {
        self.ack_and_ask(reply, &[])
    }

    pub(crate) fn ack_and_ask(&mut self, reply: &Reply, more: &[&str]) -> Vec<Reply> {
        self.accepted.insert(reply.kind, reply.version.clone());
        self.nonces.insert(reply.kind, reply.nonce.clone());
        let subscription_request = self.subscription_request(reply.kind, more, &[]);
        self.request(reply.kind, &reply.nonce, None, subscription_request)
    }

    pub(crate) fn nack(&mut self, reply: &Reply, error: &str) -> Vec<Reply> {
        self.nack_and_ask(reply, error, &[])
    }

    pub(crate) fn nack_and_ask(&mut self, reply: &Reply, error: &str, more: &[&str]) -> Vec<Reply> {
        self.nonces.insert(reply.kind, reply.nonce.clone());
        let subscription_request = self.subscription_request(reply.kind, more, &[]);
        self.request(reply.kind, &reply.nonce, Some(error), subscription_request)
    }

    pub(crate) fn accepted_versions(&self) -> BTreeMap<ResourceType, String> {
        self.accepted.clone()
    }

    pub(crate) fn view(&mut self, view: &Arc<View>) -> Vec<Reply> {
        let output = self.session.on_view(self.now, view);
        self.record(output)
    }

    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Reply> {
        self.now += time;
        let output = self.session.on_clock(self.now);
        self.record(output)
    }

    /// Acknowledges what comes until nothing comes, and gives it in order.
    pub(crate) fn settle(&mut self, replies: Vec<Reply>) -> Vec<Reply> {
        let mut seen = Vec::new();
        let mut pending: std::collections::VecDeque<_> = replies.into();
        while let Some(reply) = pending.pop_front() {
            pending.extend(self.ack(&reply));
            seen.push(reply);
        }
        seen
    }

    pub(crate) fn subscription_request(
        &mut self,
        kind: ResourceType,
        more: &[&str],
        fewer: &[&str],
    ) -> SubscriptionRequest {
        let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let all = self.names.entry(kind).or_default();
        all.extend(more.iter().map(|name| name.to_string()));
        all.retain(|name| !fewer.contains(&name.as_str()));
        match self.protocol {
            Delta => SubscriptionRequest::Change {
                subscribe: strings(more),
                unsubscribe: strings(fewer),
                held: BTreeMap::new(),
            },
            StateOfTheWorld => SubscriptionRequest::Whole {
                names: all.iter().cloned().collect(),
                version: self.accepted.get(&kind).cloned().unwrap_or_default(),
            },
        }
    }

    pub(crate) fn request(
        &mut self,
        kind: ResourceType,
        nonce: &str,
        error: Option<&str>,
        subscription_request: SubscriptionRequest,
    ) -> Vec<Reply> {
        self.try_request(kind.type_url(), nonce, error, subscription_request).unwrap()
    }

    pub(crate) fn try_request(
        &mut self,
        type_url: &str,
        nonce: &str,
        error: Option<&str>,
        subscription_request: SubscriptionRequest,
    ) -> Result<Vec<Reply>, RequestError> {
        let request = Request::new(type_url, nonce, error, subscription_request);
        let output = self.session.on_request(self.now, &request)?;
        Ok(self.record(output))
    }

    fn record(&mut self, output: Output) -> Vec<Reply> {
        self.events.extend(output.event);
        output.replies
    }
}

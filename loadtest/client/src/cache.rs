use crate::references;
use crate::request::Ask;
use crate::resources::{HeldResource, Resources};
use crate::response::{Received, Response};
use crate::wire::Protocol;
use bytes::Bytes;
use heliograph_snapshot::ResourceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The resources that a simulated Envoy holds. Many clients share one: it decides what to request, and others send it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceCache {
    protocol: Protocol,
    /// By type and name.
    pub held: BTreeMap<ResourceType, Resources>,
    asked: BTreeMap<ResourceType, Arc<BTreeSet<Arc<str>>>>,
    /// Names that were asked for and that the server said do not exist.
    absent: BTreeSet<(ResourceType, Arc<str>)>,
    /// State of the world: the version of the last accepted response.
    versions: BTreeMap<ResourceType, Arc<str>>,
    /// On the current stream.
    started: BTreeSet<ResourceType>,
    answered: BTreeSet<ResourceType>,
}

/// Validates a resource: `Some` is why it is rejected.
pub type Validator = dyn Fn(ResourceType, &str, &[u8]) -> Option<String> + Send + Sync;

/// The effect of a response.
pub(crate) struct Effect {
    pub(crate) received: Received,
    pub(crate) resources: Vec<(String, HeldResource)>,
    /// How many of the resources were held just so before.
    pub(crate) resent: usize,
    pub(crate) asks: Vec<Ask>,
}

impl ResourceCache {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            held: BTreeMap::new(),
            asked: BTreeMap::new(),
            absent: BTreeSet::new(),
            versions: BTreeMap::new(),
            started: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn names(&self, kind: ResourceType) -> Vec<&str> {
        self.held.get(&kind).into_iter().flatten().map(|(name, _)| &**name).collect()
    }

    pub fn body(&self, kind: ResourceType, name: &str) -> Option<&Bytes> {
        self.held.get(&kind)?.get(name).map(|held| &held.body)
    }

    /// Whether everything was answered that Envoy needs before it takes traffic.
    pub fn is_warm(&self) -> bool {
        ResourceType::ALL.into_iter().all(|kind| match kind.is_asked_whole() {
            true => self.answered.contains(&kind),
            false => self.has_answers(kind),
        })
    }

    /// The first requests of a stream. A client that was connected before asks for all that it has at once, and says
    /// what it holds; a new one asks for clusters, and for the rest as it goes.
    pub(crate) fn open(&mut self) -> Vec<Ask> {
        let again = std::mem::take(&mut self.started);
        self.answered.clear();
        self.absent.clear();
        let mut asks = vec![self.first(ResourceType::Cluster)];
        let others = again.into_iter().filter(|kind| *kind != ResourceType::Cluster);
        asks.extend(others.map(|kind| self.first(kind)));
        asks
    }

    /// Applies a response. Returns what to answer, and what to request because of it.
    pub(crate) fn receive(&mut self, response: Response, validator: &Validator) -> Effect {
        let kind = response.kind;
        let mut resources = Vec::with_capacity(response.resources.len());
        let mut errors = Vec::new();
        let whole_version: Arc<str> = response.version.as_str().into();
        for (version, body) in response.resources {
            match references::name(kind, &body) {
                None => errors.push("a resource that cannot be read".to_owned()),
                Some(name) => {
                    errors.extend(validator(kind, &name, &body));
                    let version =
                        if version.is_empty() { whole_version.clone() } else { version.into() };
                    resources.push((name, HeldResource { version, body }));
                }
            }
        }
        let received = Received {
            kind,
            nonce: response.nonce,
            version: response.version,
            control_plane: response.control_plane,
            names: resources.iter().map(|(name, _)| name.clone()).collect(),
            removed: response.removed,
            whole: response.whole,
            accepted: errors.is_empty(),
        };
        self.answered.insert(kind);
        if !errors.is_empty() {
            let asks = vec![Ask { error: Some(errors.join("; ")), ..self.acknowledgement(kind) }];
            return Effect { received, resources, resent: 0, asks };
        }
        if self.protocol == Protocol::StateOfTheWorld {
            self.versions.insert(kind, whole_version);
        }
        let resent = self.apply(&received, &resources);
        let mut asks = vec![self.acknowledgement(kind)];
        asks.extend(self.follow(kind));
        Effect { received, resources, resent, asks }
    }

    /// The last acknowledgement of clusters once more.
    pub(crate) fn acknowledged(&self) -> Ask {
        self.acknowledgement(ResourceType::Cluster)
    }

    fn apply(&mut self, received: &Received, resources: &[(String, HeldResource)]) -> usize {
        let kind = received.kind;
        let held = self.held.entry(kind).or_default();
        if received.whole {
            let names: BTreeSet<&str> = received.names.iter().map(String::as_str).collect();
            held.retain(|name| names.contains(name));
        }
        // Envoy does not keep what it did not ask for.
        let asked = self.asked.get(&kind);
        let wanted =
            |name: &str| kind.is_asked_whole() || asked.is_some_and(|asked| asked.contains(name));
        let mut resent = 0;
        for (name, resource) in resources.iter().filter(|(name, _)| wanted(name)) {
            self.absent.remove(&(kind, name.as_str().into()));
            resent += usize::from(held.insert(name, resource.clone()));
        }
        for name in &received.removed {
            held.remove(name);
            let name = asked.and_then(|asked| asked.get(name.as_str()));
            self.absent.extend(name.map(|name| (kind, name.clone())));
        }
        resent
    }

    /// Asks for what it needs because of what it holds, and no longer for what nothing needs.
    fn follow(&mut self, changed: ResourceType) -> Vec<Ask> {
        let mut asks = Vec::new();
        let mut named = asked_by_name();
        if named.any(|kind| kind.properties().referrers.contains(&changed)) {
            let mut needed = self.needed();
            for kind in asked_by_name() {
                asks.extend(self.want(kind, needed.remove(&kind).unwrap_or_default()));
            }
        }
        // Envoy asks for listeners once its clusters are warm.
        let mut warming = asked_by_name().filter(|kind| kind.warmed().is_some());
        if !self.started.contains(&ResourceType::Listener)
            && warming.all(|kind| self.has_answers(kind))
        {
            asks.push(self.first(ResourceType::Listener));
        }
        asks
    }

    fn needed(&self) -> BTreeMap<ResourceType, BTreeSet<Arc<str>>> {
        let mut needed: BTreeMap<ResourceType, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (kind, held) in &self.held {
            let needs = held.into_iter().flat_map(|(_, held)| references::needs(*kind, &held.body));
            for (kind, name) in needs {
                needed.entry(kind).or_default().insert(name.into());
            }
        }
        needed
    }

    fn want(&mut self, kind: ResourceType, needed: BTreeSet<Arc<str>>) -> Option<Ask> {
        let asked = self.asked.get(&kind).cloned().unwrap_or_default();
        if needed == *asked {
            return None;
        }
        if let Some(held) = self.held.get_mut(&kind) {
            held.retain(|name| needed.contains(name));
        }
        self.absent.retain(|(absent, name)| *absent != kind || needed.contains(name));
        let subscribe = needed.difference(&asked).cloned().collect();
        let unsubscribe = asked.difference(&needed).cloned().collect();
        self.asked.insert(kind, Arc::new(needed));
        let ask = if self.started.contains(&kind) { self.request(kind) } else { self.first(kind) };
        Some(Ask { subscribe, unsubscribe, ..ask })
    }

    fn has_answers(&self, kind: ResourceType) -> bool {
        self.asked.get(&kind).into_iter().flat_map(|asked| asked.iter()).all(|name| {
            let held = self.held.get(&kind).is_some_and(|held| held.contains_key(name));
            held || self.absent.contains(&(kind, name.clone()))
        })
    }

    fn first(&mut self, kind: ResourceType) -> Ask {
        self.started.insert(kind);
        let held = self.held.get(&kind).into_iter().flatten();
        Ask {
            replies: false,
            subscribe: self.asked(kind),
            held: held.map(|(name, held)| (name.clone(), held.version.clone())).collect(),
            ..self.request(kind)
        }
    }

    fn acknowledgement(&self, kind: ResourceType) -> Ask {
        Ask { replies: true, ..self.request(kind) }
    }

    /// A request of the client's own accord. In state of the world it bears the last nonce of its type, as every
    /// request there.
    fn request(&self, kind: ResourceType) -> Ask {
        Ask {
            kind,
            replies: self.protocol == Protocol::StateOfTheWorld,
            error: None,
            names: self.asked(kind),
            version: self.versions.get(&kind).cloned().unwrap_or_default(),
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            held: BTreeMap::new(),
        }
    }

    fn asked(&self, kind: ResourceType) -> Vec<Arc<str>> {
        self.asked.get(&kind).into_iter().flat_map(|asked| asked.iter().cloned()).collect()
    }
}

fn asked_by_name() -> impl Iterator<Item = ResourceType> {
    ResourceType::ALL.into_iter().filter(|kind| !kind.is_asked_whole())
}

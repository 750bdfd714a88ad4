use crate::references;
use bytes::Bytes;
use heliograph_snapshot::ResourceType;
use std::collections::{BTreeMap, BTreeSet};

/// What a simulated Envoy holds and has heard. A value: it decides what to say, and others say it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By type and name.
    pub held: BTreeMap<ResourceType, BTreeMap<String, Held>>,
    /// Every response of the current stream, in order.
    pub received: Vec<Received>,
    /// Why the server ended the stream.
    pub ended: Option<(tonic::Code, String)>,
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    /// Names that the server said do not exist.
    absent: BTreeSet<(ResourceType, String)>,
    /// State of the world: the version of the last accepted response.
    versions: BTreeMap<ResourceType, String>,
    nonces: BTreeMap<ResourceType, String>,
    started: BTreeSet<ResourceType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its own in delta, that of its type in state of the world.
    pub version: String,
    pub body: Bytes,
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub kind: ResourceType,
    pub nonce: String,
    pub version: String,
    /// The server's name for itself.
    pub control_plane: String,
    pub names: Vec<String>,
    pub removed: Vec<String>,
    /// A whole list: what is not in it is gone.
    pub whole: bool,
    pub accepted: bool,
}

/// What to think of a resource: `Some` is why it is rejected.
pub type Verdict = dyn Fn(ResourceType, &str, &[u8]) -> Option<String> + Send + Sync;

/// Hears of every response and of what was in it, in order and on all streams, before the client answers.
pub type Witness = dyn Fn(&Received, &[(String, Held)]) + Send + Sync;

/// A response in the words of either protocol.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) kind: ResourceType,
    pub(crate) nonce: String,
    pub(crate) version: String,
    pub(crate) control_plane: String,
    /// Version and body; the version is empty in state of the world.
    pub(crate) resources: Vec<(String, Bytes)>,
    pub(crate) removed: Vec<String>,
    /// A whole list: what is not in it is gone.
    pub(crate) whole: bool,
}

/// A request for either protocol.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) kind: ResourceType,
    pub(crate) nonce: String,
    pub(crate) error: Option<String>,
    /// Delta.
    pub(crate) subscribe: Vec<String>,
    pub(crate) unsubscribe: Vec<String>,
    pub(crate) held: BTreeMap<String, String>,
    /// State of the world.
    pub(crate) names: Vec<String>,
    pub(crate) version: String,
}

impl State {
    pub fn names(&self, kind: ResourceType) -> Vec<&str> {
        self.held.get(&kind).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    pub fn body(&self, kind: ResourceType, name: &str) -> Option<&Bytes> {
        self.held.get(&kind)?.get(name).map(|held| &held.body)
    }

    /// Whether everything was answered that Envoy needs before it takes traffic.
    pub fn is_warm(&self) -> bool {
        let started = |kind| self.started.contains(&kind) && self.nonces.contains_key(&kind);
        let whole = started(ResourceType::Cluster) && started(ResourceType::Listener);
        whole
            && self.has_answers(&[
                ResourceType::Endpoints,
                ResourceType::Route,
                ResourceType::Secret,
            ])
    }

    /// The first requests of a stream. A client that was connected before asks for all that it has at once, and says
    /// what it holds; a new one asks for clusters, and for the rest as it goes.
    pub(crate) fn open(&mut self) -> Vec<Ask> {
        let again = std::mem::take(&mut self.started);
        self.received.clear();
        self.ended = None;
        self.nonces.clear();
        self.absent.clear();
        let mut asks = vec![self.first(ResourceType::Cluster)];
        for kind in [
            ResourceType::Endpoints,
            ResourceType::Listener,
            ResourceType::Route,
            ResourceType::Secret,
        ] {
            if again.contains(&kind) {
                asks.push(self.first(kind));
            }
        }
        asks
    }

    /// Takes a response: what to answer, and what to ask for because of it.
    pub(crate) fn take(
        &mut self,
        response: Response,
        verdict: &Verdict,
        witness: &Witness,
    ) -> Vec<Ask> {
        let kind = response.kind;
        let mut named = Vec::new();
        let mut errors = Vec::new();
        for (version, body) in response.resources {
            match references::name(kind, &body) {
                None => errors.push("a resource that cannot be read".to_owned()),
                Some(name) => {
                    errors.extend(verdict(kind, &name, &body));
                    let version =
                        if version.is_empty() { response.version.clone() } else { version };
                    named.push((name, Held { version, body }));
                }
            }
        }
        self.nonces.insert(kind, response.nonce.clone());
        let received = Received {
            kind,
            nonce: response.nonce.clone(),
            version: response.version.clone(),
            control_plane: response.control_plane,
            names: named.iter().map(|(name, _)| name.clone()).collect(),
            removed: response.removed.clone(),
            whole: response.whole,
            accepted: errors.is_empty(),
        };
        witness(&received, &named);
        self.received.push(received);
        if !errors.is_empty() {
            return vec![self.request(kind, Some(errors.join("; ")))];
        }
        self.versions.insert(kind, response.version);
        let held = self.held.entry(kind).or_default();
        if response.whole {
            held.clear();
        }
        for (name, resource) in named {
            self.absent.remove(&(kind, name.clone()));
            held.insert(name, resource);
        }
        for name in response.removed {
            held.remove(&name);
            self.absent.insert((kind, name));
        }
        let mut asks = vec![self.request(kind, None)];
        asks.extend(self.follow());
        asks
    }

    /// Asks for what the clusters and listeners need, and no longer for what none needs.
    fn follow(&mut self) -> Vec<Ask> {
        let mut needed: BTreeMap<ResourceType, BTreeSet<String>> = BTreeMap::new();
        for kind in [ResourceType::Cluster, ResourceType::Listener] {
            let held = self.held.get(&kind).into_iter().flatten();
            for (kind, name) in held.flat_map(|(_, held)| references::needs(kind, &held.body)) {
                needed.entry(kind).or_default().insert(name);
            }
        }
        let mut asks = Vec::new();
        for kind in [ResourceType::Secret, ResourceType::Endpoints, ResourceType::Route] {
            let needed = needed.remove(&kind).unwrap_or_default();
            let asked = self.asked.insert(kind, needed.clone()).unwrap_or_default();
            if let Some(held) = self.held.get_mut(&kind) {
                held.retain(|name, _| needed.contains(name));
            }
            if needed == asked {
                continue;
            }
            let mut ask = if self.started.contains(&kind) {
                self.request(kind, None)
            } else {
                self.first(kind)
            };
            ask.nonce = String::new();
            ask.subscribe = needed.difference(&asked).cloned().collect();
            ask.unsubscribe = asked.difference(&needed).cloned().collect();
            asks.push(ask);
        }
        // Envoy asks for listeners once its clusters are warm.
        if !self.started.contains(&ResourceType::Listener)
            && self.has_answers(&[ResourceType::Endpoints])
        {
            asks.push(self.first(ResourceType::Listener));
        }
        asks
    }

    fn has_answers(&self, kinds: &[ResourceType]) -> bool {
        kinds.iter().all(|kind| {
            self.asked.get(kind).into_iter().flatten().all(|name| {
                let held = self.held.get(kind).is_some_and(|held| held.contains_key(name));
                held || self.absent.contains(&(*kind, name.clone()))
            })
        })
    }

    fn first(&mut self, kind: ResourceType) -> Ask {
        self.started.insert(kind);
        let held = self.held.get(&kind).into_iter().flatten();
        Ask {
            subscribe: self.asked.get(&kind).into_iter().flatten().cloned().collect(),
            held: held.map(|(name, held)| (name.clone(), held.version.clone())).collect(),
            ..self.request(kind, None)
        }
    }

    fn request(&self, kind: ResourceType, error: Option<String>) -> Ask {
        Ask {
            kind,
            nonce: self.nonces.get(&kind).cloned().unwrap_or_default(),
            error,
            names: self.asked.get(&kind).into_iter().flatten().cloned().collect(),
            version: self.versions.get(&kind).cloned().unwrap_or_default(),
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            held: BTreeMap::new(),
        }
    }
}

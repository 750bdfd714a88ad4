use super::publish_log::{Marks, PublishLog};
use crate::workload::mark;
use heliograph_checker::{Proxy, ResourceId, Response, Sent};
use heliograph_client::{Follower, HeldResource, Received, references};
use heliograph_snapshot::FleetName;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Follows what clients are sent: the checker looks at it, and the changes in it are noticed. Once for all clients that
/// have the same state.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    log: Arc<PublishLog>,
    fleet: usize,
    proxy: Proxy,
    marks: Marks,
    /// The change up to which it has all.
    had: u32,
}

impl Watcher {
    pub(super) fn new(log: Arc<PublishLog>, fleet: usize, name: FleetName) -> Self {
        Self { log, fleet, proxy: Proxy::new(name), marks: Marks::default(), had: 0 }
    }

    pub(super) fn had(&self) -> u32 {
        self.had
    }

    pub(super) fn proxy(&self) -> &Proxy {
        &self.proxy
    }
}

impl Follower for Watcher {
    fn receive(&mut self, client: &str, received: &Received, resources: &[(String, HeldResource)]) {
        let who: Arc<str> = client.into();
        let kind = received.kind;
        let sent = resources.iter().map(|(name, held)| {
            let references = references(kind, &held.body).into_iter();
            Sent {
                name: name.as_str().into(),
                version: self.log.version(kind, &held.body),
                references: references.map(|(kind, name)| ResourceId::new(kind, name)).collect(),
            }
        });
        let response = Response {
            client: who.clone(),
            kind,
            order: self.log.order(&received.nonce),
            resources: sent.collect(),
            removed: received.removed.iter().map(|name| name.as_str().into()).collect(),
            whole: received.whole,
            accepted: received.accepted,
        };
        self.log.check(&mut self.proxy, &who, &response);
        if received.accepted {
            let seen: Vec<_> =
                resources.iter().filter_map(|(_, held)| mark(kind, &held.body)).collect();
            self.had = self.log.mark(&mut self.marks, self.fleet, self.had, (kind, &seen));
        }
    }

    fn reconnect(&mut self) {
        self.proxy.reconnect();
    }

    fn order_in<'a>(&self, nonce: &'a str) -> &'a str {
        self.log.order_in(nonce)
    }

    fn digest(&self, hasher: &mut impl Hasher) {
        let Self { log: _, fleet, proxy, marks, had } = self;
        proxy.digest(hasher);
        (fleet, marks, had).hash(hasher);
    }
}

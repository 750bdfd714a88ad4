//! A crowd and what was observed of it.

use heliograph_client::{
    Backoff, Conduct, Crowd, Ended, Follower, HeldResource, Member, Observer, Protocol, Received,
    Server, SharedState, Transition,
};
use heliograph_envoy::envoy::config::core::v3::Node;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Long enough for a busy machine; nothing waits for it but a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(crate) struct Watcher {
    pub(crate) seen: Mutex<Vec<Seen>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Connected,
    Received { resources: usize, resent: usize, accepted: bool },
    Answered,
    Ended(String),
}

/// Counts what was taken on the way to a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) responses: usize,
    pub(crate) streams: usize,
}

pub(crate) struct World {
    pub(crate) crowd: Crowd<Tally, Watcher>,
    pub(crate) watcher: Arc<Watcher>,
}

impl World {
    pub(crate) fn of(servers: &[&str], streams_per_connection: usize) -> Self {
        let servers = servers.iter().map(|server| Server::new(server, None, None).unwrap());
        Self::over(servers.collect(), streams_per_connection)
    }

    pub(crate) fn over(servers: Vec<Server>, streams_per_connection: usize) -> Self {
        let backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_millis(50) };
        let watcher = Arc::new(Watcher::default());
        let crowd = Crowd::new(servers, streams_per_connection, backoff, watcher.clone());
        Self { crowd, watcher }
    }

    pub(crate) fn join(&self, name: &str, protocol: Protocol, conduct: Conduct) -> usize {
        self.crowd.add(Member {
            name: name.into(),
            node: Arc::new(Node { cluster: "default/gateway".into(), ..Default::default() }),
            protocol,
            server: 0,
            conduct,
            follower: Tally::default(),
        })
    }

    pub(crate) fn state(&self, member: usize) -> Arc<SharedState<Tally>> {
        self.crowd.state(member).unwrap()
    }

    pub(crate) async fn warm(&self, member: usize) -> Arc<SharedState<Tally>> {
        comes_true("warm", || self.state(member).is_warm()).await;
        self.state(member)
    }

    /// The first end that somebody's stream had.
    pub(crate) async fn ended(&self) -> String {
        let first = || self.watcher.seen().into_iter().find_map(Seen::end);
        comes_true("an end", || first().is_some()).await;
        first().unwrap()
    }
}

impl Watcher {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn note(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
    }
}

impl Seen {
    pub(crate) fn end(self) -> Option<String> {
        match self {
            Self::Ended(how) => Some(how),
            _ => None,
        }
    }
}

impl Observer<Tally> for Watcher {
    fn connected(&self, _: usize) {
        self.note(Seen::Connected);
    }

    fn received(&self, _: usize, step: &Transition<Tally>, bytes: usize, _: Instant) {
        assert!(bytes > 5);
        let Transition { resources, resent, accepted, .. } = *step;
        self.note(Seen::Received { resources, resent, accepted });
    }

    fn asked(&self, _: usize, _: usize, _: Instant) {}

    fn answered(&self, _: usize, _: &Transition<Tally>, _: usize, _: Instant) {
        self.note(Seen::Answered);
    }

    fn ended(&self, _: usize, how: &Ended) {
        self.note(Seen::Ended(how.to_string()));
    }
}

impl Follower for Tally {
    fn receive(&mut self, _: &str, _: &Received, _: &[(String, HeldResource)]) {
        self.responses += 1;
    }

    fn reconnect(&mut self) {
        self.streams += 1;
    }

    fn digest(&self, hasher: &mut impl Hasher) {
        (self.responses, self.streams).hash(hasher);
    }
}

pub(crate) async fn comes_true(what: &str, condition: impl Fn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(2));
    let looking = async {
        while !condition() {
            look.tick().await;
        }
    };
    if tokio::time::timeout(DEADLINE, looking).await.is_err() {
        panic!("not within {DEADLINE:?}: {what}");
    }
}

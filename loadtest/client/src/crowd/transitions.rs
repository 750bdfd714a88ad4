use super::conduct::Rejection;
use super::shared_state::{Follower, Opening, SharedState, Transition};
use crate::cache::ResourceCache;
use crate::digest::{self, Digest};
use crate::request::{Ask, Request};
use crate::response::Response;
use crate::wire::{Message, Protocol};
use parking_lot::{Mutex, MutexGuard};
use prost::DecodeError;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The transitions by responses: computed for the first client in a state, looked up for the others.
pub(super) struct TransitionCache<F> {
    known: Mutex<Known<F>>,
}

struct Known<F> {
    /// By content, so that clients which took different ways to the same share again.
    states: HashMap<Digest, Weak<SharedState<F>>>,
    /// With more states than this, those without clients are removed.
    enough: usize,
    steps: Recent<StepKey, Arc<Transition<F>>>,
    openings: Recent<Digest, Arc<Opening<F>>>,
}

/// State, response, what its nonce says of its order, and what the client rejects.
type StepKey = (Digest, Digest, Digest, Option<Arc<Rejection>>);

/// A cache of recently used values. A missing value is computed again.
struct Recent<K, V> {
    entries: HashMap<K, (V, Instant)>,
    swept: Option<Instant>,
}

const MIN_STATES: usize = 256;
/// Longer than clients are apart that are sent the same.
const STEP_EXPIRY: Duration = Duration::from_secs(20);
const MAX_STEPS: usize = 16 * 1024;

impl<F: Follower> TransitionCache<F> {
    /// The state of a client that was never connected.
    pub(super) fn start(&self, protocol: Protocol, follower: F) -> Arc<SharedState<F>> {
        self.known().intern(SharedState::new(ResourceCache::new(protocol), follower))
    }

    pub(super) fn open(&self, from: &SharedState<F>, now: Instant) -> Arc<Opening<F>> {
        let mut known = self.known();
        if let Some(opening) = known.openings.get(&from.digest, now) {
            return opening;
        }
        let (mut cache, mut follower) = (from.cache().clone(), from.follower().clone());
        let asks = cache.open();
        follower.reconnect();
        let requests = requests(cache.protocol(), asks);
        let to = known.intern(SharedState::new(cache, follower));
        let opening = Arc::new(Opening { to, requests });
        known.openings.insert(from.digest, opening.clone(), now);
        opening
    }

    /// `None`: a response of a type that no client here asks for.
    pub(super) fn receive(
        &self,
        from: &SharedState<F>,
        message: &Message,
        rejection: Option<&Arc<Rejection>>,
        client: &str,
        now: Instant,
    ) -> Result<Option<Arc<Transition<F>>>, DecodeError> {
        let nonce = std::str::from_utf8(&message.nonce).unwrap_or_default();
        let order = digest::of(from.follower().order_in(nonce).as_bytes());
        let key = (from.digest, message.content.digest(), order, rejection.cloned());
        // Locked until it is worked out, so that no two clients do it.
        let mut known = self.known();
        if let Some(step) = known.steps.get(&key, now) {
            return Ok(Some(step));
        }
        let protocol = from.cache().protocol();
        let response = Response::read(protocol, &message.nonce, message.content.bytes())?;
        let Some(response) = response else { return Ok(None) };
        let (mut cache, mut follower) = (from.cache().clone(), from.follower().clone());
        let rejection = rejection.cloned();
        let effect =
            cache.receive(response, &move |kind, name, _| rejection.as_ref()?.of(kind, name));
        follower.receive(client, &effect.received, &effect.resources);
        let step = Arc::new(Transition {
            kind: effect.received.kind,
            resources: effect.resources.len(),
            removed: effect.received.removed.len(),
            resent: effect.resent,
            accepted: effect.received.accepted,
            requests: requests(protocol, effect.asks),
            to: known.intern(SharedState::new(cache, follower)),
        });
        known.steps.insert(key, step.clone(), now);
        Ok(Some(step))
    }

    /// How many states have clients.
    pub(super) fn distinct_states(&self) -> usize {
        self.known().states.values().filter(|state| state.strong_count() > 0).count()
    }

    fn known(&self) -> MutexGuard<'_, Known<F>> {
        self.known.lock()
    }
}

impl<F> Default for TransitionCache<F> {
    fn default() -> Self {
        let known = Known {
            states: HashMap::new(),
            enough: MIN_STATES,
            steps: Recent::default(),
            openings: Recent::default(),
        };
        Self { known: Mutex::new(known) }
    }
}

impl<F> Known<F> {
    fn intern(&mut self, state: SharedState<F>) -> Arc<SharedState<F>> {
        if let Some(known) = self.states.get(&state.digest).and_then(Weak::upgrade) {
            return known;
        }
        if self.states.len() >= self.enough {
            self.states.retain(|_, state| state.strong_count() > 0);
            self.enough = (self.states.len() * 2).max(MIN_STATES);
        }
        let state = Arc::new(state);
        self.states.insert(state.digest, Arc::downgrade(&state));
        state
    }
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K, now: Instant) -> Option<V> {
        let (value, used) = self.entries.get_mut(key)?;
        *used = now;
        Some(value.clone())
    }

    fn insert(&mut self, key: K, value: V, now: Instant) {
        let swept = *self.swept.get_or_insert(now);
        if now.saturating_duration_since(swept) > STEP_EXPIRY || self.entries.len() >= MAX_STEPS {
            self.swept = Some(now);
            self.entries.retain(|_, (_, used)| now.saturating_duration_since(*used) < STEP_EXPIRY);
        }
        // No server sends so many different responses to one state that they would be worth more memory.
        if self.entries.len() >= MAX_STEPS {
            self.entries.clear();
        }
        self.entries.insert(key, (value, now));
    }
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), swept: None }
    }
}

fn requests(protocol: Protocol, asks: Vec<Ask>) -> Vec<Request> {
    asks.into_iter().map(|ask| Request::new(protocol, ask)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Conduct;
    use crate::samples::{self, SampleResponse};
    use proptest::prelude::*;

    /// One step of a client.
    #[derive(Clone, Debug)]
    enum Act {
        Receives(SampleResponse),
        Reconnects,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            6 => samples::any_response().prop_map(Act::Receives),
            1 => Just(Act::Reconnects),
        ];
        proptest::collection::vec(act, 0..25)
    }

    /// A follower that tells apart by which way a client came, so that nothing is shared that must not be.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Path(Vec<String>);

    impl Follower for Path {
        fn receive(
            &mut self,
            _: &str,
            response: &crate::Received,
            resources: &[(String, crate::HeldResource)],
        ) {
            self.0.push(format!("{response:?} {resources:?}"));
        }

        fn reconnect(&mut self) {
            self.0.push("reconnect".to_owned());
        }

        fn digest(&self, hasher: &mut impl std::hash::Hasher) {
            self.0.hash(hasher);
        }
    }

    /// One client without a crowd: what it holds, and all it asked.
    fn alone(
        protocol: Protocol,
        acts: &[Act],
        rejection: Option<&Rejection>,
    ) -> (ResourceCache, Vec<Request>) {
        let mut cache = ResourceCache::new(protocol);
        let mut asked = requests(protocol, cache.open());
        let rejection = rejection.cloned();
        let validator = move |kind, name: &str, _: &[u8]| rejection.as_ref()?.of(kind, name);
        for act in acts {
            let asks = match act {
                Act::Reconnects => cache.open(),
                Act::Receives(sample) => {
                    let message = sample.message(protocol, "n");
                    let read = Response::read(protocol, b"n", message.content.bytes());
                    cache.receive(read.unwrap().unwrap(), &validator).asks
                }
            };
            asked.extend(requests(protocol, asks));
        }
        (cache, asked)
    }

    /// The same in a crowd.
    fn together<F: Follower>(
        transitions: &TransitionCache<F>,
        (protocol, follower): (Protocol, F),
        acts: &[Act],
        rejection: Option<&Arc<Rejection>>,
        nonce: &str,
    ) -> (Arc<SharedState<F>>, Vec<Request>) {
        let now = Instant::now();
        let opening = transitions.open(&transitions.start(protocol, follower), now);
        let (mut state, mut asked) = (opening.to.clone(), opening.requests.clone());
        for act in acts {
            let (to, requests) = match act {
                Act::Reconnects => {
                    let opening = transitions.open(&state, now);
                    (opening.to.clone(), opening.requests.clone())
                }
                Act::Receives(sample) => {
                    let message = sample.message(protocol, nonce);
                    let step = transitions.receive(&state, &message, rejection, "client", now);
                    let step = step.unwrap().unwrap();
                    (step.to.clone(), step.requests.clone())
                }
            };
            state = to;
            asked.extend(requests);
        }
        (state, asked)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_member_is_where_it_would_be_alone(
            one in acts(),
            other in acts(),
            rejects in proptest::option::of("[ab]"),
        ) {
            let name = |name| Conduct::Rejects { kind: None, name: Some(name) };
            let rejection = rejects.map(name).and_then(|conduct| conduct.rejection());
            let rejection = rejection.as_ref();
            let transitions = TransitionCache::<()>::default();
            for protocol in [Protocol::Delta, Protocol::StateOfTheWorld] {
                // Two ways through the same states, each twice, with other nonces.
                for (acts, nonce) in [(&one, "1"), (&other, "2"), (&one, "3"), (&other, "44")] {
                    for rejection in [None, rejection] {
                        let (state, asked) = together(&transitions, (protocol, ()), acts, rejection, nonce);
                        let expected = alone(protocol, acts, rejection.map(|one| &**one));
                        prop_assert_eq!(state.cache(), &expected.0);
                        prop_assert_eq!(state.is_warm(), expected.0.is_warm());
                        prop_assert_eq!(asked, expected.1);
                    }
                }
            }
        }

        #[test]
        fn equal_places_are_one(acts in acts(), more in acts()) {
            let transitions = TransitionCache::<Path>::default();
            let go = |acts: &[Act]| {
                together(&transitions, (Protocol::Delta, Path::default()), acts, None, "n").0
            };
            let one = go(&acts);
            prop_assert!(Arc::ptr_eq(&one, &go(&acts)));
            let other = go(&[acts.clone(), more.clone()].concat());
            prop_assert_eq!(Arc::ptr_eq(&one, &other), more.is_empty());
        }
    }

    #[test]
    fn different_ways_to_the_same_lead_to_one_place() {
        let transitions = TransitionCache::<()>::default();
        let cluster = |name, version| Act::Receives(SampleResponse::cluster(name, version));
        let go = |acts: &[Act]| together(&transitions, (Protocol::Delta, ()), acts, None, "n").0;
        let direct = go(&[cluster("a", 2)]);
        let detour = go(&[cluster("a", 1), cluster("a", 2)]);
        assert!(Arc::ptr_eq(&direct, &detour));
        assert!(!Arc::ptr_eq(&direct, &go(&[cluster("a", 1)])));
    }

    /// Records the order of clients, and nonces that went back.
    #[derive(Clone, Debug, Default)]
    struct Judge {
        newest: String,
        judged: Arc<Mutex<Vec<(String, bool)>>>,
    }

    impl Follower for Judge {
        fn receive(
            &mut self,
            client: &str,
            response: &crate::Received,
            _: &[(String, crate::HeldResource)],
        ) {
            let order = self.order_in(&response.nonce).to_owned();
            let went_back = order < self.newest;
            self.judged.lock().push((client.to_owned(), went_back));
            self.newest = order;
        }

        fn reconnect(&mut self) {}

        fn order_in<'a>(&self, nonce: &'a str) -> &'a str {
            nonce.rsplit_once('-').map_or("", |(order, _)| order)
        }

        fn digest(&self, hasher: &mut impl std::hash::Hasher) {
            self.newest.hash(hasher);
        }
    }

    #[test]
    fn who_is_sent_the_same_from_another_time_is_looked_at() {
        for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
            let (transitions, judge, now) =
                (TransitionCache::default(), Judge::default(), Instant::now());
            let state =
                transitions.open(&transitions.start(protocol, judge.clone()), now).to.clone();
            let receive = |from: &SharedState<Judge>, version, nonce: &str, client: &str| {
                let message = SampleResponse::cluster("a", version).message(protocol, nonce);
                transitions.receive(from, &message, None, client, now).unwrap().unwrap().to.clone()
            };
            let state = receive(&state, 1, "head-5-1", "first");
            receive(&state, 2, "head-6-2", "first");
            receive(&state, 2, "head-6-7", "second");
            receive(&state, 2, "head-4-2", "third");
            let judged = judge.judged.lock().clone();
            let expected = [("first", false), ("first", false), ("third", true)];
            assert_eq!(judged, expected.map(|(client, back)| (client.to_owned(), back)));
        }
    }

    #[test]
    fn what_nobody_needs_is_forgotten() {
        let transitions = TransitionCache::<()>::default();
        let start = Instant::now();
        let first = transitions.open(&transitions.start(Protocol::Delta, ()), start).to.clone();
        let mut state = first.clone();
        // Changes without an end, one each second.
        for change in 0..2000 {
            let now = start + Duration::from_secs(change);
            let message =
                SampleResponse::cluster("a", change as usize).message(Protocol::Delta, "n");
            state = transitions
                .receive(&state, &message, None, "client", now)
                .unwrap()
                .unwrap()
                .to
                .clone();
        }
        let known = transitions.known();
        assert!(known.steps.entries.len() < 100, "{} steps", known.steps.entries.len());
        assert!(known.states.len() < 2 * MIN_STATES, "{} places", known.states.len());
        assert_eq!(first.cache().names(heliograph_snapshot::ResourceType::Cluster).len(), 0);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let transitions = TransitionCache::<()>::default();
        let state = transitions.start(Protocol::Delta, ());
        let message = samples::message(&[0xff; 9]);
        assert!(transitions.receive(&state, &message, None, "client", Instant::now()).is_err());
    }
}

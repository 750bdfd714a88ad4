//! Ten thousand clients of a fleet send the same requests and receive the same responses. Each transition is computed once.

use crate::event::Event;
use crate::names::NamePool;
use crate::reply::Response;
use crate::request::{Request, RequestError};
use crate::session::Protocol;
use crate::state::{Expired, IdleState, Outcome, RequestContext, State};
use crate::view::View;
use heliograph_snapshot::{Head, Resource, ResourceType};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The transitions that sessions have computed lately, shared with all others at the same position that receive the same input.
///
/// A transition is a function of the state and the input, so a cached one equals the one that would be computed. Transitions that
/// are not used for a while are dropped (see [`TransitionCache::age`]), and those that do not fit are computed again.
#[derive(Debug)]
pub struct TransitionCache {
    names: NamePool,
    known: Mutex<Known>,
    /// Hash equal inputs equally, in a way that clients cannot predict.
    keys: [RandomState; 2],
    budget: Arc<TransitionCacheBudget>,
}

/// The budget that several caches share. No cache can use all of it: each may keep three times as much as is left, so a
/// single one uses three quarters, and there is always space for the next.
#[derive(Debug)]
pub struct TransitionCacheBudget {
    transitions: Quota,
    idle: Quota,
}

/// In hundreds of bytes.
#[derive(Debug)]
struct Quota {
    limit: usize,
    used: AtomicUsize,
}

/// The state of a stream, with an identifier of its own.
#[derive(Debug)]
pub(crate) struct Position {
    id: u64,
    state: State,
    acknowledged: Option<Head>,
    rejections: Vec<(ResourceType, Arc<Resource>)>,
}

/// The position that an input leads to, and the responses that are sent.
#[derive(Debug)]
pub(crate) struct Transition {
    pub(crate) to: Arc<Position>,
    pub(crate) responses: Vec<Arc<Response>>,
    pub(crate) event: Option<Event>,
    /// Endpoints that are owed came nearer.
    pub(crate) progress: bool,
    /// The request shows that the client holds from before what the view does not have.
    pub(crate) holds_other: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    Request(RequestContext, &'a Request),
    View(&'a Arc<View>),
    Clock(Expired),
}

#[derive(Debug, Default)]
struct Known {
    transitions: HashMap<Key, Entry>,
    /// Of all transitions together.
    size: usize,
    /// Positions without pending work, which streams reach in many ways. A position stays while a stream was there lately,
    /// although the stream may have moved on, as all do from the beginning.
    idle_states: HashMap<IdleState, IdlePosition>,
    /// Of all of them together.
    idle_size: usize,
    age: u32,
    /// The age at which room was last made: more often it would find nothing.
    made_room: u32,
}

#[derive(Debug)]
struct IdlePosition {
    position: Arc<Position>,
    size: usize,
    used: u32,
}

/// A state that becomes a position, and what is known of it.
struct Reached {
    state: State,
    acknowledged: Option<Head>,
    rejections: Vec<(ResourceType, Arc<Resource>)>,
    idle_state: Option<IdleState>,
    size: usize,
}

#[derive(Debug)]
struct Entry {
    transition: Arc<Transition>,
    size: usize,
    used: u32,
}

/// A state and an input, as two digests with keys of their own: no two inputs have the same by chance, and a client
/// cannot construct two that have.
type Key = (u64, u64, u64);

/// How many times [`TransitionCache::age`] is called until an unused transition is dropped. Clients that do the same are apart
/// by less when it matters.
const MAX_AGE: u32 = 20;
/// The most that all caches of a budget keep of transitions, and of idle positions beside them, in hundreds of bytes.
const SIZE_LIMIT: usize = 1_000_000;
const IDLE_LIMIT: usize = 200_000;
/// One that is larger than this part of the limit is not worth what it would push out.
const LARGEST: usize = SIZE_LIMIT / 4;
/// How many times as much as is left one cache may keep.
const SHARE: usize = 3;

impl TransitionCache {
    /// One of several that share a budget.
    pub fn within(budget: Arc<TransitionCacheBudget>) -> Self {
        let (names, known) = (NamePool::default(), Mutex::default());
        Self { names, known, keys: [RandomState::new(), RandomState::new()], budget }
    }

    /// To be called every second or so.
    pub fn age(&self) {
        let mut known = self.known();
        known.age = known.age.wrapping_add(1);
        let old = known.remove_unused(MAX_AGE, &self.budget);
        let left = known.remove_unused_positions(MAX_AGE, &self.budget);
        // Large ones take a while to drop, and others wait for the lock.
        drop(known);
        drop((old, left));
    }

    /// Where a stream begins.
    pub(crate) fn start(&self, protocol: Protocol, view: Arc<View>) -> Arc<Position> {
        let state = State::new(protocol, view);
        let reached = Reached::new(state.clone(), &state);
        self.known().position(reached, &self.budget)
    }

    pub(crate) fn transition(
        &self,
        from: &Position,
        input: Input<'_>,
    ) -> Result<Arc<Transition>, RequestError> {
        let key = self.key(from, input);
        if let Some(transition) = self.known().find(&key) {
            return Ok(transition);
        }
        // Decided outside the lock: other streams have other things to decide meanwhile.
        let mut state = from.state.clone();
        let mut holds_other = false;
        let outcome = match input {
            Input::Request(context, request) => {
                let (error, subscription_request) = request.read()?;
                holds_other = state.holds_other(context.kind, &subscription_request, &self.names);
                state.receive(context, error.as_deref(), subscription_request, &self.names)?
            }
            Input::View(view) => state.update_view(view.clone()),
            Input::Clock(expired) => state.expire(expired),
        };
        let Outcome { responses, event } = outcome;
        let progress = state.take_progress();
        let reached = Reached::new(state, &from.state);
        let response_size = responses.iter().map(Response::size).sum::<usize>();
        let size = reached.size + response_size + event.as_ref().map_or(0, Event::size);
        let responses = responses.into_iter().map(Arc::new).collect();
        let mut known = self.known();
        let to = known.position(reached, &self.budget);
        let transition = Arc::new(Transition { to, responses, event, progress, holds_other });
        let old = known.make_room(size, &self.budget);
        let decided = known.insert(key, transition.clone(), size, &self.budget);
        // Large ones take a while to drop, and others wait for the lock.
        drop(known);
        drop((old, transition));
        Ok(decided)
    }

    fn key(&self, from: &Position, input: Input<'_>) -> Key {
        let [one, other] = &self.keys;
        (from.id, one.hash_one(input), other.hash_one(input))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic elsewhere leaves at worst a transition that is not cached.
        self.known.lock()
    }
}

impl Default for TransitionCache {
    fn default() -> Self {
        Self::within(Arc::default())
    }
}

impl Drop for TransitionCache {
    fn drop(&mut self) {
        let (transitions, idle) = {
            let known = self.known();
            (known.size, known.idle_size)
        };
        self.budget.transitions.release(transitions);
        self.budget.idle.release(idle);
    }
}

impl Default for TransitionCacheBudget {
    fn default() -> Self {
        let quota = |limit| Quota { limit, used: AtomicUsize::new(0) };
        Self { transitions: quota(SIZE_LIMIT), idle: quota(IDLE_LIMIT) }
    }
}

impl Quota {
    /// Whether a cache that has so much may have so much more.
    fn fits(&self, own: usize, size: usize) -> bool {
        self.with(self.used.load(Ordering::Relaxed), own, size).is_some()
    }

    /// The same, and reserves it.
    fn reserve(&self, own: usize, size: usize) -> bool {
        let with = |used| self.with(used, own, size);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok()
    }

    fn release(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }

    fn with(&self, used: usize, own: usize, size: usize) -> Option<usize> {
        let left = self.limit.checked_sub(used + size)?;
        (own + size <= SHARE * left).then_some(used + size)
    }
}

impl Position {
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn acknowledged(&self) -> Option<Head> {
        self.acknowledged
    }

    pub(crate) fn rejections(&self) -> &[(ResourceType, Arc<Resource>)] {
        &self.rejections
    }
}

impl Hash for Input<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        std::mem::discriminant(self).hash(hasher);
        match self {
            Self::Request(context, request) => (context, request.digest()).hash(hasher),
            Self::View(view) => view.id().hash(hasher),
            Self::Clock(expired) => expired.hash(hasher),
        }
    }
}

impl Known {
    fn find(&mut self, key: &Key) -> Option<Arc<Transition>> {
        let entry = self.transitions.get_mut(key)?;
        entry.used = self.age;
        Some(entry.transition.clone())
    }

    fn insert(
        &mut self,
        key: Key,
        transition: Arc<Transition>,
        size: usize,
        budget: &TransitionCacheBudget,
    ) -> Arc<Transition> {
        // Another stream may have decided it meanwhile; those that follow must not go two ways.
        if let Some(earlier) = self.find(&key) {
            return earlier;
        }
        if size <= LARGEST && budget.transitions.reserve(self.size, size) {
            self.size += size;
            self.transitions
                .insert(key, Entry { transition: transition.clone(), size, used: self.age });
        }
        transition
    }

    fn make_room(&mut self, size: usize, budget: &TransitionCacheBudget) -> Vec<Entry> {
        let fits = budget.transitions.fits(self.size, size);
        if fits || size > LARGEST || self.made_room == self.age {
            return Vec::new();
        }
        self.made_room = self.age;
        self.remove_unused(1, budget)
    }

    fn remove_unused(&mut self, age: u32, budget: &TransitionCacheBudget) -> Vec<Entry> {
        let Self { transitions, size, age: now, .. } = self;
        let old = transitions.extract_if(|_, entry| now.wrapping_sub(entry.used) >= age);
        let old: Vec<_> = old.map(|(_, entry)| entry).collect();
        let freed = old.iter().map(|entry| entry.size).sum::<usize>();
        *size -= freed;
        budget.transitions.release(freed);
        if transitions.capacity() > 4 * transitions.len() {
            transitions.shrink_to_fit();
        }
        old
    }

    /// Removes the idle positions where no stream was for so long.
    fn remove_unused_positions(
        &mut self,
        age: u32,
        budget: &TransitionCacheBudget,
    ) -> Vec<IdlePosition> {
        let Self { idle_states, age: now, .. } = self;
        for idle in idle_states.values_mut() {
            // A stream is there, or a transition leads there.
            if Arc::strong_count(&idle.position) > 1 {
                idle.used = *now;
            }
        }
        let left = idle_states.extract_if(|_, idle| now.wrapping_sub(idle.used) >= age);
        let left: Vec<_> = left.map(|(_, idle)| idle).collect();
        let freed = left.iter().map(|idle| idle.size).sum::<usize>();
        self.idle_size -= freed;
        budget.idle.release(freed);
        left
    }

    fn position(&mut self, reached: Reached, budget: &TransitionCacheBudget) -> Arc<Position> {
        let Reached { state, acknowledged, rejections, idle_state, size } = reached;
        if let Some(idle_state) = &idle_state
            && let Some(known) = self.idle_states.get_mut(idle_state)
        {
            known.used = self.age;
            return known.position.clone();
        }
        static POSITIONS: AtomicU64 = AtomicU64::new(0);
        let id = POSITIONS.fetch_add(1, Ordering::Relaxed);
        let position = Arc::new(Position { id, state, acknowledged, rejections });
        if let Some(idle_state) = idle_state
            && budget.idle.reserve(self.idle_size, size)
        {
            self.idle_size += size;
            let (position, used) = (position.clone(), self.age);
            self.idle_states.insert(idle_state, IdlePosition { position, size, used });
        }
        position
    }
}

impl Reached {
    fn new(state: State, from: &State) -> Self {
        let (acknowledged, idle_state) = (state.acknowledged(), state.idle_state());
        let rejections = state.rejections();
        Self { size: state.size_beyond(from), state, acknowledged, rejections, idle_state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_has_three_quarters_and_leaves_room_for_the_next() {
        let quota = Quota { limit: 1000, used: AtomicUsize::new(0) };
        let fill = || {
            let mut own = 0;
            while quota.reserve(own, 1) {
                own += 1;
            }
            own
        };
        let all: Vec<usize> = (0..4).map(|_| fill()).collect();
        assert_eq!(all, [750, 187, 47, 12]);
        quota.release(750);
        assert!(quota.fits(0, 500) && !quota.fits(0, 1000));
    }
}

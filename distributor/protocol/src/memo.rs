//! Ten thousand clients of a fleet say the same and are told the same. It is decided once.

use crate::event::Event;
use crate::names::NamePool;
use crate::reply::Response;
use crate::request::{Request, RequestError};
use crate::session::Protocol;
use crate::state::{AtRest, Expired, Heard, Said, State};
use crate::view::View;
use heliograph_snapshot::{Head, Resource, ResourceType};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What sessions have decided lately, for all others that are where they were and hear what they heard.
///
/// Deciding is a function of the state and the input, so a decision that is looked up is the one that would be made.
/// What nobody has looked up for a while is dropped (see [`Memo::age`]), and what does not fit is decided again.
#[derive(Debug)]
pub struct Memo {
    names: NamePool,
    known: Mutex<Known>,
    /// Says the same of equal inputs, and to nobody else what that is.
    keys: [RandomState; 2],
    budget: Arc<MemoBudget>,
}

/// What several memos may keep together. None of them can take the room of all others: one may keep three times as much as is
/// left, so one alone comes to three quarters, and there is always room for the next.
#[derive(Debug)]
pub struct MemoBudget {
    steps: Quota,
    resting: Quota,
}

/// In hundreds of bytes.
#[derive(Debug)]
struct Quota {
    limit: usize,
    used: AtomicUsize,
}

/// Where a stream stands.
#[derive(Debug)]
pub(crate) struct Position {
    id: u64,
    state: State,
    acknowledged: Option<Head>,
    rejections: Vec<(ResourceType, Arc<Resource>)>,
}

/// Where an input leads, and what is said on the way.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) to: Arc<Position>,
    pub(crate) responses: Vec<Arc<Response>>,
    pub(crate) event: Option<Event>,
    /// Endpoints that are owed came nearer.
    pub(crate) progress: bool,
    /// The request shows that the client holds from before what the view does not have.
    pub(crate) told_other: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    Request(Heard, &'a Request),
    View(&'a Arc<View>),
    Clock(Expired),
}

#[derive(Debug, Default)]
struct Known {
    steps: HashMap<Key, Entry>,
    /// Of all steps together.
    size: usize,
    /// Where there is nothing in hand: streams come there in many ways. Those where somebody was lately, although it
    /// may have moved on, as all do from the beginning.
    at_rest: HashMap<AtRest, Resting>,
    /// Of all of them together.
    resting_size: usize,
    age: u32,
    /// The age at which room was last made: more often it would find nothing.
    made_room: u32,
}

#[derive(Debug)]
struct Resting {
    position: Arc<Position>,
    size: usize,
    used: u32,
}

/// A state that is to be a position, and what is known of it.
struct Reached {
    state: State,
    acknowledged: Option<Head>,
    rejections: Vec<(ResourceType, Arc<Resource>)>,
    at_rest: Option<AtRest>,
    size: usize,
}

#[derive(Debug)]
struct Entry {
    step: Arc<Step>,
    size: usize,
    used: u32,
}

/// A position and an input, as two digests with keys of their own: no two inputs have the same by chance, and nobody
/// outside can tell which two would.
type Key = (u64, u64, u64);

/// How many times [`Memo::age`] is called until an unused step is dropped. Clients that do the same are apart by less
/// when it matters.
const LATELY: u32 = 20;
/// The most that all memos of a budget keep of steps, and of positions at rest beside them, in hundreds of bytes.
const SIZE_LIMIT: usize = 1_000_000;
const RESTING_LIMIT: usize = 200_000;
/// One that is larger than this part of the limit is not worth what it would push out.
const LARGEST: usize = SIZE_LIMIT / 4;
/// How many times as much as is left one memo may keep.
const SHARE: usize = 3;

impl Memo {
    /// One of several that share a budget.
    pub fn within(budget: Arc<MemoBudget>) -> Self {
        let (names, known) = (NamePool::default(), Mutex::default());
        Self { names, known, keys: [RandomState::new(), RandomState::new()], budget }
    }

    /// To be called every second or so.
    pub fn age(&self) {
        let mut known = self.known();
        known.age = known.age.wrapping_add(1);
        let old = known.take_older_than(LATELY, &self.budget);
        let left = known.take_left(LATELY, &self.budget);
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

    pub(crate) fn step(
        &self,
        from: &Position,
        input: Input<'_>,
    ) -> Result<Arc<Step>, RequestError> {
        let key = self.key(from, input);
        if let Some(step) = self.known().find(&key) {
            return Ok(step);
        }
        // Decided outside the lock: other streams have other things to decide meanwhile.
        let mut state = from.state.clone();
        let mut told_other = false;
        let said = match input {
            Input::Request(heard, request) => {
                let (error, asks) = request.read()?;
                told_other = state.is_told_other(heard.kind, &asks, &self.names);
                state.hear(heard, error.as_deref(), asks, &self.names)?
            }
            Input::View(view) => state.look(view.clone()),
            Input::Clock(expired) => state.give_up_waiting(expired),
        };
        let Said { responses, event } = said;
        let progress = state.take_progress();
        let reached = Reached::new(state, &from.state);
        let said = responses.iter().map(Response::size).sum::<usize>();
        let size = reached.size + said + event.as_ref().map_or(0, Event::size);
        let responses = responses.into_iter().map(Arc::new).collect();
        let mut known = self.known();
        let to = known.position(reached, &self.budget);
        let step = Arc::new(Step { to, responses, event, progress, told_other });
        let old = known.make_room(size, &self.budget);
        let decided = known.insert(key, step.clone(), size, &self.budget);
        // Large ones take a while to drop, and others wait for the lock.
        drop(known);
        drop((old, step));
        Ok(decided)
    }

    fn key(&self, from: &Position, input: Input<'_>) -> Key {
        let [one, other] = &self.keys;
        (from.id, one.hash_one(input), other.hash_one(input))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic elsewhere leaves at worst a step that is not known.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memo {
    fn default() -> Self {
        Self::within(Arc::default())
    }
}

impl Drop for Memo {
    fn drop(&mut self) {
        let (steps, resting) = {
            let known = self.known();
            (known.size, known.resting_size)
        };
        self.budget.steps.give_back(steps);
        self.budget.resting.give_back(resting);
    }
}

impl Default for MemoBudget {
    fn default() -> Self {
        let quota = |limit| Quota { limit, used: AtomicUsize::new(0) };
        Self { steps: quota(SIZE_LIMIT), resting: quota(RESTING_LIMIT) }
    }
}

impl Quota {
    /// Whether one who has so much may have so much more.
    fn fits(&self, own: usize, size: usize) -> bool {
        self.with(self.used.load(Ordering::Relaxed), own, size).is_some()
    }

    /// The same, and takes it.
    fn take(&self, own: usize, size: usize) -> bool {
        let with = |used| self.with(used, own, size);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok()
    }

    fn give_back(&self, size: usize) {
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
            Self::Request(heard, request) => (heard, request.digest()).hash(hasher),
            Self::View(view) => view.id().hash(hasher),
            Self::Clock(expired) => expired.hash(hasher),
        }
    }
}

impl Known {
    fn find(&mut self, key: &Key) -> Option<Arc<Step>> {
        let entry = self.steps.get_mut(key)?;
        entry.used = self.age;
        Some(entry.step.clone())
    }

    fn insert(&mut self, key: Key, step: Arc<Step>, size: usize, budget: &MemoBudget) -> Arc<Step> {
        // Another stream may have decided it meanwhile; those that follow must not go two ways.
        if let Some(earlier) = self.find(&key) {
            return earlier;
        }
        if size <= LARGEST && budget.steps.take(self.size, size) {
            self.size += size;
            self.steps.insert(key, Entry { step: step.clone(), size, used: self.age });
        }
        step
    }

    fn make_room(&mut self, size: usize, budget: &MemoBudget) -> Vec<Entry> {
        let fits = budget.steps.fits(self.size, size);
        if fits || size > LARGEST || self.made_room == self.age {
            return Vec::new();
        }
        self.made_room = self.age;
        self.take_older_than(1, budget)
    }

    fn take_older_than(&mut self, age: u32, budget: &MemoBudget) -> Vec<Entry> {
        let Self { steps, size, age: now, .. } = self;
        let old = steps.extract_if(|_, entry| now.wrapping_sub(entry.used) >= age);
        let old: Vec<_> = old.map(|(_, entry)| entry).collect();
        let freed = old.iter().map(|entry| entry.size).sum::<usize>();
        *size -= freed;
        budget.steps.give_back(freed);
        if steps.capacity() > 4 * steps.len() {
            steps.shrink_to_fit();
        }
        old
    }

    /// Positions at rest where nobody was for so long.
    fn take_left(&mut self, age: u32, budget: &MemoBudget) -> Vec<Resting> {
        let Self { at_rest, age: now, .. } = self;
        for resting in at_rest.values_mut() {
            // A stream, or a step that leads there.
            if Arc::strong_count(&resting.position) > 1 {
                resting.used = *now;
            }
        }
        let left = at_rest.extract_if(|_, resting| now.wrapping_sub(resting.used) >= age);
        let left: Vec<_> = left.map(|(_, resting)| resting).collect();
        let freed = left.iter().map(|resting| resting.size).sum::<usize>();
        self.resting_size -= freed;
        budget.resting.give_back(freed);
        left
    }

    fn position(&mut self, reached: Reached, budget: &MemoBudget) -> Arc<Position> {
        let Reached { state, acknowledged, rejections, at_rest, size } = reached;
        if let Some(at_rest) = &at_rest
            && let Some(known) = self.at_rest.get_mut(at_rest)
        {
            known.used = self.age;
            return known.position.clone();
        }
        static POSITIONS: AtomicU64 = AtomicU64::new(0);
        let id = POSITIONS.fetch_add(1, Ordering::Relaxed);
        let position = Arc::new(Position { id, state, acknowledged, rejections });
        if let Some(at_rest) = at_rest
            && budget.resting.take(self.resting_size, size)
        {
            self.resting_size += size;
            let (position, used) = (position.clone(), self.age);
            self.at_rest.insert(at_rest, Resting { position, size, used });
        }
        position
    }
}

impl Reached {
    fn new(state: State, from: &State) -> Self {
        let (acknowledged, at_rest) = (state.acknowledged(), state.at_rest());
        let rejections = state.rejections();
        Self { size: state.size_beyond(from), state, acknowledged, rejections, at_rest }
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
            while quota.take(own, 1) {
                own += 1;
            }
            own
        };
        let all: Vec<usize> = (0..4).map(|_| fill()).collect();
        assert_eq!(all, [750, 187, 47, 12]);
        quota.give_back(750);
        assert!(quota.fits(0, 500) && !quota.fits(0, 1000));
    }
}

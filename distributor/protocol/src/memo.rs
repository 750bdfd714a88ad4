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
    positions: u64,
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
/// The most that is kept of steps, and of positions at rest beside them, in hundreds of bytes.
const SIZE_LIMIT: usize = 1_000_000;
const RESTING_LIMIT: usize = 200_000;
/// One that is larger than this part of the limit is not worth what it would push out.
const LARGEST: usize = SIZE_LIMIT / 4;

impl Memo {
    /// To be called every second or so.
    pub fn age(&self) {
        let mut known = self.known();
        known.age = known.age.wrapping_add(1);
        let old = known.take_older_than(LATELY);
        let left = known.take_left(LATELY);
        // Large ones take a while to drop, and others wait for the lock.
        drop(known);
        drop((old, left));
    }

    /// Where a stream begins.
    pub(crate) fn start(&self, protocol: Protocol, view: Arc<View>) -> Arc<Position> {
        let state = State::new(protocol, view);
        let reached = Reached::new(state.clone(), &state);
        self.known().position(reached)
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
            Input::Clock(expired) => state.lose_patience(expired),
        };
        let Said { responses, event } = said;
        let progress = state.take_progress();
        let reached = Reached::new(state, &from.state);
        let said = responses.iter().map(Response::size).sum::<usize>();
        let size = reached.size + said + event.as_ref().map_or(0, Event::size);
        let responses = responses.into_iter().map(Arc::new).collect();
        let mut known = self.known();
        let to = known.position(reached);
        let step = Arc::new(Step { to, responses, event, progress, told_other });
        let old = known.make_room(size);
        let decided = known.insert(key, step.clone(), size);
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
        let (names, known) = (NamePool::default(), Mutex::default());
        Self { names, known, keys: [RandomState::new(), RandomState::new()] }
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

    fn insert(&mut self, key: Key, step: Arc<Step>, size: usize) -> Arc<Step> {
        // Another stream may have decided it meanwhile; those that follow must not go two ways.
        if let Some(earlier) = self.find(&key) {
            return earlier;
        }
        if size <= LARGEST && self.size + size <= SIZE_LIMIT {
            self.size += size;
            self.steps.insert(key, Entry { step: step.clone(), size, used: self.age });
        }
        step
    }

    fn make_room(&mut self, size: usize) -> Vec<Entry> {
        let fits = self.size + size <= SIZE_LIMIT;
        if fits || size > LARGEST || self.made_room == self.age {
            return Vec::new();
        }
        self.made_room = self.age;
        self.take_older_than(1)
    }

    fn take_older_than(&mut self, age: u32) -> Vec<Entry> {
        let Self { steps, size, age: now, .. } = self;
        let old = steps.extract_if(|_, entry| now.wrapping_sub(entry.used) >= age);
        let old: Vec<_> = old.map(|(_, entry)| entry).collect();
        *size -= old.iter().map(|entry| entry.size).sum::<usize>();
        if steps.capacity() > 4 * steps.len() {
            steps.shrink_to_fit();
        }
        old
    }

    /// Positions at rest where nobody was for so long.
    fn take_left(&mut self, age: u32) -> Vec<Resting> {
        let Self { at_rest, age: now, .. } = self;
        for resting in at_rest.values_mut() {
            // A stream, or a step that leads there.
            if Arc::strong_count(&resting.position) > 1 {
                resting.used = *now;
            }
        }
        let left = at_rest.extract_if(|_, resting| now.wrapping_sub(resting.used) >= age);
        let left: Vec<_> = left.map(|(_, resting)| resting).collect();
        self.resting_size -= left.iter().map(|resting| resting.size).sum::<usize>();
        left
    }

    fn position(&mut self, reached: Reached) -> Arc<Position> {
        let Reached { state, acknowledged, rejections, at_rest, size } = reached;
        if let Some(at_rest) = &at_rest
            && let Some(known) = self.at_rest.get_mut(at_rest)
        {
            known.used = self.age;
            return known.position.clone();
        }
        self.positions += 1;
        let position = Arc::new(Position { id: self.positions, state, acknowledged, rejections });
        let fits = self.resting_size + size <= RESTING_LIMIT;
        if let Some(at_rest) = at_rest.filter(|_| fits) {
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

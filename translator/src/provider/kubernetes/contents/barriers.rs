use crate::provider::Input;
use heliograph_gateway::objects::ObjectKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The messages that everything is known, in order. Each is passed on once the fetches that were open or due when it
/// came have been answered, and the objects that waited then have been passed on.
#[derive(Debug, Default)]
pub(super) struct Barriers(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    input: Input,
    /// What is to be fetched, by a fetch that has at least this ticket.
    fetches: BTreeMap<ObjectKey, u64>,
    blocked: BTreeSet<ObjectKey>,
}

impl Barriers {
    pub(super) fn add(
        &mut self,
        input: Input,
        fetches: BTreeMap<ObjectKey, u64>,
        blocked: BTreeSet<ObjectKey>,
    ) {
        self.0.push_back(Waiting { input, fetches, blocked });
    }

    pub(super) fn answered(&mut self, key: &ObjectKey, ticket: u64) {
        for waiting in &mut self.0 {
            if waiting.fetches.get(key).is_some_and(|least| *least <= ticket) {
                waiting.fetches.remove(key);
            }
        }
    }

    /// It is not to be fetched, or not held back, any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        for waiting in &mut self.0 {
            waiting.fetches.remove(key);
            waiting.blocked.remove(key);
        }
    }

    /// The next message to pass on. After the first one, it does not wait for contents without permission: that can take
    /// for ever, and more cannot be known.
    pub(super) fn pop(&mut self, is_forbidden: impl Fn(&ObjectKey) -> bool) -> Option<Input> {
        let Waiting { input, fetches, blocked } = self.0.front()?;
        let is_first = matches!(input, Input::Synced);
        let mut awaited = fetches.keys().chain(blocked);
        let passes = if is_first { awaited.next().is_none() } else { awaited.all(is_forbidden) };
        passes.then(|| self.0.pop_front()).flatten().map(|waiting| waiting.input)
    }

    /// The contents that messages wait for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().flat_map(|waiting| waiting.fetches.keys().chain(&waiting.blocked))
    }
}

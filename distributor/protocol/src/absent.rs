//! How much memory a session keeps for names that its view does not have: a client can make up any number of them.

use crate::view::View;
use heliograph_snapshot::ResourceType;

/// Something in memory. Clients at the same position, or with the same names, share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allocation {
    /// The pending work for a client: another for each position.
    Position(u64),
    /// A set of names, by its address. Another set may have the address once no stream subscribes to this one.
    Names(usize),
}

/// The names of one type that a client asks for and that its view does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) count: usize,
    bytes: usize,
}

/// The size of a name without its text: the pointers to it, its counters, and what the allocator adds.
const NAME: usize = 48;
/// The size of an exception, with its part of the map's nodes, and its name once more in a reply that is in flight.
pub(crate) const EXCEPTION: usize = 256;

impl Absent {
    /// Of these names.
    pub(crate) fn of<'a>(
        names: impl Iterator<Item = &'a str>,
        view: &View,
        kind: ResourceType,
    ) -> Self {
        let mut absent = Self::default();
        names.filter(|name| view.get(kind, name).is_none()).for_each(|name| absent.add(name));
        absent
    }

    pub(crate) fn add(&mut self, name: &str) {
        self.count += 1;
        self.bytes += name.len();
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(name.len());
    }

    /// How much memory they take.
    pub(crate) fn size(self) -> usize {
        self.bytes + NAME * self.count
    }
}

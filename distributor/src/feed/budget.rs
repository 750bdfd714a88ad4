//! Which fleets are kept in memory, decided without IO and without a clock.

use heliograph_snapshot::FleetName;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The fleets that are kept in memory, and their use.
///
/// The budget bounds unused fleets, not those in use: a fleet with clients is kept whatever its size. Fleets are loaded
/// ahead of their clients where they fit, and where they do not, the longest unused is dropped first. A fleet is loaded
/// ahead once: after it was dropped it is loaded again when a client asks for it. So a fleet is loaded and dropped
/// repeatedly only if its clients connect and leave repeatedly.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    /// How long a fleet is unused before it may be dropped.
    idle: Duration,
    fleets: BTreeMap<FleetName, Account>,
    /// Those that were never kept: first those that had clients before this replica started, the latest first; then the
    /// smallest, because the more of them fit, the fewer clients have to wait.
    fresh: BTreeSet<(Reverse<u64>, u64, FleetName)>,
    /// The size of all fleets that are kept.
    used: u64,
}

/// More is as good as this, and sums of it do not overflow.
const LARGEST: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
struct Account {
    /// What the fleet takes, or would.
    bytes: u64,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Never kept.
    Fresh {
        /// When it had clients, before this replica started; 0 if it had none.
        last_use: u64,
    },
    Kept {
        /// When it was last in use; if it never was, when it was loaded.
        last_use: Duration,
    },
    Dropped,
}

impl Budget {
    /// `limit` is in bytes.
    pub(crate) fn new(limit: u64, idle: Duration) -> Self {
        Self { limit, idle, fleets: BTreeMap::new(), fresh: BTreeSet::new(), used: 0 }
    }

    /// Everything is kept.
    pub(crate) fn boundless() -> Self {
        Self::new(u64::MAX, Duration::ZERO)
    }

    /// The size of all fleets that are kept.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Sets how much a fleet takes, or would.
    pub(crate) fn set_size(&mut self, name: &FleetName, bytes: u64) {
        let fresh = State::Fresh { last_use: 0 };
        let state = self.fleets.get(name).map_or(fresh, |account| account.state);
        let bytes = bytes.min(LARGEST);
        self.set(name, Some(Account { bytes, state }));
    }

    /// A fleet had clients before this replica started, at so many seconds since 1970.
    pub(crate) fn prefer(&mut self, name: &FleetName, last_use: u64) {
        if let Some(Account { bytes, state: State::Fresh { .. } }) = self.fleets.get(name).copied()
        {
            self.set(name, Some(Account { bytes, state: State::Fresh { last_use } }));
        }
    }

    /// There is no such fleet any more.
    pub(crate) fn forget(&mut self, name: &FleetName) {
        self.set(name, None);
    }

    /// A fleet to load ahead of its clients, which is kept from now on.
    pub(crate) fn next_ahead(&mut self, now: Duration) -> Option<FleetName> {
        loop {
            let (Reverse(last_use), bytes, name) = self.fresh.first()?.clone();
            if self.used + bytes <= self.limit {
                self.keep(&name, bytes, now);
                return Some(name);
            }
            if last_use == 0 {
                return None;
            }
            // It is no obstacle to smaller ones.
            self.prefer(&name, 0);
        }
    }

    /// A fleet has clients now. Says whether it has to be loaded for them; it is kept from now on.
    pub(crate) fn in_use(&mut self, name: &FleetName, now: Duration) -> bool {
        let Some(Account { bytes, state }) = self.fleets.get(name).copied() else { return false };
        self.keep(name, bytes, now);
        !matches!(state, State::Kept { .. })
    }

    /// The fleets to drop, each with [`Budget::dropped`] unless it is in use after all.
    pub(crate) fn to_drop(&self, now: Duration) -> Vec<FleetName> {
        let mut over = self.used.saturating_sub(self.limit);
        if over == 0 {
            return Vec::new();
        }
        let mut unused: Vec<_> = self
            .fleets
            .iter()
            .filter_map(|(name, account)| match account.state {
                State::Kept { last_use } if now.saturating_sub(last_use) >= self.idle => {
                    Some((last_use, name, account.bytes))
                }
                _ => None,
            })
            .collect();
        unused.sort_unstable();
        let mut names = Vec::new();
        for (_, name, bytes) in unused {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(bytes);
            names.push(name.clone());
        }
        names
    }

    pub(crate) fn dropped(&mut self, name: &FleetName) {
        if let Some(Account { bytes, .. }) = self.fleets.get(name).copied() {
            self.set(name, Some(Account { bytes, state: State::Dropped }));
        }
    }

    fn keep(&mut self, name: &FleetName, bytes: u64, last_use: Duration) {
        self.set(name, Some(Account { bytes, state: State::Kept { last_use } }));
    }

    /// The one place where the sums are kept.
    fn set(&mut self, name: &FleetName, account: Option<Account>) {
        let before = match account {
            Some(account) => self.fleets.insert(name.clone(), account),
            None => self.fleets.remove(name),
        };
        match before {
            Some(Account { bytes, state: State::Fresh { last_use } }) => {
                self.fresh.remove(&(Reverse(last_use), bytes, name.clone()));
            }
            Some(Account { bytes, state: State::Kept { .. } }) => self.used -= bytes,
            Some(Account { state: State::Dropped, .. }) | None => {}
        }
        match account {
            Some(Account { bytes, state: State::Fresh { last_use } }) => {
                self.fresh.insert((Reverse(last_use), bytes, name.clone()));
            }
            Some(Account { bytes, state: State::Kept { .. } }) => self.used += bytes,
            Some(Account { state: State::Dropped, .. }) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;

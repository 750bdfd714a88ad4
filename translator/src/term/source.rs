use crate::provider::Input;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;

/// How many events are merged into one publish at most, which bounds what a storm takes of memory.
const MERGED: usize = 20_000;

/// The inputs of the provider.
pub(super) struct Source {
    inputs: mpsc::Receiver<Input>,
    /// Whether it may tell more.
    goes_on: bool,
    /// What has come and is not worked off.
    pub(super) events: Vec<Event>,
    pub(super) synced: bool,
    /// The number of the last request that was answered by `Fresh`.
    pub(super) fresh: u64,
    /// The objects of which no version could be read.
    unread: BTreeMap<Kind, BTreeSet<ObjectName>>,
}

impl Source {
    pub(super) fn new(inputs: mpsc::Receiver<Input>) -> Self {
        Self {
            inputs,
            goes_on: true,
            events: Vec::new(),
            synced: false,
            fresh: 0,
            unread: BTreeMap::new(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.goes_on && self.events.len() < MERGED
    }

    /// The objects of a kind of which no version could be read.
    pub(super) fn unread(&self, kind: Kind) -> impl Iterator<Item = &ObjectName> {
        self.unread.get(&kind).into_iter().flatten()
    }

    /// Waits for an input, and takes what has come behind it. Dropping the future loses nothing.
    pub(super) async fn fill(&mut self) {
        if !self.goes_on {
            return std::future::pending().await;
        }
        match self.inputs.recv().await {
            Some(input) => self.add(input),
            // The provider has ended, and reports why. The store keeps what was published.
            None => self.goes_on = false,
        }
        while self.has_room()
            && let Ok(input) = self.inputs.try_recv()
        {
            self.add(input);
        }
    }

    fn add(&mut self, input: Input) {
        match input {
            Input::Batch(events) => self.events.extend(events),
            Input::Synced => self.synced = true,
            // Askings are answered out of order.
            Input::Fresh(asking) => self.fresh = self.fresh.max(asking),
            Input::Unread(kind, names) => drop(self.unread.insert(kind, names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::ObjectName;

    /// A storm that is longer than there is room for is taken in parts, and nothing of it is lost.
    #[tokio::test]
    async fn what_comes_is_taken_in_parts_and_whole() {
        const BATCH: usize = MERGED / 2 + 1;
        let (sender, inputs) = mpsc::channel(8);
        let key = ObjectName::new("", "shop").of(Kind::Namespace);
        for _ in 0..3 {
            sender.try_send(Input::Batch(vec![Event::Deleted(key.clone()); BATCH])).unwrap();
        }
        sender.try_send(Input::Synced).unwrap();
        drop(sender);
        let (mut source, mut taken) = (Source::new(inputs), Vec::new());
        while source.goes_on {
            source.fill().await;
            taken.push(std::mem::take(&mut source.events).len());
        }
        assert_eq!(taken[..2], [2 * BATCH, BATCH]);
        assert!(source.synced);
    }
}

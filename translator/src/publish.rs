use heliograph_shared::store::{Store, StoreError, Update};
use heliograph_snapshot::{Change, FleetName, Head, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The one writer of the store, for one term. An error ends the term: what the store holds is no longer what the
/// writer believes, and only a new claim tells.
pub struct Publisher {
    store: Arc<dyn Store>,
    epoch: u64,
    fence: u128,
    /// What the store holds, as far as this writer knows.
    heads: BTreeMap<FleetName, Head>,
    /// The fleets of this term.
    current: BTreeMap<FleetName, Arc<Snapshot>>,
    /// The fleets of earlier terms that this term has not spoken of.
    earlier: BTreeMap<FleetName, Arc<Snapshot>>,
}

impl Publisher {
    /// Begins a term and learns what the store holds. `fence` is the token of whatever elected this writer.
    pub async fn claim(store: Arc<dyn Store>, fence: Option<u128>) -> Result<Self, StoreError> {
        let claim = store.claim(fence).await?;
        let mut earlier = BTreeMap::new();
        // After the claim nobody of an earlier term can write, so what is read here stays true.
        let mut subscription = store.subscribe();
        while let Some(update) = subscription.next().await {
            match update {
                Update::Published(snapshot) => {
                    earlier.insert(snapshot.fleet.clone(), snapshot);
                }
                Update::Retired(fleet, _) => {
                    earlier.remove(&fleet);
                }
                Update::Synced => break,
            }
        }
        drop(subscription);
        Ok(Self {
            store,
            epoch: claim.epoch,
            fence: claim.fence,
            heads: claim.heads,
            current: BTreeMap::new(),
            earlier,
        })
    }

    /// Publishes a fleet after `changes`, which for a fleet that is new in this term are all its resources.
    /// Returns where it stands, and whether that took a write: equal content is not published again.
    pub async fn publish(
        &mut self,
        fleet: &FleetName,
        changes: Vec<Change>,
    ) -> Result<(Head, bool), StoreError> {
        let head = self.next_head(fleet);
        let next = match self.current.get(fleet) {
            Some(before) => before.with(head, changes),
            None => Snapshot::empty(fleet.clone()).with(head, changes),
        };
        let earlier = self.earlier.remove(fleet);
        if let Some(before) = self.current.get(fleet).cloned().or(earlier)
            && before.same_content(&next)
        {
            let head = before.head;
            self.current.insert(fleet.clone(), before);
            return Ok((head, false));
        }
        let next = Arc::new(next);
        let expected = self.heads.get(fleet).copied();
        self.store.publish(next.clone(), expected).await?;
        self.heads.insert(fleet.clone(), head);
        self.current.insert(fleet.clone(), next);
        Ok((head, true))
    }

    /// Takes a fleet away.
    pub async fn retire(&mut self, fleet: &FleetName) -> Result<(), StoreError> {
        let known = self.current.remove(fleet).or(self.earlier.remove(fleet));
        if known.is_none() {
            return Ok(());
        }
        let tombstone = self.next_head(fleet);
        let expected = self.heads.get(fleet).copied();
        self.store.retire(fleet.clone(), tombstone, expected).await?;
        self.heads.insert(fleet.clone(), tombstone);
        Ok(())
    }

    /// Takes away the fleets of earlier terms that this term has not spoken of. Called once everything that is
    /// known has been published; returns them.
    pub async fn retire_forgotten(&mut self) -> Result<Vec<FleetName>, StoreError> {
        let forgotten: Vec<FleetName> = self.earlier.keys().cloned().collect();
        for fleet in &forgotten {
            self.retire(fleet).await?;
        }
        Ok(forgotten)
    }

    pub fn fleets(&self) -> usize {
        self.current.len()
    }

    fn next_head(&self, fleet: &FleetName) -> Head {
        // Sequences go on across terms, so that (epoch, fence, sequence) never comes twice.
        let last = self.heads.get(fleet).map_or(0, |head| head.sequence);
        Head { epoch: self.epoch, fence: self.fence, sequence: last.saturating_add(1) }
    }
}

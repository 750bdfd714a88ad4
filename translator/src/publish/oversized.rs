//! Resources that are too large for the store. It would refuse the whole fleet because of them, so their previous
//! versions stay, and everything else is published.

use heliograph_snapshot::{Change, ResourceType, Snapshot};
use heliograph_store::LARGEST_RESOURCE;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which resources of a fleet are too large.
#[derive(Debug, Default)]
pub(super) struct Oversized {
    names: BTreeSet<ResourceId>,
    /// Those that were not reported yet.
    unreported: Vec<TooLarge>,
}

/// A resource that is too large for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    pub kind: ResourceType,
    pub name: Arc<str>,
    pub bytes: usize,
}

type ResourceId = (ResourceType, Arc<str>);

impl Oversized {
    /// Leaves out what is too large.
    pub(super) fn admit(&mut self, changes: Vec<Change>) -> Vec<Change> {
        changes.into_iter().filter(|change| self.is_admitted(change)).collect()
    }

    /// The content with what the store holds in place of what is too large. A writer that was not there before knows it
    /// from nowhere else.
    pub(super) fn filled(&self, content: Arc<Snapshot>, held: &Snapshot) -> Arc<Snapshot> {
        let missing = self.missing(&content);
        let known =
            missing.filter_map(|(kind, name)| Some((*kind, held.get(*kind, name)?.clone())));
        let kept: Vec<_> = known.map(|(kind, kept)| Change::Set(kind, kept)).collect();
        if kept.is_empty() { content } else { Arc::new(content.with(content.head, kept)) }
    }

    /// Whether something is left out that the content has no earlier version of.
    pub(super) fn wants(&self, content: &Snapshot) -> bool {
        self.missing(content).next().is_some()
    }

    /// How many are left out.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn take_unreported(&mut self) -> Vec<TooLarge> {
        std::mem::take(&mut self.unreported)
    }

    fn missing<'a>(&'a self, content: &'a Snapshot) -> impl Iterator<Item = &'a ResourceId> {
        self.names.iter().filter(|(kind, name)| content.get(*kind, name).is_none())
    }

    fn is_admitted(&mut self, change: &Change) -> bool {
        match change {
            Change::Set(kind, resource) if resource.body.len() > LARGEST_RESOURCE => {
                let (kind, name, bytes) = (*kind, resource.name.clone(), resource.body.len());
                if self.names.insert((kind, name.clone())) {
                    self.unreported.push(TooLarge { kind, name, bytes });
                }
                false
            }
            Change::Set(kind, resource) => {
                self.names.remove(&(*kind, resource.name.clone()));
                true
            }
            Change::Remove(kind, name) => {
                self.names.remove(&(*kind, name.clone()));
                true
            }
            Change::SetInternal(_, resource) => resource.body.len() <= LARGEST_RESOURCE,
            Change::RemoveInternal(..) => true,
        }
    }
}

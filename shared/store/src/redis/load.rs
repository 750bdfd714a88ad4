use super::Shared;
use super::metrics::Operation;
use super::write::place;
use crate::codec::{self, Body, CodecError};
use crate::keys::OpenError;
use crate::{Loaded, Record, StoreError};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use heliograph_snapshot::{
    Address, Assembly, FleetName, Missing, Part, ResourceType, Snapshot, Tree,
};
use redis::{Cmd, cmd};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

/// How many objects are read in one command, and how many such commands are on their way at once.
const TOGETHER: usize = 256;
const READS: usize = 4;

impl Shared {
    pub(super) async fn load(
        &self,
        record: Arc<Record>,
        known: Option<Arc<Snapshot>>,
    ) -> Result<Loaded, StoreError> {
        let fleet = &record.fleet;
        let roots = record.roots();
        let mut trees: BTreeMap<ResourceType, Assembly> = ResourceType::ALL
            .into_iter()
            .map(|kind| {
                let known = known.as_ref().map_or_else(Tree::new, |known| known.tree(kind).clone());
                (kind, Assembly::new(roots.get(&kind).copied(), known))
            })
            .collect();
        self.load_parts(fleet, &mut trees).await?;
        let unopened = self.load_bodies(fleet, &mut trees).await?;
        let trees = trees.into_iter().map(|(kind, tree)| (kind, tree.finish())).collect();
        let snapshot = Arc::new(Snapshot::assembled(fleet.clone(), record.head, trees));
        Ok(Loaded { snapshot, unopened })
    }

    /// Level by level, all types at once.
    async fn load_parts(
        &self,
        fleet: &FleetName,
        trees: &mut BTreeMap<ResourceType, Assembly>,
    ) -> Result<(), StoreError> {
        loop {
            let wanted: Vec<(ResourceType, Address)> = trees
                .iter()
                .flat_map(|(kind, tree)| tree.wanted().map(|address| (*kind, address)))
                .collect();
            if wanted.is_empty() {
                return Ok(());
            }
            let addresses: Vec<_> = wanted.iter().map(|(_, address)| *address).collect();
            let mut replies = pin!(self.replies(Operation::Load, fleet, &addresses));
            let mut wanted = wanted.into_iter();
            while let Some(objects) = replies.try_next().await? {
                for (object, (kind, address)) in objects.into_iter().zip(wanted.by_ref()) {
                    self.take_part(fleet, trees, kind, address, object)?;
                }
            }
        }
    }

    fn take_part(
        &self,
        fleet: &FleetName,
        trees: &mut BTreeMap<ResourceType, Assembly>,
        kind: ResourceType,
        address: Address,
        object: Option<Bytes>,
    ) -> Result<(), StoreError> {
        let object = object.ok_or_else(|| self.missing_object(fleet, address))?;
        let part =
            codec::read_part(&object).map_err(|error| self.unread(fleet, address, &error))?;
        if kind == ResourceType::Secret && has_bodies(&part) {
            return Err(self.damaged(fleet, address, &"it has secrets that are not sealed"));
        }
        match trees.get_mut(&kind) {
            Some(tree) => {
                tree.part(address, part).map_err(|error| self.damaged(fleet, address, &error))
            }
            None => Ok(()),
        }
    }

    /// Returns the names of secrets whose key this process lacks.
    async fn load_bodies(
        &self,
        fleet: &FleetName,
        trees: &mut BTreeMap<ResourceType, Assembly>,
    ) -> Result<Vec<Arc<str>>, StoreError> {
        let mut unopened = Vec::new();
        for (kind, tree) in trees {
            let missing = tree.missing().to_vec();
            let addresses: Vec<_> = missing.iter().map(|missing| missing.address).collect();
            let mut replies = pin!(self.replies(Operation::Load, fleet, &addresses));
            let mut missing = missing.iter();
            while let Some(objects) = replies.try_next().await? {
                for (object, missing) in objects.into_iter().zip(missing.by_ref()) {
                    let object =
                        object.ok_or_else(|| self.missing_object(fleet, missing.address))?;
                    match self.open_body(fleet, *kind, missing, &object)? {
                        Some(body) => tree.body(missing, body),
                        None => {
                            // A proxy does better with an older secret than with none.
                            tree.keep(missing);
                            unopened.push(missing.name.clone());
                        }
                    }
                }
            }
        }
        Ok(unopened)
    }

    /// The body, if it is the one of its address. `None`: it is sealed with a key that this process lacks.
    fn open_body(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        missing: &Missing,
        object: &Bytes,
    ) -> Result<Option<Bytes>, StoreError> {
        let Missing { name, address, .. } = missing;
        let address = *address;
        let body = codec::read_body(object).map_err(|error| self.unread(fleet, address, &error))?;
        match body {
            Body::Plain(body) if kind != ResourceType::Secret && Address::of(&body) == address => {
                Ok(Some(body))
            }
            Body::Sealed(sealed) if kind == ResourceType::Secret => {
                match self.keys().open(&place(fleet, name, &address), &sealed) {
                    Ok(body) => Ok(Some(body)),
                    Err(OpenError::UnknownKey { .. }) => Ok(None),
                    Err(error) => Err(self.damaged(fleet, address, &error)),
                }
            }
            _ => Err(self.damaged(fleet, address, &"it is not what its address says")),
        }
    }

    /// What is at these addresses, in their order.
    pub(super) async fn objects(
        &self,
        operation: Operation,
        fleet: &FleetName,
        addresses: &[Address],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.replies(operation, fleet, addresses).try_concat().await
    }

    /// The same, some at a time, so that the first can be worked on while the others are on their way.
    fn replies<'a>(
        &'a self,
        operation: Operation,
        fleet: &'a FleetName,
        addresses: &'a [Address],
    ) -> impl Stream<Item = Result<Vec<Option<Bytes>>, StoreError>> + Send + 'a {
        let reads = addresses.chunks(TOGETHER).map(move |addresses| {
            let mut command = cmd("HMGET");
            command.arg(self.names.objects(fleet));
            addresses.iter().for_each(|address| {
                command.arg(&address.0);
            });
            self.some_objects(operation, fleet, command, addresses.len())
        });
        // Collected, because the compiler cannot tell the lifetimes of a lazy iterator in a stream.
        stream::iter(reads.collect::<Vec<_>>()).buffered(READS)
    }

    async fn some_objects(
        &self,
        operation: Operation,
        fleet: &FleetName,
        command: Cmd,
        count: usize,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let objects: Vec<Option<Bytes>> = self.query(operation, &command).await?;
        if objects.len() != count {
            let found = objects.len();
            let reason = format!("{fleet}: Redis answered {found} objects of {count}");
            return Err(StoreError::Unavailable(reason));
        }
        let found = objects.iter().flatten();
        self.metrics.read(found.clone().count(), found.map(Bytes::len).sum());
        Ok(objects)
    }

    fn missing_object(&self, fleet: &FleetName, address: Address) -> StoreError {
        self.damaged(fleet, address, &"it is missing")
    }

    fn unread(&self, fleet: &FleetName, address: Address, error: &CodecError) -> StoreError {
        match error {
            // It is whole, and written again it would be the same.
            CodecError::Newer(_) => {
                StoreError::Refused(format!("{fleet}: the object {address:?} {error}"))
            }
            _ => self.damaged(fleet, address, error),
        }
    }

    fn damaged(
        &self,
        fleet: &FleetName,
        address: Address,
        reason: &dyn std::fmt::Display,
    ) -> StoreError {
        self.metrics.damaged_object();
        let reason = format!("the object {address:?} cannot be used: {reason}");
        StoreError::Damaged { fleet: fleet.clone(), reason }
    }
}

fn has_bodies(part: &Part) -> bool {
    match part {
        Part::Leaf(entries) => entries.iter().any(|entry| entry.body.is_some()),
        Part::Branch(_) => false,
    }
}

use super::Shared;
use super::metrics::Operation;
use super::write::place;
use crate::codec::{self, Body};
use crate::keys::OpenError;
use crate::{Loaded, Record, StoreError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use heliograph_snapshot::{Address, Assembly, FleetName, Resource, ResourceType, Snapshot, Tree};
use redis::cmd;
use std::collections::BTreeMap;
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
            let objects = self.objects(Operation::Load, fleet, &addresses).await?;
            for ((kind, address), object) in wanted.into_iter().zip(objects) {
                let object = object.ok_or_else(|| self.missing_object(fleet, address))?;
                let part = codec::read_part(&object)
                    .map_err(|error| self.damaged(fleet, address, &error))?;
                if let Some(tree) = trees.get_mut(&kind) {
                    tree.part(address, part)
                        .map_err(|error| self.damaged(fleet, address, &error))?;
                }
            }
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
            let wanted: Vec<(Address, Vec<Arc<str>>)> =
                tree.bodies().map(|(address, names)| (address, names.to_vec())).collect();
            for wanted in wanted.chunks(TOGETHER * READS) {
                let addresses: Vec<_> = wanted.iter().map(|(address, _)| *address).collect();
                let objects = self.objects(Operation::Load, fleet, &addresses).await?;
                for ((address, names), object) in wanted.iter().zip(objects) {
                    let object = object.ok_or_else(|| self.missing_object(fleet, *address))?;
                    for name in names {
                        match self.open_body(fleet, *kind, name, *address, &object)? {
                            Some(body) => tree.body(Resource::at(*address, name.clone(), body)),
                            None => {
                                // A proxy does better with an older secret than with none.
                                tree.keep(name);
                                unopened.push(name.clone());
                            }
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
        name: &str,
        address: Address,
        object: &Bytes,
    ) -> Result<Option<Bytes>, StoreError> {
        let body =
            codec::read_body(object).map_err(|error| self.damaged(fleet, address, &error))?;
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
        let reads = addresses.chunks(TOGETHER).map(|addresses| {
            let mut command = cmd("HMGET");
            command.arg(self.names.objects(fleet));
            addresses.iter().for_each(|address| {
                command.arg(&address.0);
            });
            async move { self.query::<Vec<Option<Bytes>>>(operation, &command).await }
        });
        // Collected, because the compiler cannot tell the lifetimes of a lazy iterator in a stream.
        let reads: Vec<_> = reads.collect();
        let replies: Vec<_> = stream::iter(reads).buffered(READS).try_collect().await?;
        let objects: Vec<Option<Bytes>> = replies.into_iter().flatten().collect();
        if objects.len() != addresses.len() {
            return Err(StoreError::Unavailable(format!(
                "{fleet}: Redis answered {} objects of {}",
                objects.len(),
                addresses.len()
            )));
        }
        let found = objects.iter().flatten();
        self.metrics.read(found.clone().count(), found.map(Bytes::len).sum());
        Ok(objects)
    }

    fn missing_object(&self, fleet: &FleetName, address: Address) -> StoreError {
        self.damaged(fleet, address, &"it is missing")
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

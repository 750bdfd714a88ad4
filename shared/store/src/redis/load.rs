use super::Shared;
use super::cache::{Cache, Objects};
use super::metrics::Operation;
use super::write::seal_context;
use crate::codec::{self, Body, CodecError};
use crate::keys::UnsealError;
use crate::{Loaded, Record, StoreError};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use heliograph_snapshot::{
    Address, Assembly, FleetName, Malformed, Missing, Part, Section, Snapshot, Tree, VerifiedPart,
};
use redis::cmd;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

/// How many objects are read in one command, and how many such commands are on their way at once.
const BATCH: usize = 64;
const CONCURRENT_READS: usize = 8;

/// How many bytes are worth being verified on another thread.
const MIN_THREAD_BYTES: usize = 64 * 1024;

/// Why an object is no part of the tree.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it is missing")]
    Missing,
    #[error(transparent)]
    Unread(#[from] CodecError),
    #[error("it has secrets that are not sealed")]
    Unsealed,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The value at the address of a body.
enum Opened {
    Plain(Bytes),
    Confidential(Bytes),
    /// It is sealed with a key that this process lacks.
    WithoutKey,
}

/// Why a snapshot is not loaded.
pub(super) enum LoadError {
    /// An object that was read on the disk is at fault.
    Cached(StoreError),
    Store(StoreError),
}

/// Where the objects of a fleet are read: on the disk of this machine if they are there, else in Redis.
struct Source<'a> {
    shared: &'a Shared,
    fleet: &'a FleetName,
    cached: Option<Objects>,
}

impl Shared {
    pub(super) async fn load(
        &self,
        record: Arc<Record>,
        known: Option<Arc<Snapshot>>,
    ) -> Result<Loaded, StoreError> {
        let Some(cache) = &self.cache else {
            return Ok(self.assemble(&record, known, None).await?);
        };
        // Before, because a newer record may come meanwhile.
        let value = cache.record(&record.fleet, record.head);
        cache.loading(&record.fleet);
        // With a snapshot at hand, only what changed is read, and that is not on the disk.
        let loaded = match known {
            Some(_) => self.assemble(&record, known, None).await?,
            None => self.load_with_cache(cache, &record).await?,
        };
        cache.loaded(&record.fleet, record.head);
        if let Some(value) = value
            && loaded.unopened.is_empty()
        {
            cache.offer(value, loaded.snapshot.clone());
        }
        Ok(loaded)
    }

    /// Reads objects from the disk if they are there, and the rest from Redis. It does not record that the fleet is in
    /// memory now. Damage on the disk does not count as damage of the store.
    pub(super) async fn load_with_cache(
        &self,
        cache: &Cache,
        record: &Record,
    ) -> Result<Loaded, LoadError> {
        let Some(cached) = cache.objects(&record.fleet).await else {
            return self.assemble(record, None, None).await;
        };
        match self.assemble(record, None, Some(cached)).await {
            Ok(loaded) if !loaded.unopened.is_empty() => {
                // In Redis they may be sealed with a newer key.
                Ok(self.assemble(record, None, None).await.unwrap_or(loaded))
            }
            Err(LoadError::Cached(error)) => {
                cache.reject(
                    &record.fleet,
                    &format_args!("has something that cannot be used: {error}"),
                );
                self.assemble(record, None, None).await
            }
            outcome => outcome,
        }
    }

    async fn assemble(
        &self,
        record: &Record,
        known: Option<Arc<Snapshot>>,
        cached: Option<Objects>,
    ) -> Result<Loaded, LoadError> {
        let fleet = &record.fleet;
        let source = Source { shared: self, fleet, cached };
        let roots = record.roots();
        let mut trees: BTreeMap<Section, Assembly> = Section::all()
            .map(|section| {
                let known = known.as_ref();
                let known = known.map_or_else(Tree::new, |known| known.section(section).clone());
                (section, Assembly::new(roots.get(&section).copied(), known))
            })
            .collect();
        self.load_parts(&source, &mut trees).await?;
        let unopened = self.load_bodies(&source, &mut trees).await?;
        let trees = trees.into_iter().map(|(section, tree)| (section, tree.finish()));
        let snapshot = Arc::new(Snapshot::assembled(fleet.clone(), record.head, trees));
        Ok(Loaded { snapshot, unopened })
    }

    /// Level by level, all sections at once.
    async fn load_parts(
        &self,
        source: &Source<'_>,
        trees: &mut BTreeMap<Section, Assembly>,
    ) -> Result<(), LoadError> {
        loop {
            let wanted: Vec<(Section, Address)> = trees
                .iter()
                .flat_map(|(section, tree)| tree.wanted().map(|address| (*section, address)))
                .collect();
            if wanted.is_empty() {
                return Ok(());
            }
            // Collected, because the compiler cannot tell the lifetimes of a lazy iterator in a stream.
            let parts: Vec<_> =
                wanted.chunks(BATCH).map(|wanted| self.parts(source, wanted)).collect();
            let parts = stream::iter(parts).buffered(CONCURRENT_READS);
            let mut parts = pin!(parts);
            while let Some(parts) = parts.try_next().await? {
                for (section, part) in parts {
                    let Some(tree) = trees.get_mut(&section) else { continue };
                    tree.part(part).map_err(|error| source.damaged(error.0, &error))?;
                }
            }
        }
    }

    /// The wanted parts, if the values are valid parts.
    async fn parts(
        &self,
        source: &Source<'_>,
        wanted: &[(Section, Address)],
    ) -> Result<Vec<(Section, VerifiedPart)>, LoadError> {
        let addresses: Vec<_> = wanted.iter().map(|(_, address)| *address).collect();
        let objects = source.read(&addresses).await?;
        let length: usize = objects.iter().flatten().map(Bytes::len).sum();
        let came = wanted.iter().copied().zip(objects).collect();
        let parts = if length < MIN_THREAD_BYTES {
            verified(came)
        } else {
            // Hashes of megabytes: beside the other tasks, and several at once.
            let work = tokio::task::spawn_blocking(move || verified(came));
            work.await.map_err(|_| StoreError::Unavailable("the program is ending".to_owned()))?
        };
        parts.map_err(|(address, fault)| match fault {
            Fault::Unread(error) => source.unread(address, &error),
            fault => source.damaged(address, &fault),
        })
    }

    /// Returns the names of those that are sealed with a key that this process lacks.
    async fn load_bodies(
        &self,
        source: &Source<'_>,
        trees: &mut BTreeMap<Section, Assembly>,
    ) -> Result<Vec<Arc<str>>, LoadError> {
        let mut unopened = Vec::new();
        for (section, tree) in trees {
            let missing = tree.missing().to_vec();
            let addresses: Vec<_> = missing.iter().map(|missing| missing.address).collect();
            let reads = addresses.chunks(BATCH).map(|addresses| source.read(addresses));
            let mut replies =
                pin!(stream::iter(reads.collect::<Vec<_>>()).buffered(CONCURRENT_READS));
            let mut missing = missing.iter();
            while let Some(objects) = replies.try_next().await? {
                for (object, missing) in objects.into_iter().zip(missing.by_ref()) {
                    let object =
                        object.ok_or_else(|| source.damaged(missing.address, &Fault::Missing))?;
                    match self.open_body(source, *section, missing, &object)? {
                        Opened::Plain(body) => tree.body(missing, body, false),
                        Opened::Confidential(body) => tree.body(missing, body, true),
                        Opened::WithoutKey => {
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

    /// The body, if it is the one of its address.
    fn open_body(
        &self,
        source: &Source<'_>,
        section: Section,
        missing: &Missing,
        object: &Bytes,
    ) -> Result<Opened, LoadError> {
        let Missing { name, address, .. } = missing;
        let address = *address;
        let body = codec::read_body(object).map_err(|error| source.unread(address, &error))?;
        match body {
            Body::Plain(body) if !section.is_always_sealed() && Address::of(&body) == address => {
                Ok(Opened::Plain(body))
            }
            // No other body has an address that was made with the key.
            Body::Sealed(sealed) => {
                match self
                    .keys()
                    .open(&seal_context(source.fleet, section, name, &address), &sealed)
                {
                    Ok(body) => Ok(Opened::Confidential(body)),
                    Err(UnsealError::UnknownKey { .. }) => Ok(Opened::WithoutKey),
                    Err(error) => Err(source.damaged(address, &error)),
                }
            }
            _ => Err(source.damaged(address, &"it is not what its address says")),
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
        let reads = addresses.chunks(BATCH);
        let reads = reads.map(move |addresses| self.read(operation, fleet, addresses.iter()));
        stream::iter(reads.collect::<Vec<_>>()).buffered(CONCURRENT_READS)
    }

    fn read<'a>(
        &'a self,
        operation: Operation,
        fleet: &'a FleetName,
        addresses: impl ExactSizeIterator<Item = &'a Address>,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + Send + 'a {
        let count = addresses.len();
        let mut command = cmd("HMGET");
        command.arg(self.names.objects(fleet));
        addresses.for_each(|address| {
            command.arg(&address.0);
        });
        async move {
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
    }
}

impl Source<'_> {
    /// What is at these addresses, in their order.
    async fn read(&self, addresses: &[Address]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let cached = |address| self.cached.as_ref().and_then(|cached| cached.get(address).cloned());
        let mut objects: Vec<_> = addresses.iter().map(cached).collect();
        let elsewhere: Vec<_> = std::iter::zip(addresses, &objects)
            .filter_map(|(address, object)| object.is_none().then_some(*address))
            .collect();
        if elsewhere.is_empty() {
            return Ok(objects);
        }
        let read = self.shared.read(Operation::Load, self.fleet, elsewhere.iter()).await?;
        let gaps = objects.iter_mut().filter(|object| object.is_none());
        gaps.zip(read).for_each(|(gap, object)| *gap = object);
        Ok(objects)
    }

    fn unread(&self, address: Address, error: &CodecError) -> LoadError {
        match error {
            // It is whole, and written again it would be the same.
            CodecError::Newer(_) => {
                let reason = format!("{}: the object {address:?} {error}", self.fleet);
                self.at_fault(address, StoreError::Refused(reason))
            }
            _ => self.damaged(address, error),
        }
    }

    fn damaged(&self, address: Address, reason: &dyn std::fmt::Display) -> LoadError {
        let reason = format!("the object {address:?} cannot be used: {reason}");
        self.at_fault(address, StoreError::Damaged { fleet: self.fleet.clone(), reason })
    }

    /// A file on the disk is not blamed for what Redis lacks, nor Redis for what is on the disk.
    fn at_fault(&self, address: Address, error: StoreError) -> LoadError {
        if self.cached.as_ref().is_some_and(|cached| cached.contains_key(&address)) {
            return LoadError::Cached(error);
        }
        if matches!(error, StoreError::Damaged { .. }) {
            self.shared.metrics.damaged_object();
        }
        LoadError::Store(error)
    }
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<LoadError> for StoreError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Cached(error) | LoadError::Store(error) => error,
        }
    }
}

fn verified(
    came: Vec<((Section, Address), Option<Bytes>)>,
) -> Result<Vec<(Section, VerifiedPart)>, (Address, Fault)> {
    let sound = |((section, address), object)| match part(section, address, object) {
        Ok(part) => Ok((section, part)),
        Err(fault) => Err((address, fault)),
    };
    came.into_iter().map(sound).collect()
}

fn part(section: Section, address: Address, object: Option<Bytes>) -> Result<VerifiedPart, Fault> {
    let part = codec::read_part(&object.ok_or(Fault::Missing)?)?;
    if section.is_always_sealed() && has_bodies(&part) {
        return Err(Fault::Unsealed);
    }
    Ok(part.verified(address)?)
}

fn has_bodies(part: &Part) -> bool {
    match part {
        Part::Leaf(entries) => entries.iter().any(|entry| entry.body.is_some()),
        Part::Branch(_) => false,
    }
}

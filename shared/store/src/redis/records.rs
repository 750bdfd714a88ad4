//! Records as they are in Redis: the head as text, for scripts, then the framed record with its MAC.

use super::Shared;
use super::metrics::{Operation, RefusedRecord};
use crate::codec::{self, CodecError};
use crate::keys::Signer;
use crate::{PinOrder, Record, StoreError};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::try_join_all;
use heliograph_snapshot::{FleetName, Head};
use redis::cmd;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// How many heads are asked for in one command.
const BATCH: usize = 500;

pub(super) fn value(record: &Record, signer: &Signer) -> Bytes {
    let (head, framed) = (record.head.to_string(), codec::record(record, signer));
    let mut value = BytesMut::with_capacity(head.len() + 1 + framed.len());
    value.put_slice(head.as_bytes());
    value.put_u8(b'\n');
    value.put_slice(&framed);
    value.freeze()
}

/// The record, if it is one of that fleet and of this store's writers.
pub(super) fn read(
    fleet: &FleetName,
    value: &Bytes,
    signer: &Signer,
) -> Result<Record, CodecError> {
    let end = value.iter().position(|byte| *byte == b'\n').ok_or(CodecError::Foreign)?;
    let record = codec::read_record(&value.slice(end + 1..), signer)?;
    // Moved here from elsewhere, or with another order than it was signed with.
    if record.fleet != *fleet || record.head.to_string().as_bytes() != &value[..end] {
        return Err(CodecError::Forged);
    }
    Ok(record)
}

/// None if it is not a name of ours: such keys are ignored.
fn fleet_in(name: &[u8]) -> Option<FleetName> {
    let fleet = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    if fleet.is_none() {
        tracing::debug!(name = %name.escape_ascii(), "is not the name of a fleet");
    }
    fleet
}

impl Shared {
    /// The fleets that the index has, and their heads as far as it knows.
    pub(super) async fn index(
        &self,
        operation: Operation,
    ) -> Result<BTreeMap<FleetName, Option<Head>>, StoreError> {
        let command = cmd("HGETALL").arg(self.names.heads()).take();
        let entries: Vec<(Bytes, Bytes)> = self.query(operation, &command).await?;
        let entries = entries.iter().filter_map(|(name, head)| {
            let head = std::str::from_utf8(head).ok().and_then(|head| head.parse().ok());
            Some((fleet_in(name)?, head))
        });
        Ok(entries.collect())
    }

    /// The stored heads of these fleets, in their order.
    pub(super) async fn values(
        &self,
        operation: Operation,
        fleets: &[FleetName],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        if fleets.is_empty() {
            return Ok(Vec::new());
        }
        // In a Cluster they are in as many slots.
        let batch = if self.is_cluster() { 1 } else { BATCH };
        let reads = fleets.chunks(batch).map(|fleets| {
            let mut command = cmd("MGET");
            fleets.iter().for_each(|fleet| {
                command.arg(self.names.head(fleet));
            });
            async move { self.query::<Vec<Option<Bytes>>>(operation, &command).await }
        });
        let replies = try_join_all(reads).await?;
        let values: Vec<_> = replies.into_iter().flatten().collect();
        self.metrics.read(0, values.iter().flatten().map(Bytes::len).sum());
        Ok(values)
    }

    /// The records of these fleets. A head that is not from a writer of this store is as good as none, and remembered, so
    /// that it can be replaced.
    pub(super) async fn records(
        &self,
        operation: Operation,
        fleets: &[FleetName],
    ) -> Result<BTreeMap<FleetName, Arc<Record>>, StoreError> {
        let values = self.values(operation, fleets).await?;
        let signer = self.signer();
        let mut records = BTreeMap::new();
        for (fleet, value) in fleets.iter().zip(values) {
            let Some(value) = value else {
                self.forged().remove(fleet);
                continue;
            };
            match read(fleet, &value, &signer) {
                Ok(record) => {
                    self.forged().remove(fleet);
                    records.insert(fleet.clone(), Arc::new(record));
                }
                Err(error) => {
                    if self.forged().insert(fleet.clone(), value.clone()) != Some(value) {
                        self.refuse(fleet, &error);
                    }
                }
            }
        }
        Ok(records)
    }

    /// The last order of each fleet. One that is not from this installation is as good as none, and so is one that was put
    /// back: the signed record of its fleet, in `newest`, obeys a later one.
    pub(super) async fn orders(
        &self,
        operation: Operation,
        newest: &BTreeMap<FleetName, Arc<Record>>,
    ) -> Result<BTreeMap<FleetName, PinOrder>, StoreError> {
        let command = cmd("HGETALL").arg(self.names.pins()).take();
        let entries: Vec<(Bytes, Bytes)> = self.query(operation, &command).await?;
        let signer = self.signer();
        let mut orders = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for (name, value) in entries {
            let Some(fleet) = fleet_in(&name) else { continue };
            let obeyed = newest.get(&fleet).map_or(0, |record| record.pin.number);
            match codec::read_order(&fleet, &value, &signer) {
                Ok(order) if order.number >= obeyed => drop(orders.insert(fleet, order)),
                Ok(order) => {
                    let reason = format!("is number {}, and {obeyed} came after it", order.number);
                    refused.insert(fleet, (value, RefusedRecord::Older, reason));
                }
                Err(error) => {
                    let reason = (value, RefusedRecord::of(&error), error.to_string());
                    refused.insert(fleet, reason);
                }
            }
        }
        self.refuse_orders(refused);
        Ok(orders)
    }

    /// Counts and logs each order that is refused, once for as long as it is there.
    fn refuse_orders(&self, refused: BTreeMap<FleetName, (Bytes, RefusedRecord, String)>) {
        let mut known = self.refused_orders.lock();
        known.retain(|fleet, value| refused.get(fleet).is_some_and(|(it, ..)| it == value));
        for (fleet, (value, reason, words)) in refused {
            if let Entry::Vacant(entry) = known.entry(fleet) {
                self.metrics.refused_record(reason);
                tracing::warn!(fleet = %entry.key(), "an order to pin or release the fleet is rejected: it {words}");
                entry.insert(value);
            }
        }
    }

    /// Says and counts that a record is not used.
    pub(super) fn refuse(&self, fleet: &FleetName, error: &CodecError) {
        self.metrics.refused_record(RefusedRecord::of(error));
        tracing::warn!(%fleet, "the head in Redis is rejected: it {error}");
    }
}

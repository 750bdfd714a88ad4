//! Records as they are in Redis: the head as text, for scripts, then the framed record with its MAC.

use super::Shared;
use super::metrics::{Operation, RefusedRecord};
use crate::codec::{self, CodecError};
use crate::keys::KeyRing;
use crate::{Pin, Record, StoreError};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::try_join_all;
use heliograph_snapshot::{FleetName, Head};
use redis::cmd;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many heads are asked for in one command.
const TOGETHER: usize = 500;

pub(super) fn value(record: &Record, keys: &KeyRing) -> Bytes {
    let (head, framed) = (record.head.to_string(), codec::record(record, keys));
    let mut value = BytesMut::with_capacity(head.len() + 1 + framed.len());
    value.put_slice(head.as_bytes());
    value.put_u8(b'\n');
    value.put_slice(&framed);
    value.freeze()
}

/// The record, if it is one of that fleet and of this store's writers.
pub(super) fn read(fleet: &FleetName, value: &Bytes, keys: &KeyRing) -> Result<Record, CodecError> {
    let end = value.iter().position(|byte| *byte == b'\n').ok_or(CodecError::Foreign)?;
    let record = codec::read_record(&value.slice(end + 1..), keys)?;
    // Moved here from elsewhere, or with another order than it was signed with.
    if record.fleet != *fleet || record.head.to_string().as_bytes() != &value[..end] {
        return Err(CodecError::Forged);
    }
    Ok(record)
}

/// Nothing if somebody else wrote it: that is left alone, and is in nobody's way.
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

    /// What is stored as the heads of these fleets, in their order.
    pub(super) async fn values(
        &self,
        operation: Operation,
        fleets: &[FleetName],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        if fleets.is_empty() {
            return Ok(Vec::new());
        }
        // In a Cluster they are in as many slots.
        let together = if self.is_cluster() { 1 } else { TOGETHER };
        let reads = fleets.chunks(together).map(|fleets| {
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
        let keys = self.keys();
        let mut records = BTreeMap::new();
        for (fleet, value) in fleets.iter().zip(values) {
            let Some(value) = value else {
                self.forged().remove(fleet);
                continue;
            };
            match read(fleet, &value, &keys) {
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

    pub(super) async fn pins(
        &self,
        operation: Operation,
    ) -> Result<BTreeMap<FleetName, Pin>, StoreError> {
        let command = cmd("HGETALL").arg(self.names.pins()).take();
        let entries: Vec<(Bytes, Bytes)> = self.query(operation, &command).await?;
        let keys = self.keys();
        let pins = entries.into_iter().filter_map(|(name, value)| {
            let fleet = fleet_in(&name)?;
            let pin = codec::read_pin(&value, &keys).ok()?;
            (pin.record.fleet == fleet).then_some((fleet, pin))
        });
        Ok(pins.collect())
    }

    /// Says and counts that a record is not used.
    pub(super) fn refuse(&self, fleet: &FleetName, error: &CodecError) {
        self.metrics.refused_record(match error {
            CodecError::Forged => RefusedRecord::Forged,
            _ => RefusedRecord::Undecodable,
        });
        tracing::warn!(%fleet, "the head in Redis is refused: it {error}");
    }
}

use super::Shared;
use super::metrics::Operation;
use super::records;
use crate::codec::{self, CodecError};
use crate::{Pin, Record, StoreError};
use bytes::Bytes;
use heliograph_snapshot::FleetName;
use redis::cmd;
use std::sync::Arc;

impl Shared {
    pub(super) async fn history(&self, fleet: FleetName) -> Result<Vec<Arc<Record>>, StoreError> {
        let steps = self.steps(Operation::History, &fleet).await?;
        let problem = steps.iter().find_map(|step| step.as_ref().err().cloned());
        // What somebody else put there is no place to go back to.
        let records: Vec<_> = steps.into_iter().flatten().map(Arc::new).collect();
        match problem {
            // Nothing at all can be read: that is no empty history.
            Some(error) if records.is_empty() => {
                Err(StoreError::Damaged { fleet, reason: format!("its history {error}") })
            }
            _ => Ok(records),
        }
    }

    pub(super) async fn pin(&self, fleet: FleetName, pin: Pin) -> Result<(), StoreError> {
        let head = pin.record.head;
        if !pin.record.is_understood() {
            return Err(StoreError::Refused(format!(
                "{fleet}: {head} was written by a newer program than this one: upgrade it"
            )));
        }
        if !self.history(fleet.clone()).await?.contains(&pin.record) {
            return Err(StoreError::Refused(format!(
                "{fleet}: {head} is not in its history; look there again for a head to go back to"
            )));
        }
        let value = codec::pin(&pin, &self.keys());
        let command =
            cmd("HSET").arg(self.names.pins()).arg(fleet.as_str()).arg(value.as_ref()).take();
        self.query(Operation::Pin, &command).await
    }

    pub(super) async fn release(&self, fleet: FleetName) -> Result<bool, StoreError> {
        let command = cmd("HDEL").arg(self.names.pins()).arg(fleet.as_str()).take();
        self.query(Operation::Pin, &command).await
    }

    /// The records of a fleet's history, newest first, with those that cannot be used.
    pub(super) async fn steps(
        &self,
        operation: Operation,
        fleet: &FleetName,
    ) -> Result<Vec<Result<Record, CodecError>>, StoreError> {
        let command = cmd("LRANGE").arg(self.names.history(fleet)).arg(0).arg(-1).take();
        let values: Vec<Bytes> = self.query(operation, &command).await?;
        let keys = self.keys();
        Ok(values.iter().map(|value| records::read(fleet, value, &keys)).collect())
    }

    /// The record that a fleet is pinned to, if it is and the pin can be used.
    pub(super) async fn pinned(
        &self,
        operation: Operation,
        fleet: &FleetName,
    ) -> Result<Option<Result<Record, CodecError>>, StoreError> {
        let command = cmd("HGET").arg(self.names.pins()).arg(fleet.as_str()).take();
        let value: Option<Bytes> = self.query(operation, &command).await?;
        let pin = value.map(|value| codec::read_pin(&value, &self.keys()));
        Ok(pin.map(|pin| pin.map(|pin| Record::clone(&pin.record))))
    }
}

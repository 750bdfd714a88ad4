use super::Shared;
use super::metrics::Operation;
use super::records;
use super::scripts::{self, word};
use crate::codec::{self, CodecError};
use crate::{PinOrder, Record, StoreError};
use bytes::Bytes;
use heliograph_snapshot::FleetName;
use redis::cmd;
use std::cmp::Ordering;
use std::sync::Arc;

impl Shared {
    pub(super) async fn history(&self, fleet: FleetName) -> Result<Vec<Arc<Record>>, StoreError> {
        let steps = self.steps(Operation::History, &fleet).await?;
        let problem = steps.iter().find_map(|step| step.as_ref().err().cloned());
        // A foreign entry is not a step to roll back to.
        let records: Vec<_> = steps.into_iter().flatten().map(Arc::new).collect();
        match problem {
            // Nothing at all can be read: that is no empty history.
            Some(error) if records.is_empty() => {
                Err(StoreError::Damaged { fleet, reason: format!("its history {error}") })
            }
            _ => Ok(records),
        }
    }

    pub(super) async fn order(&self, fleet: FleetName, order: PinOrder) -> Result<(), StoreError> {
        if let Some(at) = &order.at {
            let head = at.head;
            if !at.is_understood() {
                return Err(StoreError::Refused(format!(
                    "{fleet}: {head} was written by a newer program than this one: upgrade it"
                )));
            }
            let history = self.history(fleet.clone()).await?;
            if !history.iter().any(|step| step.head == head && step.state == at.state) {
                return Err(StoreError::Refused(format!(
                    "{fleet}: {head} is not in its history: choose a head that `helio snapshot list` shows"
                )));
            }
        }
        self.write_order(fleet, order, Ordering::Less).await
    }

    /// Where it is lost, the writer that obeys it may have had to hold the fleet at another record of the same content.
    pub(super) async fn restore_order(
        &self,
        fleet: FleetName,
        order: PinOrder,
    ) -> Result<(), StoreError> {
        self.write_order(fleet, order, Ordering::Equal).await
    }

    /// Replaces one whose number is at most `replaced` to the new one's.
    async fn write_order(
        &self,
        fleet: FleetName,
        order: PinOrder,
        replaced: Ordering,
    ) -> Result<(), StoreError> {
        let signer = self.signer();
        let found = self.stored_order(Operation::Pin, &fleet).await?;
        let known = found.as_ref().map(|value| codec::read_order(&fleet, value, &signer));
        let value = codec::order(&fleet, &order, &signer);
        match known {
            // The answer was lost, and this is asked again.
            _ if found.as_ref() == Some(&value) => return Ok(()),
            Some(Ok(known)) if known.number.cmp(&order.number) > replaced => {
                return Err(StoreError::Refused(format!(
                    "{fleet}: a later order was given meanwhile: check the fleet before you give another one"
                )));
            }
            // An entry that cannot be read is not from this installation.
            _ => {}
        }
        let call = scripts::ORDER
            .call()
            .key(self.names.pins())
            .arg(fleet.as_str())
            .arg(found.unwrap_or_default())
            .arg(value);
        let reply = self.invoke(Operation::Pin, call).await?;
        match word(&reply) {
            "ok" => Ok(()),
            _ => Err(StoreError::Unavailable(format!(
                "{fleet}: another order was given at the same moment"
            ))),
        }
    }

    /// With a fleet goes its order.
    pub(super) async fn forget_order(&self, fleet: &FleetName) -> Result<(), StoreError> {
        let command = cmd("HDEL").arg(self.names.pins()).arg(fleet.as_str()).take();
        self.query(Operation::Pin, &command).await
    }

    async fn stored_order(
        &self,
        operation: Operation,
        fleet: &FleetName,
    ) -> Result<Option<Bytes>, StoreError> {
        let command = cmd("HGET").arg(self.names.pins()).arg(fleet.as_str()).take();
        self.query(operation, &command).await
    }

    /// The records of a fleet's history, newest first, with those that cannot be used.
    pub(super) async fn steps(
        &self,
        operation: Operation,
        fleet: &FleetName,
    ) -> Result<Vec<Result<Record, CodecError>>, StoreError> {
        let command = cmd("LRANGE").arg(self.names.history(fleet)).arg(0).arg(-1).take();
        let values: Vec<Bytes> = self.query(operation, &command).await?;
        let signer = self.signer();
        Ok(values.iter().map(|value| records::read(fleet, value, &signer)).collect())
    }

    /// The record that a fleet is to be held at, if it is and the order can be used.
    pub(super) async fn pinned(
        &self,
        operation: Operation,
        fleet: &FleetName,
    ) -> Result<Option<Result<Record, CodecError>>, StoreError> {
        let value = self.stored_order(operation, fleet).await?;
        let order = value.map(|value| codec::read_order(fleet, &value, &self.signer()));
        let at = order.map(|order| Ok(order?.at.map(|record| Record::clone(&record))));
        Ok(at.and_then(Result::transpose))
    }
}

//! Orders of operators, and the fields of records about them.

use super::CodecError;
use super::messages::{Head, Record, milliseconds, time};
use std::sync::Arc;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PinOrder {
    #[prost(string, tag = "1")]
    fleet: String,
    #[prost(uint64, tag = "2")]
    number: u64,
    /// None: the fleet is released.
    #[prost(message, optional, tag = "3")]
    at: Option<Record>,
    #[prost(uint64, tag = "4")]
    unix_milliseconds: u64,
    #[prost(string, tag = "5")]
    by: String,
    #[prost(string, tag = "6")]
    reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PinState {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(message, optional, tag = "2")]
    pinned: Option<Pinned>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pinned {
    #[prost(message, optional, tag = "1")]
    head: Option<Head>,
    #[prost(uint64, tag = "2")]
    unix_milliseconds: u64,
    #[prost(string, tag = "3")]
    by: String,
    #[prost(string, tag = "4")]
    reason: String,
}

impl PinOrder {
    /// A release names no record, so the order names its fleet itself.
    pub(super) fn of(fleet: &str, order: &crate::PinOrder) -> Self {
        let crate::PinOrder { number, at, time, by, reason } = order;
        Self {
            fleet: fleet.to_owned(),
            number: *number,
            at: at.as_ref().map(|record| (&**record).into()),
            unix_milliseconds: milliseconds(*time),
            by: by.to_string(),
            reason: reason.to_string(),
        }
    }

    /// The order, if it is one for this fleet.
    pub(super) fn read(self, fleet: &str) -> Result<crate::PinOrder, CodecError> {
        let at: Option<crate::Record> = self.at.map(TryInto::try_into).transpose()?;
        // Moved here from another fleet.
        if self.fleet != fleet || at.as_ref().is_some_and(|at| at.fleet.as_str() != fleet) {
            return Err(CodecError::Forged);
        }
        Ok(crate::PinOrder {
            number: self.number,
            at: at.map(Arc::new),
            time: time(self.unix_milliseconds),
            by: self.by.into(),
            reason: self.reason.into(),
        })
    }
}

impl From<&crate::PinState> for PinState {
    fn from(state: &crate::PinState) -> Self {
        let crate::PinState { number, pinned } = state;
        Self { number: *number, pinned: pinned.as_ref().map(Into::into) }
    }
}

impl TryFrom<PinState> for crate::PinState {
    type Error = CodecError;

    fn try_from(state: PinState) -> Result<Self, CodecError> {
        let pinned = state.pinned.map(TryInto::try_into).transpose()?;
        Ok(Self { number: state.number, pinned })
    }
}

impl From<&crate::Pinned> for Pinned {
    fn from(pinned: &crate::Pinned) -> Self {
        let crate::Pinned { head, since, by, reason } = pinned;
        Self {
            head: Some((*head).into()),
            unix_milliseconds: milliseconds(*since),
            by: by.to_string(),
            reason: reason.to_string(),
        }
    }
}

impl TryFrom<Pinned> for crate::Pinned {
    type Error = CodecError;

    fn try_from(pinned: Pinned) -> Result<Self, CodecError> {
        Ok(Self {
            head: pinned.head.ok_or(CodecError::Damaged)?.try_into()?,
            since: time(pinned.unix_milliseconds),
            by: pinned.by.into(),
            reason: pinned.reason.into(),
        })
    }
}

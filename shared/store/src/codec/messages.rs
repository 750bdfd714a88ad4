//! The protobuf messages in the frames. The tags are in stored bytes: a new field takes a new tag, and a tag is never used
//! again for something else.

use super::CodecError;
use super::pins::PinState;
use crate::State;
use crate::keys;
use bytes::Bytes;
use heliograph_snapshot::{Address, FleetName, Part, Resource, ResourceType, Section};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Record {
    #[prost(string, tag = "1")]
    fleet: String,
    #[prost(message, optional, tag = "2")]
    head: Option<Head>,
    #[prost(message, repeated, tag = "3")]
    roots: Vec<Root>,
    #[prost(bool, tag = "4")]
    retired: bool,
    #[prost(uint64, tag = "5")]
    unix_milliseconds: u64,
    #[prost(string, tag = "6")]
    cause: String,
    #[prost(uint64, tag = "8")]
    bytes: u64,
    /// Tag 7 was a head that the fleet is pinned to, alone.
    #[prost(message, optional, tag = "9")]
    pin: Option<PinState>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    /// Sixteen bytes, big end first.
    #[prost(bytes = "bytes", tag = "2")]
    fence: Bytes,
    #[prost(uint64, tag = "3")]
    sequence: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Root {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    address: Bytes,
    /// Some of its resources are sealed. Where all are, it is not said.
    #[prost(bool, tag = "3")]
    partly_sealed: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Leaf {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    /// Text. Read as bytes, it is not copied twice.
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    address: Bytes,
    /// Without it, the body is kept apart.
    #[prost(bytes = "bytes", optional, tag = "3")]
    body: Option<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Branch {
    /// A bit for each child that there is, the first child in the lowest.
    #[prost(uint32, tag = "1")]
    present: u32,
    /// The addresses of those, one after the other.
    #[prost(bytes = "bytes", tag = "2")]
    addresses: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sealed {
    #[prost(string, tag = "1")]
    key_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    nonce: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    ciphertext: Bytes,
}

/// `None` also for what is not served.
pub(super) fn kind_of(number: u32) -> Option<ResourceType> {
    match Section::from_number(number)? {
        Section::Served(kind) => Some(kind),
        Section::Internal(_) => None,
    }
}

fn address(bytes: &[u8]) -> Result<Address, CodecError> {
    bytes.try_into().map(Address).map_err(|_| CodecError::Damaged)
}

fn bytes_of(address: Address) -> Bytes {
    Bytes::copy_from_slice(&address.0)
}

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn fleet(name: &str) -> Result<FleetName, CodecError> {
    name.parse().map_err(|_| CodecError::Damaged)
}

impl From<heliograph_snapshot::Head> for Head {
    fn from(head: heliograph_snapshot::Head) -> Self {
        let heliograph_snapshot::Head { epoch, fence, sequence } = head;
        Self { epoch, fence: Bytes::copy_from_slice(&fence.to_be_bytes()), sequence }
    }
}

impl TryFrom<Head> for heliograph_snapshot::Head {
    type Error = CodecError;

    fn try_from(head: Head) -> Result<Self, CodecError> {
        let fence = head.fence.as_ref().try_into().map_err(|_| CodecError::Damaged)?;
        Ok(Self { epoch: head.epoch, fence: u128::from_be_bytes(fence), sequence: head.sequence })
    }
}

impl From<&crate::Record> for Record {
    fn from(record: &crate::Record) -> Self {
        let crate::Record { fleet, head, state, time, cause, pin, bytes, .. } = record;
        let crate::Record { partly_sealed, has_unknown_types: _, .. } = record;
        let roots = match state {
            State::Live(roots) => roots.clone(),
            State::Retired => BTreeMap::new(),
        };
        let root = |(section, address): (Section, _)| Root {
            kind: section.number(),
            address: bytes_of(address),
            partly_sealed: partly_sealed.contains(&section),
        };
        Self {
            fleet: fleet.to_string(),
            head: Some((*head).into()),
            roots: roots.into_iter().map(root).collect(),
            retired: matches!(state, State::Retired),
            unix_milliseconds: milliseconds(*time),
            cause: cause.to_string(),
            bytes: *bytes,
            pin: (*pin != crate::PinState::default()).then(|| pin.into()),
        }
    }
}

impl TryFrom<Record> for crate::Record {
    type Error = CodecError;

    fn try_from(record: Record) -> Result<Self, CodecError> {
        // Types of a newer program that this one does not serve are left out.
        let roots = record
            .roots
            .iter()
            .filter_map(|root| Some((Section::from_number(root.kind)?, &root.address)));
        let roots: Result<BTreeMap<_, _>, _> =
            roots.map(|(section, at)| Ok((section, address(at)?))).collect();
        let partly_sealed = record.roots.iter().filter(|root| root.partly_sealed);
        let partly_sealed = partly_sealed.filter_map(|root| Section::from_number(root.kind));
        Ok(Self {
            fleet: fleet(&record.fleet)?,
            head: record.head.ok_or(CodecError::Damaged)?.try_into()?,
            state: if record.retired { State::Retired } else { State::Live(roots?) },
            time: time(record.unix_milliseconds),
            cause: record.cause.into(),
            pin: record.pin.map(TryInto::try_into).transpose()?.unwrap_or_default(),
            bytes: record.bytes,
            partly_sealed: partly_sealed.collect(),
            has_unknown_types: record
                .roots
                .iter()
                .any(|root| Section::from_number(root.kind).is_none()),
        })
    }
}

impl Leaf {
    pub(super) fn of(section: Section, resources: &[Arc<Resource>]) -> Self {
        let entry = |resource: &Arc<Resource>| Entry {
            name: Bytes::copy_from_slice(resource.name.as_bytes()),
            address: bytes_of(resource.address),
            body: super::is_in_leaf(section, resource).then(|| resource.body.clone()),
        };
        Self { entries: resources.iter().map(entry).collect() }
    }
}

impl TryFrom<Leaf> for Part {
    type Error = CodecError;

    fn try_from(leaf: Leaf) -> Result<Self, CodecError> {
        let entries = leaf.entries.into_iter().map(|Entry { name, address: at, body }| {
            let name = std::str::from_utf8(&name).map_err(|_| CodecError::Damaged)?;
            Ok(heliograph_snapshot::Entry { name: name.into(), address: address(&at)?, body })
        });
        Ok(Self::Leaf(entries.collect::<Result<_, _>>()?))
    }
}

impl<const N: usize> From<&[Option<Address>; N]> for Branch {
    fn from(children: &[Option<Address>; N]) -> Self {
        let mut addresses = Vec::with_capacity(N * size_of::<Address>());
        let mut present = 0;
        for (slot, child) in children.iter().enumerate() {
            if let Some(child) = child {
                present |= 1 << slot;
                addresses.extend_from_slice(&child.0);
            }
        }
        Self { present, addresses: addresses.into() }
    }
}

impl TryFrom<Branch> for Part {
    type Error = CodecError;

    fn try_from(branch: Branch) -> Result<Self, CodecError> {
        let mut addresses = branch.addresses.chunks(size_of::<Address>());
        let mut children = Box::new([const { None }; 16]);
        for (slot, child) in children.iter_mut().enumerate() {
            if branch.present & (1 << slot) != 0 {
                *child = Some(address(addresses.next().ok_or(CodecError::Damaged)?)?);
            }
        }
        match addresses.next() {
            None => Ok(Self::Branch(children)),
            Some(_) => Err(CodecError::Damaged),
        }
    }
}

impl From<&keys::Sealed> for Sealed {
    fn from(sealed: &keys::Sealed) -> Self {
        let keys::Sealed { key_id, nonce, ciphertext } = sealed;
        Self {
            key_id: key_id.to_string(),
            nonce: Bytes::copy_from_slice(nonce),
            ciphertext: ciphertext.clone(),
        }
    }
}

impl TryFrom<Sealed> for keys::Sealed {
    type Error = CodecError;

    fn try_from(sealed: Sealed) -> Result<Self, CodecError> {
        Ok(Self {
            key_id: sealed.key_id,
            nonce: sealed.nonce.as_ref().try_into().map_err(|_| CodecError::Damaged)?,
            ciphertext: sealed.ciphertext,
        })
    }
}

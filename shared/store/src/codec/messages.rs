//! The protobuf messages in the frames. The tags are in stored bytes: a new field takes a new tag, and a tag is never used
//! again for something else.

use super::CodecError;
use super::disputes::StoredDispute;
use crate::keys;
use crate::{AckReport, FleetReport, RejectionReport, State};
use bytes::Bytes;
use heliograph_snapshot::{
    Address, FleetName, Internal, Part, Resource, ResourceType, Section, Version,
};
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
    #[prost(message, optional, tag = "7")]
    pinned: Option<Head>,
    #[prost(uint64, tag = "8")]
    bytes: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Head {
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
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pin {
    #[prost(message, optional, tag = "1")]
    record: Option<Record>,
    #[prost(uint64, tag = "2")]
    unix_milliseconds: u64,
    #[prost(string, tag = "3")]
    cause: String,
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

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Presence {
    #[prost(string, tag = "1")]
    replica: String,
    #[prost(uint64, tag = "2")]
    beat: u64,
    #[prost(uint64, tag = "3")]
    streams: u64,
    #[prost(bool, tag = "4")]
    leaving: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Acks {
    #[prost(string, tag = "1")]
    replica: String,
    #[prost(message, repeated, tag = "2")]
    fleets: Vec<FleetAcks>,
    #[prost(string, repeated, tag = "3")]
    damaged: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FleetAcks {
    #[prost(string, tag = "1")]
    fleet: String,
    #[prost(uint64, tag = "2")]
    connected: u64,
    #[prost(message, repeated, tag = "3")]
    acknowledged: Vec<Acknowledged>,
    #[prost(message, repeated, tag = "4")]
    rejections: Vec<Rejection>,
    #[prost(message, repeated, tag = "5")]
    disputes: Vec<StoredDispute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Acknowledged {
    #[prost(message, optional, tag = "1")]
    head: Option<Head>,
    #[prost(uint64, tag = "2")]
    count: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Rejection {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    detail: String,
    #[prost(message, repeated, tag = "3")]
    resources: Vec<Rejected>,
    #[prost(uint64, tag = "4")]
    count: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Rejected {
    #[prost(string, tag = "1")]
    name: String,
    /// None: a removal was rejected.
    #[prost(string, optional, tag = "2")]
    version: Option<String>,
}

/// The numbers of the sections. They never change.
const SECTIONS: [(u32, Section); 8] = [
    (1, Section::Served(ResourceType::Secret)),
    (2, Section::Served(ResourceType::Cluster)),
    (3, Section::Served(ResourceType::Endpoints)),
    (4, Section::Served(ResourceType::Listener)),
    (5, Section::Served(ResourceType::Route)),
    (6, Section::Internal(Internal::Rules)),
    (7, Section::Internal(Internal::Directory)),
    (8, Section::Internal(Internal::Quarantine)),
];

pub(super) fn number_of(section: impl Into<Section>) -> u32 {
    let section = section.into();
    SECTIONS.iter().find(|(_, known)| *known == section).map_or(0, |(number, _)| *number)
}

/// `None`: a section that a newer program knows.
fn section_of(number: u32) -> Option<Section> {
    SECTIONS.iter().find(|(known, _)| *known == number).map(|(_, section)| *section)
}

/// `None` also for what is not served.
pub(super) fn kind_of(number: u32) -> Option<ResourceType> {
    match section_of(number)? {
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

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

fn fleet(name: &str) -> Result<FleetName, CodecError> {
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
        let crate::Record { fleet, head, state, time, cause, pinned, bytes, has_unknown_types: _ } =
            record;
        let roots = match state {
            State::Live(roots) => roots.clone(),
            State::Retired => BTreeMap::new(),
        };
        let root = |(section, address): (Section, _)| Root {
            kind: number_of(section),
            address: bytes_of(address),
        };
        Self {
            fleet: fleet.to_string(),
            head: Some((*head).into()),
            roots: roots.into_iter().map(root).collect(),
            retired: matches!(state, State::Retired),
            unix_milliseconds: milliseconds(*time),
            cause: cause.to_string(),
            pinned: pinned.map(Into::into),
            bytes: *bytes,
        }
    }
}

impl TryFrom<Record> for crate::Record {
    type Error = CodecError;

    fn try_from(record: Record) -> Result<Self, CodecError> {
        // What a newer program tells of types that this one does not serve is left out.
        let roots =
            record.roots.iter().filter_map(|root| Some((section_of(root.kind)?, &root.address)));
        let roots: Result<BTreeMap<_, _>, _> =
            roots.map(|(section, at)| Ok((section, address(at)?))).collect();
        Ok(Self {
            fleet: fleet(&record.fleet)?,
            head: record.head.ok_or(CodecError::Damaged)?.try_into()?,
            state: if record.retired { State::Retired } else { State::Live(roots?) },
            time: time(record.unix_milliseconds),
            cause: record.cause.into(),
            pinned: record.pinned.map(TryInto::try_into).transpose()?,
            bytes: record.bytes,
            has_unknown_types: record.roots.iter().any(|root| section_of(root.kind).is_none()),
        })
    }
}

impl From<&crate::Pin> for Pin {
    fn from(pin: &crate::Pin) -> Self {
        let crate::Pin { record, time, cause } = pin;
        Self {
            record: Some((&**record).into()),
            unix_milliseconds: milliseconds(*time),
            cause: cause.to_string(),
        }
    }
}

impl TryFrom<Pin> for crate::Pin {
    type Error = CodecError;

    fn try_from(pin: Pin) -> Result<Self, CodecError> {
        Ok(Self {
            record: Arc::new(pin.record.ok_or(CodecError::Damaged)?.try_into()?),
            time: time(pin.unix_milliseconds),
            cause: pin.cause.into(),
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

impl From<&crate::Presence> for Presence {
    fn from(presence: &crate::Presence) -> Self {
        let crate::Presence { replica, beat, streams, leaving } = presence;
        Self { replica: replica.clone(), beat: *beat, streams: *streams, leaving: *leaving }
    }
}

impl From<Presence> for crate::Presence {
    fn from(presence: Presence) -> Self {
        let Presence { replica, beat, streams, leaving } = presence;
        Self { replica, beat, streams, leaving }
    }
}

impl From<&AckReport> for Acks {
    fn from(report: &AckReport) -> Self {
        let AckReport { replica, fleets, damaged } = report;
        let fleets = fleets.iter().map(|(fleet, report)| {
            let FleetReport { connected, acknowledged, rejections, disputes } = report;
            let counted = |(head, count): (&heliograph_snapshot::Head, &u64)| Acknowledged {
                head: Some((*head).into()),
                count: *count,
            };
            FleetAcks {
                fleet: fleet.to_string(),
                connected: *connected,
                acknowledged: acknowledged.iter().map(counted).collect(),
                rejections: rejections.iter().map(Into::into).collect(),
                disputes: disputes.iter().map(Into::into).collect(),
            }
        });
        let damaged = damaged.iter().map(ToString::to_string);
        Self { replica: replica.clone(), fleets: fleets.collect(), damaged: damaged.collect() }
    }
}

impl TryFrom<Acks> for AckReport {
    type Error = CodecError;

    fn try_from(acks: Acks) -> Result<Self, CodecError> {
        let fleets = acks.fleets.into_iter().map(|found| {
            let acknowledged = found.acknowledged.into_iter().map(|entry| {
                let head = entry.head.ok_or(CodecError::Damaged)?;
                Ok((head.try_into()?, entry.count))
            });
            let rejections = found.rejections.into_iter().filter_map(Rejection::read);
            let disputes = found.disputes.into_iter().filter_map(StoredDispute::read);
            let report = FleetReport {
                connected: found.connected,
                acknowledged: acknowledged.collect::<Result<_, CodecError>>()?,
                rejections: rejections.collect::<Result<_, _>>()?,
                disputes: disputes.collect::<Result<_, _>>()?,
            };
            Ok((fleet(&found.fleet)?, report))
        });
        let damaged = acks.damaged.iter().map(|name| fleet(name));
        Ok(Self {
            replica: acks.replica,
            fleets: fleets.collect::<Result<_, CodecError>>()?,
            damaged: damaged.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&RejectionReport> for Rejection {
    fn from(rejection: &RejectionReport) -> Self {
        let RejectionReport { kind, detail, resources, count } = rejection;
        let rejected = |(name, version): &(Arc<str>, Option<Version>)| Rejected {
            name: name.to_string(),
            version: version.map(|version| version.to_string()),
        };
        Self {
            kind: number_of(*kind),
            detail: detail.clone(),
            resources: resources.iter().map(rejected).collect(),
            count: *count,
        }
    }
}

impl Rejection {
    /// `None`: of a type that this program does not know.
    fn read(self) -> Option<Result<RejectionReport, CodecError>> {
        let kind = kind_of(self.kind)?;
        let resources = self.resources.into_iter().map(|rejected| {
            let version = rejected.version.map(|text| text.parse()).transpose();
            Ok((rejected.name.into(), version.map_err(|_| CodecError::Damaged)?))
        });
        let resources = resources.collect::<Result<_, _>>();
        Some(resources.map(|resources| RejectionReport {
            kind,
            detail: self.detail,
            resources,
            count: self.count,
        }))
    }
}

//! The bytes of the cache's files, without IO.
//!
//! Every file is a frame of fixed length, an index and contents. The frame and the index are encoded with bincode; the
//! contents of a fleet's file are the store codec's bytes as they are: the record as it is in Redis, with its MAC, and
//! the objects of its snapshot. The file of the directory has no contents.
//!
//! The frame is decoded first: it has a fixed length, only numbers, and no checksum of its own. Its lengths are compared
//! with the file and with a limit before anything is read by them. All else is decoded after its checksum, which is in
//! the frame. The checksums find damage. A file is trusted only because the store's own code verifies it: the record's
//! MAC, the hashes of the objects, the seals of the secrets.

use crate::Record;
use crate::codec::CodecError;
use crate::keys::Signer;
use crate::redis::records;
use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::{Decode, Encode};
use bytes::Bytes;
use heliograph_snapshot::{Address, FleetName, Head};
use std::collections::HashMap;

/// The objects of a snapshot, by address.
pub(in crate::redis) type Objects = HashMap<Address, Bytes>;

/// Why a file is not used, after the words "the file".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::redis) enum FileError {
    #[error("is not one of the snapshot cache")]
    Foreign,
    #[error("is in format {0}, and this program reads {FORMAT}")]
    OtherFormat(u32),
    #[error("is cut off")]
    Truncated,
    #[error("is damaged")]
    Damaged,
    #[error("has {0} bytes, which is more than the whole cache may have")]
    TooLarge(u64),
    #[error("has an index of {0} bytes, and none has more than {LONGEST_HEADER}")]
    LongHeader(u64),
    #[error("is of {0}")]
    OtherFleet(FleetName),
    #[error("has the snapshot {found}, and {known} was written last: an older file was put back")]
    Older { found: Head, known: Head },
    #[error(
        "has the order number {found}, and {known} was written last: an older file was put back"
    )]
    OlderOrder { found: u64, known: u64 },
    #[error("has a record that {0}")]
    RefusedRecord(CodecError),
    #[error("has the record of {found}, and says that it has the one of {declared}")]
    OtherRecord { found: Head, declared: Head },
}

/// The header of a fleet's file, before its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) fleet: FleetName,
    pub(super) head: Head,
    /// The number of the last order of an operator that the record obeys.
    pub(super) order: u64,
    /// The key that secrets were sealed with when the file was written; empty if there was none.
    pub(super) sealed_with: String,
    /// As it is in Redis.
    pub(super) record: Bytes,
    objects: Vec<Entry>,
    checksum: [u8; 32],
}

/// The record that a fleet's file has, not verified yet, and what the file says of it.
#[derive(Clone, Debug)]
pub(in crate::redis) struct CachedRecord {
    pub(in crate::redis) fleet: FleetName,
    /// As it is in Redis.
    pub(in crate::redis) value: Bytes,
    head: Head,
    order: u64,
}

/// The entry of a fleet's file in the file of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FleetSummary {
    pub(super) fleet: FleetName,
    pub(super) head: Head,
    /// As in [`Header`].
    pub(super) order: u64,
    /// The length of its file.
    pub(super) bytes: u64,
    /// When it last had clients, in seconds since 1970; 0 for never.
    pub(super) last_use: u64,
    /// When the file was last what Redis had, in milliseconds since 1970; 0 if that is not known.
    pub(super) confirmed: u64,
    /// As in [`Header`].
    pub(super) sealed_with: String,
}

/// Where the parts of a file are, as its frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The length of what follows the frame and comes before the contents' objects.
    pub(super) header: usize,
    /// The length of the objects.
    pub(super) objects: usize,
    index: usize,
    checksum: [u8; 32],
    objects_checksum: [u8; 32],
}

/// The begin of every format.
#[derive(Encode, Decode)]
struct Preface {
    magic: [u8; 8],
    format: u32,
}

#[derive(Encode, Decode)]
struct Frame {
    preface: Preface,
    kind: u8,
    index: u64,
    record: u64,
    objects: u64,
    /// Of the index and the record.
    checksum: [u8; 32],
    objects_checksum: [u8; 32],
}

#[derive(Encode, Decode)]
struct FleetIndex {
    fleet: String,
    head: StoredHead,
    order: u64,
    sealed_with: String,
    /// How many entries follow.
    objects: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
struct Entry {
    address: [u8; 32],
    length: u64,
}

#[derive(Encode, Decode)]
struct DirectoryIndex {
    /// How many entries follow.
    fleets: u64,
}

#[derive(Encode, Decode)]
struct DirectoryEntry {
    fleet: String,
    head: StoredHead,
    order: u64,
    bytes: u64,
    last_use: u64,
    confirmed: u64,
    sealed_with: String,
}

#[derive(Clone, Copy, Encode, Decode)]
struct StoredHead {
    epoch: u64,
    fence: u128,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Fleet = 1,
    Directory = 2,
}

const MAGIC: [u8; 8] = *b"helio-sc";
const FORMAT: u32 = 2;
/// Every number has its full length, so a frame has one length and an entry of an index too.
type Config = Configuration<LittleEndian, Fixint, Limit<LONGEST_VALUE>>;
const CONFIG: Config =
    bincode::config::standard().with_fixed_int_encoding().with_limit::<LONGEST_VALUE>();
/// No value that is decoded at once takes more: the longest have a name of a fleet.
const LONGEST_VALUE: usize = 64 << 10;
/// The limit of what is read of every file at the start. It is enough for 400,000 objects of a fleet, and for the
/// directory of 100,000 fleets: each entry of an index is a hash and a length, and each of the directory little more
/// than a name.
const LONGEST_HEADER: u64 = 16 << 20;
const PREFACE: usize = 8 + 4;
pub(super) const FRAME: usize = PREFACE + 1 + 3 * 8 + 2 * 32;
const ENTRY: usize = 32 + 8;
/// Of an entry of the directory, with texts of no length.
const SMALLEST_DIRECTORY_ENTRY: usize = 8 + (8 + 16 + 8) + 8 + 8 + 8 + 8 + 8;

/// Encodes the header of a fleet's file; the objects follow in the same order.
pub(super) fn fleet_header(
    fleet: &FleetName,
    head: Head,
    order: u64,
    sealed_with: &str,
    record: &Bytes,
    objects: &[(Address, Bytes)],
) -> Result<Vec<u8>, FileError> {
    let mut checksum = blake3::Hasher::new();
    objects.iter().for_each(|(_, object)| {
        checksum.update(object);
    });
    let index = FleetIndex {
        fleet: fleet.to_string(),
        head: head.into(),
        order,
        sealed_with: sealed_with.to_owned(),
        objects: objects.len() as u64,
    };
    let mut bytes = encode(&index)?;
    for (address, object) in objects {
        let entry = Entry { address: address.0, length: object.len() as u64 };
        bytes.extend_from_slice(&encode(&entry)?);
    }
    let length = objects.iter().map(|(_, object)| object.len()).sum();
    framed(Kind::Fleet, &bytes, record, length, *checksum.finalize().as_bytes())
}

pub(super) fn directory(fleets: &[FleetSummary]) -> Result<Vec<u8>, FileError> {
    let mut bytes = encode(&DirectoryIndex { fleets: fleets.len() as u64 })?;
    for it in fleets {
        let entry = DirectoryEntry {
            fleet: it.fleet.to_string(),
            head: it.head.into(),
            order: it.order,
            bytes: it.bytes,
            last_use: it.last_use,
            confirmed: it.confirmed,
            sealed_with: it.sealed_with.clone(),
        };
        bytes.extend_from_slice(&encode(&entry)?);
    }
    framed(Kind::Directory, &bytes, &[], 0, *blake3::hash(&[]).as_bytes())
}

/// Where the parts of a file of that length are. `frame` is its beginning, of up to [`FRAME`] bytes.
pub(super) fn layout(kind: Kind, frame: &[u8], length: u64) -> Result<Layout, FileError> {
    let preface: Preface = match frame.get(..PREFACE) {
        Some(preface) => decode(&mut &preface[..]).map_err(|_| FileError::Foreign)?,
        // Of a file of ours too little is left to tell.
        None if MAGIC.starts_with(&frame[..frame.len().min(MAGIC.len())]) => {
            return Err(FileError::Truncated);
        }
        None => return Err(FileError::Foreign),
    };
    if preface.magic != MAGIC {
        return Err(FileError::Foreign);
    }
    if preface.format != FORMAT {
        return Err(FileError::OtherFormat(preface.format));
    }
    let frame = frame.get(..FRAME).ok_or(FileError::Truncated)?;
    let frame: Frame = decode(&mut &frame[..])?;
    if frame.kind != kind as u8 {
        return Err(FileError::Foreign);
    }
    let lengths = [frame.index, frame.record, frame.objects];
    let declared = lengths.iter().try_fold(FRAME as u64, |sum, length| sum.checked_add(*length));
    match declared.ok_or(FileError::Damaged)? {
        declared if declared > length => return Err(FileError::Truncated),
        declared if declared < length => return Err(FileError::Damaged),
        _ => {}
    }
    let header = frame.index + frame.record;
    if header > LONGEST_HEADER {
        return Err(FileError::LongHeader(header));
    }
    let size = |length: u64| usize::try_from(length).map_err(|_| FileError::TooLarge(length));
    Ok(Layout {
        header: size(header)?,
        objects: size(frame.objects)?,
        index: size(frame.index)?,
        checksum: frame.checksum,
        objects_checksum: frame.objects_checksum,
    })
}

/// `bytes` are the [`Layout::header`] bytes after the frame.
pub(super) fn read_header(layout: &Layout, bytes: Bytes) -> Result<Header, FileError> {
    let index = checked(layout, &bytes)?;
    let rest = &mut &index[..];
    let found: FleetIndex = decode(rest)?;
    let count = usize::try_from(found.objects).map_err(|_| FileError::Damaged)?;
    if count.checked_mul(ENTRY) != Some(rest.len()) {
        return Err(FileError::Damaged);
    }
    let mut objects = Vec::with_capacity(count);
    let mut sum: u64 = 0;
    for _ in 0..count {
        let entry: Entry = decode(rest)?;
        sum = sum.checked_add(entry.length).ok_or(FileError::Damaged)?;
        objects.push(entry);
    }
    if sum != layout.objects as u64 {
        return Err(FileError::Damaged);
    }
    Ok(Header {
        fleet: found.fleet.parse().map_err(|_| FileError::Damaged)?,
        head: found.head.into(),
        order: found.order,
        sealed_with: found.sealed_with,
        record: bytes.slice(layout.index..),
        objects,
        checksum: layout.objects_checksum,
    })
}

pub(super) fn read_directory(
    layout: &Layout,
    bytes: &[u8],
) -> Result<Vec<FleetSummary>, FileError> {
    let index = checked(layout, bytes)?;
    let rest = &mut &index[..];
    let found: DirectoryIndex = decode(rest)?;
    let count = usize::try_from(found.fleets).map_err(|_| FileError::Damaged)?;
    if count > rest.len() / SMALLEST_DIRECTORY_ENTRY {
        return Err(FileError::Damaged);
    }
    let mut fleets = Vec::with_capacity(count);
    for _ in 0..count {
        let entry: DirectoryEntry = decode(rest)?;
        fleets.push(FleetSummary {
            fleet: entry.fleet.parse().map_err(|_| FileError::Damaged)?,
            head: entry.head.into(),
            order: entry.order,
            bytes: entry.bytes,
            last_use: entry.last_use,
            confirmed: entry.confirmed,
            sealed_with: entry.sealed_with,
        });
    }
    if !rest.is_empty() {
        return Err(FileError::Damaged);
    }
    Ok(fleets)
}

impl CachedRecord {
    /// The record, if it is signed and the one that the file was checked for: the file's own words are not signed.
    pub(in crate::redis) fn verified(&self, signer: &Signer) -> Result<Record, FileError> {
        let record = records::read(&self.fleet, &self.value, signer);
        let record = record.map_err(FileError::RefusedRecord)?;
        if (record.head, record.pin.number) != (self.head, self.order) {
            return Err(FileError::OtherRecord { found: record.head, declared: self.head });
        }
        Ok(record)
    }
}

impl Header {
    /// With memory of its own: the index may be large.
    pub(super) fn into_record(self) -> CachedRecord {
        let Self { fleet, head, order, record, .. } = self;
        CachedRecord { fleet, value: Bytes::copy_from_slice(&record), head, order }
    }

    /// The objects, each with memory of its own: a resource that stays must not keep all of the file with it.
    pub(super) fn objects(&self, contents: &[u8]) -> Result<Objects, FileError> {
        if blake3::hash(contents) != blake3::Hash::from_bytes(self.checksum) {
            return Err(FileError::Damaged);
        }
        let mut rest = contents;
        let mut objects = HashMap::with_capacity(self.objects.len());
        for Entry { address, length } in &self.objects {
            let length = usize::try_from(*length).map_err(|_| FileError::Damaged)?;
            let (object, after) = rest.split_at_checked(length).ok_or(FileError::Damaged)?;
            objects.insert(Address(*address), Bytes::copy_from_slice(object));
            rest = after;
        }
        Ok(objects)
    }
}

/// The frame, the index and the record.
fn framed(
    kind: Kind,
    index: &[u8],
    record: &[u8],
    objects: usize,
    objects_checksum: [u8; 32],
) -> Result<Vec<u8>, FileError> {
    let header = index.len() as u64 + record.len() as u64;
    if header > LONGEST_HEADER {
        return Err(FileError::LongHeader(header));
    }
    let mut checksum = blake3::Hasher::new();
    checksum.update(index).update(record);
    let frame = Frame {
        preface: Preface { magic: MAGIC, format: FORMAT },
        kind: kind as u8,
        index: index.len() as u64,
        record: record.len() as u64,
        objects: objects as u64,
        checksum: *checksum.finalize().as_bytes(),
        objects_checksum,
    };
    let mut bytes = encode(&frame)?;
    bytes.extend_from_slice(index);
    bytes.extend_from_slice(record);
    Ok(bytes)
}

/// The index, if it and the record are what was written.
fn checked<'a>(layout: &Layout, header: &'a [u8]) -> Result<&'a [u8], FileError> {
    if header.len() != layout.header
        || blake3::hash(header) != blake3::Hash::from_bytes(layout.checksum)
    {
        return Err(FileError::Damaged);
    }
    header.get(..layout.index).ok_or(FileError::Damaged)
}

fn encode(value: &impl Encode) -> Result<Vec<u8>, FileError> {
    // Only a name that no reader would take is too long.
    bincode::encode_to_vec(value, CONFIG).map_err(|_| FileError::Damaged)
}

fn decode<T: Decode<()>>(bytes: &mut &[u8]) -> Result<T, FileError> {
    let (value, length) =
        bincode::decode_from_slice(bytes, CONFIG).map_err(|_| FileError::Damaged)?;
    *bytes = bytes.get(length..).ok_or(FileError::Damaged)?;
    Ok(value)
}

impl From<Head> for StoredHead {
    fn from(Head { epoch, fence, sequence }: Head) -> Self {
        Self { epoch, fence, sequence }
    }
}

impl From<StoredHead> for Head {
    fn from(StoredHead { epoch, fence, sequence }: StoredHead) -> Self {
        Self { epoch, fence, sequence }
    }
}

#[cfg(test)]
mod tests;

//! The bytes that are kept in Redis. Nothing else knows the format.
//!
//! Every value begins with a frame of four bytes: two of magic, the format, and the kind of what follows, which is a
//! protobuf message (see [`messages`]) or a resource's body as it is. The proof of the content depends on the kind:
//! parts of trees and bodies are found by their hash, everything else ends with a MAC.
//!
//! Protobuf, because fields can be added without a new format: a reader skips unknown ones. The format byte is for
//! changes that a new field cannot express; a reader rejects a format newer than its own. Signed values are in format 2,
//! whose MAC is for one installation; format 1 is rejected, since its MAC does not name the installation.

mod disputes;
mod messages;
mod pins;
mod reports;
#[cfg(test)]
mod tests;

use crate::keys::{Sealed, Signer};
use crate::{AckReport, PinOrder, Presence, Record};
use bytes::{BufMut, Bytes, BytesMut};
use heliograph_snapshot::{Address, FleetName, Part, Resource, Section};
use prost::Message;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::SystemTime;

/// The value at the address of a resource's body.
#[derive(Debug)]
pub(crate) enum Body {
    Plain(Bytes),
    Sealed(Sealed),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("is not something that this program wrote")]
    Foreign,
    #[error("is in format {0}, which is newer than this program: upgrade it")]
    Newer(u8),
    #[error(
        "is in format {0} of an earlier release, which is not trusted any more: an upgraded translator replaces it"
    )]
    Older(u8),
    #[error("is damaged")]
    Damaged,
    #[error(
        "has a MAC that is not of this key ring's root and this store's prefix: it is forged, or the programs have \
         different key rings"
    )]
    Forged,
    #[error("is larger than {LARGEST} bytes")]
    TooLarge,
}

const MAGIC: [u8; 2] = *b"HG";
const FRAME: usize = 4;
const NEWEST_FORMAT: u8 = 2;
const MAC: usize = 32;
/// No value is larger: more than any table of routes that Envoy can take, and less than would hold up Redis.
pub(crate) const LARGEST: usize = 64 << 20;

/// A body of so many bytes at most is kept in its leaf, of which there are at most 32 in one. This may only grow: a leaf
/// that is stored already is not written again, and one that lacks a body which is not kept apart either cannot be loaded.
const SMALL: usize = 512;

/// The numbers are in stored bytes: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Record = 1,
    Pin = 2,
    Leaf = 3,
    Branch = 4,
    Body = 5,
    Sealed = 6,
    Acks = 7,
    Presence = 8,
}

pub(crate) fn record(record: &Record, signer: &Signer) -> Bytes {
    signed(Kind::Record, &messages::Record::from(record), signer)
}

pub(crate) fn read_record(bytes: &Bytes, signer: &Signer) -> Result<Record, CodecError> {
    let payload = verified(bytes, signer, Kind::Record)?;
    decode::<messages::Record>(payload)?.try_into()
}

pub(crate) fn order(fleet: &FleetName, order: &PinOrder, signer: &Signer) -> Bytes {
    signed(Kind::Pin, &pins::PinOrder::of(fleet.as_str(), order), signer)
}

pub(crate) fn read_order(
    fleet: &FleetName,
    bytes: &Bytes,
    signer: &Signer,
) -> Result<PinOrder, CodecError> {
    let payload = verified(bytes, signer, Kind::Pin)?;
    decode::<pins::PinOrder>(payload)?.read(fleet.as_str())
}

/// A time as it is stored, in milliseconds: a record that was read is equal to the one that was written.
pub(crate) fn stored_time(time: SystemTime) -> SystemTime {
    messages::time(messages::milliseconds(time))
}

/// A leaf, with the bodies that are kept in it.
pub(crate) fn leaf(section: Section, resources: &[Arc<Resource>]) -> Bytes {
    frame(Kind::Leaf, &messages::Leaf::of(section, resources)).freeze()
}

pub(crate) fn branch<const N: usize>(children: &[Option<Address>; N]) -> Bytes {
    frame(Kind::Branch, &messages::Branch::from(children)).freeze()
}

/// Whether a body is kept in its leaf. A cold reader gets small ones by the leaf, which is many times as fast as one by one;
/// a change writes those of its neighbours again, which is why large ones are kept apart. Sealed bodies are sealed one
/// by one.
pub(crate) fn is_in_leaf(section: Section, resource: &Resource) -> bool {
    !section.seals(resource) && resource.body.len() <= SMALL
}

/// Whether it is the part of its address is for the tree to say.
pub(crate) fn read_part(bytes: &Bytes) -> Result<Part, CodecError> {
    match opened(bytes)? {
        (Kind::Leaf, payload) => decode::<messages::Leaf>(payload)?.try_into(),
        (Kind::Branch, payload) => decode::<messages::Branch>(payload)?.try_into(),
        _ => Err(CodecError::Foreign),
    }
}

pub(crate) fn body(body: &Bytes) -> Bytes {
    let mut framed = header(Kind::Body, body.len());
    framed.put_slice(body);
    framed.freeze()
}

pub(crate) fn sealed(sealed: &Sealed) -> Bytes {
    frame(Kind::Sealed, &messages::Sealed::from(sealed)).freeze()
}

/// Whether it is the body of its address is for the caller to say, who has the keys.
pub(crate) fn read_body(bytes: &Bytes) -> Result<Body, CodecError> {
    match opened(bytes)? {
        (Kind::Body, payload) => Ok(Body::Plain(payload)),
        (Kind::Sealed, payload) => {
            decode::<messages::Sealed>(payload)?.try_into().map(Body::Sealed)
        }
        _ => Err(CodecError::Foreign),
    }
}

pub(crate) fn acks(report: &AckReport, signer: &Signer) -> Bytes {
    signed(Kind::Acks, &reports::Acks::from(report), signer)
}

pub(crate) fn read_acks(bytes: &Bytes, signer: &Signer) -> Result<AckReport, CodecError> {
    let payload = verified(bytes, signer, Kind::Acks)?;
    decode::<reports::Acks>(payload)?.try_into()
}

pub(crate) fn presence(presence: &Presence, signer: &Signer) -> Bytes {
    signed(Kind::Presence, &reports::Presence::from(presence), signer)
}

pub(crate) fn read_presence(bytes: &Bytes, signer: &Signer) -> Result<Presence, CodecError> {
    let payload = verified(bytes, signer, Kind::Presence)?;
    Ok(decode::<reports::Presence>(payload)?.into())
}

fn header(kind: Kind, length: usize) -> BytesMut {
    let mut framed = BytesMut::with_capacity(FRAME + length + MAC);
    framed.put_slice(&MAGIC);
    framed.put_u8(kind.format());
    framed.put_u8(kind as u8);
    framed
}

fn frame(kind: Kind, message: &impl Message) -> BytesMut {
    let length = message.encoded_len();
    let mut framed = header(kind, length);
    framed.put_slice(&message.encode_to_vec());
    framed
}

fn signed(kind: Kind, message: &impl Message, signer: &Signer) -> Bytes {
    with_mac(frame(kind, message), signer)
}

fn with_mac(mut framed: BytesMut, signer: &Signer) -> Bytes {
    let mac = signer.sign(&framed);
    framed.put_slice(&mac);
    framed.freeze()
}

/// The content of the frame.
fn opened(bytes: &Bytes) -> Result<(Kind, Bytes), CodecError> {
    if bytes.len() > LARGEST {
        return Err(CodecError::TooLarge);
    }
    let Some([one, two, format, kind]) = bytes.get(..FRAME) else {
        return Err(CodecError::Foreign);
    };
    if [*one, *two] != MAGIC {
        return Err(CodecError::Foreign);
    }
    // A kind that there is not yet may come with a format that there is.
    let kind = Kind::of(*kind);
    let ours = kind.map_or(NEWEST_FORMAT, Kind::format);
    match format.cmp(&ours) {
        Ordering::Greater => Err(CodecError::Newer(*format)),
        Ordering::Less => Err(CodecError::Older(*format)),
        Ordering::Equal => Ok((kind.ok_or(CodecError::Foreign)?, bytes.slice(FRAME..))),
    }
}

/// The content of a frame, if its MAC is valid.
fn verified(bytes: &Bytes, signer: &Signer, wanted: Kind) -> Result<Bytes, CodecError> {
    let (content, mac) = split(bytes, MAC)?;
    // First, so that a newer format is not taken for a forgery.
    let (kind, payload) = opened(&content)?;
    let mac: [u8; MAC] = mac.as_ref().try_into().map_err(|_| CodecError::Damaged)?;
    if !signer.verify(&content, &mac) {
        return Err(CodecError::Forged);
    }
    if kind == wanted { Ok(payload) } else { Err(CodecError::Foreign) }
}

fn split(bytes: &Bytes, trailer: usize) -> Result<(Bytes, Bytes), CodecError> {
    let at = bytes.len().checked_sub(trailer).ok_or(CodecError::Foreign)?;
    Ok((bytes.slice(..at), bytes.slice(at..)))
}

fn decode<M: Message + Default>(payload: Bytes) -> Result<M, CodecError> {
    M::decode(payload).map_err(|_| CodecError::Damaged)
}

impl Kind {
    fn format(self) -> u8 {
        match self {
            Self::Leaf | Self::Branch | Self::Body | Self::Sealed => 1,
            Self::Record | Self::Pin | Self::Acks | Self::Presence => NEWEST_FORMAT,
        }
    }

    fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Record,
            Self::Pin,
            Self::Leaf,
            Self::Branch,
            Self::Body,
            Self::Sealed,
            Self::Acks,
            Self::Presence,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

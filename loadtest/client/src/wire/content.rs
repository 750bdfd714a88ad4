use crate::digest::{self, Digest};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The bytes of a message as they come, in pieces that are shared with all others who are sent the same: thousands
/// of clients that wait for the rest of the same large message hold it once.
///
/// A field is a piece of its own, so that a server may list its resources in another order every time. A large one is
/// several.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pieces: Vec<Arc<Piece>>,
    rest: Vec<u8>,
    /// Of the field that has begun, up to the last whole piece.
    field: Option<Digest>,
    /// The sum over all fields.
    digest: u128,
}

/// The pieces that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pieces: Mutex<Pieces>,
}

#[derive(Debug)]
struct Piece {
    digest: Digest,
    bytes: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Pieces {
    by_digest: HashMap<Digest, Weak<Piece>>,
    /// With more than this, those that nobody holds any more are swept out.
    enough: usize,
}

/// What one client alone holds of a message that is not complete.
const PIECE: usize = 4096;
const FEW: usize = 1024;

impl Content {
    pub(crate) fn push(&mut self, mut bytes: &[u8], pool: &Pool) {
        while !bytes.is_empty() {
            let room = PIECE - self.rest.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == PIECE {
                self.cut(pool);
            }
        }
    }

    /// What comes next is another field.
    pub(crate) fn end_field(&mut self, pool: &Pool) {
        if !self.rest.is_empty() {
            self.cut(pool);
        }
        if let Some(field) = self.field.take() {
            self.digest = self.digest.wrapping_add(u128::from_le_bytes(field));
        }
    }

    /// Depends neither on how the bytes came nor on the order of the fields.
    pub(crate) fn digest(&self) -> Digest {
        self.digest.to_le_bytes()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let length = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let mut whole = BytesMut::with_capacity(length);
        for piece in &self.pieces {
            whole.extend_from_slice(&piece.bytes);
        }
        whole.freeze()
    }

    fn cut(&mut self, pool: &Pool) {
        let piece = pool.share(&self.rest);
        self.rest.clear();
        self.field = Some(match self.field {
            None => piece.digest,
            Some(before) => digest::of(&[before, piece.digest].concat()),
        });
        self.pieces.push(piece);
    }
}

impl Pool {
    fn share(&self, bytes: &[u8]) -> Arc<Piece> {
        let digest = digest::of(bytes);
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pieces.by_digest.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Piece { digest, bytes: bytes.into() });
        pieces.by_digest.insert(digest, Arc::downgrade(&new));
        if pieces.by_digest.len() > pieces.enough {
            pieces.by_digest.retain(|_, piece| piece.strong_count() > 0);
            pieces.enough = (pieces.by_digest.len() * 2).max(FEW);
        }
        new
    }
}

#[cfg(test)]
impl Content {
    /// Whether all but the last few bytes are in memory once.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        let mut pairs = self.pieces.iter().zip(&other.pieces);
        self.pieces.len() == other.pieces.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

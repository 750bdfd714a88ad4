use crate::digest::{self, Digest};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The bytes of a message as they come, in pieces that are shared with all others who are sent the same: thousands
/// of clients that wait for the rest of the same large message hold it once.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pieces: Vec<(Digest, Arc<[u8]>)>,
    rest: Vec<u8>,
}

/// The pieces that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    by_digest: HashMap<Digest, Weak<[u8]>>,
    /// With more than this, those that nobody holds any more are swept out.
    enough: usize,
}

/// What one client alone holds of a message that is not complete.
const PIECE: usize = 4096;
const FEW: usize = 1024;

impl Content {
    /// `expected` bytes are to come at most.
    pub(crate) fn expecting(expected: usize) -> Self {
        Self { pieces: Vec::new(), rest: Vec::with_capacity(expected.min(PIECE)) }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8], pool: &Pool) {
        while !bytes.is_empty() {
            let room = PIECE - self.rest.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == PIECE {
                self.pieces.push(pool.share(&self.rest));
                self.rest.clear();
            }
        }
    }

    /// Does not depend on how the bytes came.
    pub(crate) fn digest(&self) -> Digest {
        if self.pieces.is_empty() {
            return digest::of(&self.rest);
        }
        let mut whole = Vec::with_capacity((self.pieces.len() + 1) * size_of::<Digest>());
        for (piece, _) in &self.pieces {
            whole.extend_from_slice(piece);
        }
        whole.extend_from_slice(&digest::of(&self.rest));
        digest::of(&whole)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.pieces.len() * PIECE + self.rest.len());
        for (_, piece) in &self.pieces {
            whole.extend_from_slice(piece);
        }
        whole.extend_from_slice(&self.rest);
        whole.freeze()
    }
}

impl Pool {
    fn share(&self, piece: &[u8]) -> (Digest, Arc<[u8]>) {
        let digest = digest::of(piece);
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pieces.by_digest.get(&digest).and_then(Weak::upgrade) {
            return (digest, known);
        }
        let new: Arc<[u8]> = piece.into();
        pieces.by_digest.insert(digest, Arc::downgrade(&new));
        if pieces.by_digest.len() > pieces.enough {
            pieces.by_digest.retain(|_, piece| piece.strong_count() > 0);
            pieces.enough = (pieces.by_digest.len() * 2).max(FEW);
        }
        (digest, new)
    }
}

#[cfg(test)]
impl Content {
    /// Whether all but the last few bytes are in memory once.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        let mut pairs = self.pieces.iter().zip(&other.pieces);
        self.pieces.len() == other.pieces.len() && pairs.all(|((_, a), (_, b))| Arc::ptr_eq(a, b))
    }
}

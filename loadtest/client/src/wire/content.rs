use crate::digest::{self, Digest};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The bytes of a message as they come, in chunks that are shared with all others who are sent the same: thousands
/// of clients that wait for the rest of the same large message hold it once.
///
/// A field is a chunk of its own, so that a server may list its resources in another order every time. A large one is
/// several.
#[derive(Debug, Default)]
pub(crate) struct MessageContent {
    chunks: Vec<Arc<Chunk>>,
    rest: Vec<u8>,
    /// Of the field that has begun, up to the last whole chunk.
    field: Option<Digest>,
    /// The sum over all fields.
    digest: u128,
}

/// The chunks that are in use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    chunks: Mutex<Chunks>,
}

#[derive(Debug)]
struct Chunk {
    digest: Digest,
    bytes: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Chunks {
    by_digest: HashMap<Digest, Weak<Chunk>>,
    /// With more than this, unused ones are removed.
    enough: usize,
}

/// How much of an incomplete message one client keeps by itself.
const CHUNK: usize = 4096;
const MIN_CHUNKS: usize = 1024;

impl MessageContent {
    pub(crate) fn push(&mut self, mut bytes: &[u8], pool: &Pool) {
        while !bytes.is_empty() {
            let room = CHUNK - self.rest.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == CHUNK {
                self.cut(pool);
            }
        }
    }

    /// Ends a field: the next bytes belong to another one.
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
        let length = self.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let mut whole = BytesMut::with_capacity(length);
        for chunk in &self.chunks {
            whole.extend_from_slice(&chunk.bytes);
        }
        whole.freeze()
    }

    fn cut(&mut self, pool: &Pool) {
        let chunk = pool.share(&self.rest);
        self.rest.clear();
        self.field = Some(match self.field {
            None => chunk.digest,
            Some(before) => digest::of(&[before, chunk.digest].concat()),
        });
        self.chunks.push(chunk);
    }
}

impl Pool {
    fn share(&self, bytes: &[u8]) -> Arc<Chunk> {
        let digest = digest::of(bytes);
        let mut chunks = self.chunks.lock();
        if let Some(known) = chunks.by_digest.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Chunk { digest, bytes: bytes.into() });
        chunks.by_digest.insert(digest, Arc::downgrade(&new));
        if chunks.by_digest.len() > chunks.enough {
            chunks.by_digest.retain(|_, chunk| chunk.strong_count() > 0);
            chunks.enough = (chunks.by_digest.len() * 2).max(MIN_CHUNKS);
        }
        new
    }
}

#[cfg(test)]
impl MessageContent {
    /// Whether all but the last few bytes are in memory once.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        let mut pairs = self.chunks.iter().zip(&other.chunks);
        self.chunks.len() == other.chunks.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

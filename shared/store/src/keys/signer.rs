use super::KeyRing;
use std::sync::Arc;

/// Signs and verifies what one installation stores. Two that share a key ring, or a Redis, do not accept each other's
/// values: what is signed under one prefix is a forgery under another.
#[derive(Clone, Debug)]
pub(crate) struct Signer {
    keys: KeyRing,
    prefix: Arc<str>,
}

impl Signer {
    pub(crate) fn new(keys: KeyRing, prefix: Arc<str>) -> Self {
        Self { keys, prefix }
    }

    /// Proves that `message` comes from a program of this installation. All kinds of values share the key, so a message
    /// says itself what it is.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 32] {
        self.keys.mac(&self.prefix, message).into()
    }

    /// In constant time.
    pub(crate) fn verify(&self, message: &[u8], mac: &[u8; 32]) -> bool {
        self.keys.mac(&self.prefix, message) == *mac
    }
}

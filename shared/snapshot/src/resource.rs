use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// One named xDS resource. Its body is the protobuf message as Envoy will read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    /// Where a store keeps the body.
    pub address: Address,
    /// The short form of the address, as it is sent to proxies.
    pub version: Version,
    pub body: Bytes,
    /// The body has a credential that only the proxies of its fleet may know: a store seals it, and it is never printed.
    pub is_confidential: bool,
}

/// A content hash in full: where a store keeps the content, and the proof that it is what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 32]);

/// A content hash: 96 bits in 16 characters. Equal content has equal versions, from every replica and after
/// every restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; Version::LENGTH]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version has 16 characters, letters, digits, - and _")]
pub struct InvalidVersion;

impl Resource {
    pub fn new(name: impl Into<Arc<str>>, body: Bytes) -> Self {
        Self::at(Address::of(&body), name, body)
    }

    /// A resource whose address is known already, or is not the plain hash: that of a sealed one is keyed.
    pub fn at(address: Address, name: impl Into<Arc<str>>, body: Bytes) -> Self {
        let version = address.into();
        Self { name: name.into(), address, version, body, is_confidential: false }
    }

    /// The same, for the eyes of its proxies alone if that is said here.
    #[must_use]
    pub fn confidential(self, is_confidential: bool) -> Self {
        Self { is_confidential, ..self }
    }

    /// This one with another body, which follows from this one and from the variant `id` of `rule`. It is confidential if one
    /// of the two is, and then its version reveals no more of its content than theirs do.
    pub fn varied(&self, rule: &Self, id: &str, body: Bytes) -> Self {
        if !self.is_confidential && !rule.is_confidential {
            return Self::new(self.name.clone(), body);
        }
        let mut hasher = blake3::Hasher::new_derive_key("heliograph variant of a resource 1");
        hasher.update(&self.address.0).update(&rule.address.0).update(id.as_bytes());
        let address = Address(*hasher.finalize().as_bytes());
        Self::at(address, self.name.clone(), body).confidential(true)
    }

    /// About how much memory it uses.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.body.len()
    }
}

impl Address {
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

/// The first characters are those of the version.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl From<Address> for Version {
    fn from(address: Address) -> Self {
        Self::from_digest(&address.0)
    }
}

/// Bodies may hold secrets, so they are not printed.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.name, self.version, self.body.len())
    }
}

impl Version {
    const LENGTH: usize = 16;

    pub fn of(content: &[u8]) -> Self {
        Address::of(content).into()
    }

    /// The version of a set of resources: SotW has one version for all that a response holds.
    pub fn of_set<'a>(members: impl IntoIterator<Item = (&'a str, Version)>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for (name, version) in members {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&version.0);
        }
        Self::from_digest(hasher.finalize().as_bytes())
    }

    pub fn as_str(&self) -> &str {
        // Made of base64 alone, so the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn from_digest(digest: &[u8; 32]) -> Self {
        let mut text = [0; Self::LENGTH];
        // Twelve bytes are sixteen characters exactly, so encoding cannot run out of room.
        let _ = URL_SAFE_NO_PAD.encode_slice(&digest[..12], &mut text);
        Self(text)
    }
}

/// Sixteen characters of base64, as they are printed.
impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match text.as_bytes().try_into() {
            Ok(bytes) if text.bytes().all(|byte| valid(&byte)) => Ok(Self(bytes)),
            _ => Err(InvalidVersion),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_sixteen_characters_of_the_content() {
        let version = Version::of(b"content");
        assert_eq!(version.as_str().len(), 16);
        assert_eq!(version, Version::of(b"content"));
        assert_ne!(version, Version::of(b"other"));
        // Pinned: stored snapshots and connected proxies hold versions made by older releases.
        assert_eq!(version.as_str(), "P7pSUL6awlnFbnJQ");
    }

    #[test]
    fn a_variant_of_something_confidential_has_a_version_that_is_no_hash_of_it() {
        let plain = Resource::new("a", Bytes::from_static(b"plain"));
        let marked = Resource::new("a", Bytes::from_static(b"password")).confidential(true);
        let body = Bytes::from_static(b"variant");
        assert_eq!(plain.varied(&plain, "one", body.clone()), Resource::new("a", body.clone()));
        let mut versions = std::collections::BTreeSet::from([Version::of(&body)]);
        for (resource, rule) in [(&plain, &marked), (&marked, &plain), (&marked, &marked)] {
            for id in ["one", "two"] {
                let variant = resource.varied(rule, id, body.clone());
                assert!(variant.is_confidential);
                assert_eq!(variant.version, resource.varied(rule, id, body.clone()).version);
                assert!(versions.insert(variant.version), "{resource:?} {rule:?} {id}");
            }
        }
    }

    #[test]
    fn a_body_is_never_printed() {
        let resource = Resource::new("tls", Bytes::from_static(b"PRIVATE KEY"));
        assert!(!format!("{resource:?}").contains("PRIVATE"));
    }
}

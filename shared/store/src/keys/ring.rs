use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use heliograph_snapshot::ResourceType;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The keys of the store, ready for use. Clones share them; the last one to go wipes them.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRing(Arc<Keys>);

/// The context of a sealed body: sealed for one fleet, kind, name and hash, it opens for no other.
#[derive(Clone, Copy, Debug)]
pub struct SealContext<'a> {
    pub fleet: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    /// [`KeyRing::sealed_hash`] of the plaintext.
    pub hash: &'a [u8; 32],
}

/// A sealed body, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub key_id: String,
    pub nonce: [u8; 24],
    pub ciphertext: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error(
        "the key ring has no key to seal secrets with: add one with `helio store keys rotate FILE`"
    )]
    NoKey,
    /// The hash is public. Had it been made without the key, it would tell of the plaintext.
    #[error("the hash of the secret was not made with this key ring")]
    ForeignHash,
    #[error("the secret is too long to be sealed")]
    TooLong,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    #[error(
        "sealed with the key {id:?}, which this key ring does not have: give this program the ring of the translator"
    )]
    UnknownKey { id: String },
    #[error("not what was sealed for this place with this key ring")]
    Forged,
}

/// 32 secret bytes, wiped when dropped. Without `Debug`, so that no derived one prints them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(Zeroizing<[u8; 32]>);

/// Made of subkeys alone: what the file says is wiped once they are derived.
#[derive(PartialEq, Eq)]
struct Keys {
    mac: Key,
    secret_hash: Key,
    other_hash: Key,
    /// The first seals, all open.
    seal: Vec<SealKey>,
}

#[derive(PartialEq, Eq)]
struct SealKey {
    id: String,
    cipher: Key,
    nonce: Key,
}

/// What subkeys are for. Stored bytes depend on these texts: a change of one wants a new version and the old one
/// kept for reading.
mod context {
    pub(super) const MAC: &str = "heliograph store v2: authenticates records of an installation";
    pub(super) const SECRET_HASH: &str = "heliograph store v1: addresses of secrets";
    pub(super) const OTHER_HASH: &str = "heliograph store v1: addresses of what is sealed besides";
    pub(super) const CIPHER: &str = "heliograph store v1: seals secrets";
    pub(super) const NONCE: &str = "heliograph store v1: nonces of sealed secrets";
}

impl KeyRing {
    /// `seal` in the order of the file, with ids that [`is_id`] and differ.
    pub(super) fn derive(root: &Key, seal: &[(String, Key)]) -> Self {
        let seal = seal.iter().map(|(id, key)| SealKey {
            id: id.clone(),
            cipher: key.derive(context::CIPHER),
            nonce: key.derive(context::NONCE),
        });
        Self(Arc::new(Keys {
            mac: root.derive(context::MAC),
            secret_hash: root.derive(context::SECRET_HASH),
            other_hash: root.derive(context::OTHER_HASH),
            seal: seal.collect(),
        }))
    }

    /// The hash is compared in constant time.
    pub(super) fn mac(&self, installation: &str, message: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(self.0.mac.bytes())
            // With its length, so that no two pairs read alike.
            .update(&(installation.len() as u64).to_le_bytes())
            .update(installation.as_bytes())
            .update(message)
            .finalize()
    }

    /// The content hash of something sealed. It stays the same when sealing keys rotate, and reveals nothing to those without
    /// the ring: not even whether a guess is right. No two things of different kinds or names have the same.
    pub fn sealed_hash(&self, kind: &str, name: &str, plaintext: &[u8]) -> [u8; 32] {
        self.hash(kind, name, plaintext).into()
    }

    fn hash(&self, kind: &str, name: &str, plaintext: &[u8]) -> blake3::Hash {
        // These were sealed before others were. The body of a secret has its name.
        if kind == ResourceType::Secret.as_str() {
            return self.0.secret_hash.hash(plaintext);
        }
        let mut hasher = blake3::Hasher::new_keyed(self.0.other_hash.bytes());
        for part in [kind.as_bytes(), name.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.update(plaintext).finalize()
    }

    /// Seals with the active key. The same content in the same context gives the same bytes.
    pub fn seal(
        &self,
        seal_context: &SealContext<'_>,
        plaintext: &[u8],
    ) -> Result<Sealed, SealError> {
        let key = self.0.seal.first().ok_or(SealError::NoKey)?;
        if self.hash(seal_context.kind, seal_context.name, plaintext) != *seal_context.hash {
            return Err(SealError::ForeignHash);
        }
        let seal_context = seal_context.encode();
        let nonce = key.nonce_of(&seal_context, plaintext);
        let ciphertext = key
            .cipher()
            .encrypt(&nonce.into(), Payload { msg: plaintext, aad: &seal_context })
            .map_err(|_| SealError::TooLong)?;
        Ok(Sealed { key_id: key.id.clone(), nonce, ciphertext: ciphertext.into() })
    }

    /// The plaintext is wiped when its last reader drops it.
    pub fn open(
        &self,
        seal_context: &SealContext<'_>,
        sealed: &Sealed,
    ) -> Result<Bytes, UnsealError> {
        let id = &sealed.key_id;
        let key = self.0.seal.iter().find(|key| key.id == *id).ok_or_else(|| {
            // Its writer may have made up the id; only one that could be real is shown.
            if is_id(id) { UnsealError::UnknownKey { id: id.clone() } } else { UnsealError::Forged }
        })?;
        let plaintext = key
            .cipher()
            .decrypt(
                &sealed.nonce.into(),
                Payload { msg: &sealed.ciphertext, aad: &seal_context.encode() },
            )
            .map(Zeroizing::new)
            .map_err(|_| UnsealError::Forged)?;
        // The cipher alone would let the owner of two keys make bytes that both of them open.
        if self.hash(seal_context.kind, seal_context.name, &plaintext) != *seal_context.hash {
            return Err(UnsealError::Forged);
        }
        Ok(Bytes::from_owner(plaintext))
    }

    /// The id of the key that seals.
    pub fn active_id(&self) -> Option<&str> {
        self.ids().next()
    }

    /// The ids of all keys that open, the active one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.seal.iter().map(|key| key.id.as_str())
    }

    pub(super) fn same_root(&self, other: &Self) -> bool {
        self.0.mac == other.0.mac
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing ")?;
        f.debug_list().entries(self.ids()).finish()
    }
}

impl SealContext<'_> {
    /// With the length before each part, so that no two contexts encode alike.
    fn encode(&self) -> Vec<u8> {
        let parts = [self.fleet.as_bytes(), self.kind.as_bytes(), self.name.as_bytes(), self.hash];
        let mut encoded = Vec::new();
        for part in parts {
            encoded.extend((part.len() as u64).to_le_bytes());
            encoded.extend(part);
        }
        encoded
    }
}

impl SealKey {
    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.cipher.bytes().into())
    }

    /// A function of all that is sealed: a nonce comes back only with the same message. `seal_context` ends where it says,
    /// so the plaintext cannot pass for a part of it.
    fn nonce_of(&self, seal_context: &[u8], plaintext: &[u8]) -> [u8; 24] {
        let mut nonce = [0; 24];
        blake3::Hasher::new_keyed(self.nonce.bytes())
            .update(&(self.id.len() as u64).to_le_bytes())
            .update(self.id.as_bytes())
            .update(seal_context)
            .update(plaintext)
            .finalize_xof()
            .fill(&mut nonce);
        nonce
    }
}

impl Key {
    pub(super) fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn derive(&self, context: &str) -> Self {
        Self::new(blake3::derive_key(context, self.bytes()))
    }

    /// Comparing it takes constant time.
    fn hash(&self, message: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(self.bytes(), message)
    }
}

/// Short, and safe in YAML, in a log and on a command line. Too short to hold a key by mistake.
pub(super) fn is_id(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Signer;
    use proptest::prelude::*;

    const FLEET: &str = "default/web";
    const KIND: &str = "secret";
    const NAME: &str = "shop/tls";

    fn ring(root: u8, seal: &[(&str, u8)]) -> KeyRing {
        let seal: Vec<_> =
            seal.iter().map(|(id, byte)| ((*id).to_owned(), Key::new([*byte; 32]))).collect();
        KeyRing::derive(&Key::new([root; 32]), &seal)
    }

    fn seal_context(hash: &[u8; 32]) -> SealContext<'_> {
        SealContext { fleet: FLEET, kind: KIND, name: NAME, hash }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens(plaintext: Vec<u8>, fleet: String, kind: String, name: String) {
            let ring = ring(1, &[("new", 2), ("old", 3)]);
            let hash = ring.sealed_hash(&kind, &name, &plaintext);
            let seal_context = SealContext { fleet: &fleet, kind: &kind, name: &name, hash: &hash };
            let sealed = ring.seal(&seal_context, &plaintext).unwrap();
            prop_assert_eq!(&sealed.key_id, "new");
            prop_assert_eq!(ring.open(&seal_context, &sealed).unwrap(), plaintext);
        }

        #[test]
        fn two_leaders_seal_alike(plaintext: Vec<u8>) {
            let hash = ring(1, &[]).sealed_hash(KIND, NAME, &plaintext);
            let sealed = ring(1, &[("a", 2), ("old", 3)]).seal(&seal_context(&hash), &plaintext);
            prop_assert_eq!(sealed, ring(1, &[("a", 2)]).seal(&seal_context(&hash), &plaintext));
        }

        #[test]
        fn one_flipped_bit_is_refused(plaintext: Vec<u8>, at: prop::sample::Index, bit in 0..8u32) {
            let ring = ring(1, &[("a", 2)]);
            let hash = ring.sealed_hash(KIND, NAME, &plaintext);
            let sealed = ring.seal(&seal_context(&hash), &plaintext).unwrap();
            let flip = |bytes: &mut [u8]| {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            };

            let mut ciphertext = sealed.ciphertext.to_vec();
            flip(&mut ciphertext);
            let forged = Sealed { ciphertext: ciphertext.into(), ..sealed.clone() };
            prop_assert_eq!(ring.open(&seal_context(&hash), &forged), Err(UnsealError::Forged));

            let mut forged = sealed.clone();
            flip(&mut forged.nonce);
            prop_assert_eq!(ring.open(&seal_context(&hash), &forged), Err(UnsealError::Forged));

            let mut other = hash;
            flip(&mut other);
            prop_assert_eq!(ring.open(&seal_context(&other), &sealed), Err(UnsealError::Forged));

            let cut = at.index(sealed.ciphertext.len());
            let cut = Sealed { ciphertext: sealed.ciphertext.slice(..cut), ..sealed.clone() };
            prop_assert_eq!(ring.open(&seal_context(&hash), &cut), Err(UnsealError::Forged));
        }

        #[test]
        fn another_message_has_another_nonce(one: Vec<u8>, other: Vec<u8>) {
            prop_assume!(one != other);
            let ring = ring(1, &[("a", 2)]);
            let (first, second) = (ring.sealed_hash(KIND, NAME, &one), ring.sealed_hash(KIND, NAME, &other));
            prop_assert_ne!(
                ring.seal(&seal_context(&first), &one).unwrap().nonce,
                ring.seal(&seal_context(&second), &other).unwrap().nonce
            );
        }

        #[test]
        fn a_mac_fits_one_message_one_installation_and_one_root(
            message: Vec<u8>, at: prop::sample::Index, bit in 0..8u32
        ) {
            let signer = Signer::new(ring(1, &[]), "one".into());
            let mac = signer.sign(&message);
            prop_assert!(signer.verify(&message, &mac));
            for other in [
                Signer::new(ring(9, &[]), "one".into()),
                Signer::new(ring(1, &[]), "two".into()),
                Signer::new(ring(1, &[]), "".into()),
            ] {
                prop_assert!(!other.verify(&message, &mac));
            }

            let mut forged = mac;
            forged[at.index(32)] ^= 1 << bit;
            prop_assert!(!signer.verify(&message, &forged));

            let mut longer = message.clone();
            longer.push(0);
            prop_assert!(!signer.verify(&longer, &mac));
        }

        #[test]
        fn made_up_bytes_do_not_open(
            key_id in "[ab\n\u{e9}]{0,40}", nonce: [u8; 24], ciphertext: Vec<u8>
        ) {
            let ring = ring(1, &[("a", 2)]);
            let sealed = Sealed { key_id, nonce, ciphertext: ciphertext.into() };
            match ring.open(&seal_context(&[0; 32]), &sealed) {
                Err(UnsealError::UnknownKey { id }) => prop_assert!(is_id(&id)),
                outcome => prop_assert_eq!(outcome, Err(UnsealError::Forged)),
            }
        }
    }

    #[test]
    fn a_secret_does_not_open_elsewhere() {
        let ring = ring(1, &[("a", 2)]);
        let hash = ring.sealed_hash(KIND, NAME, b"pem");
        let sealed = ring.seal(&seal_context(&hash), b"pem").unwrap();
        let elsewhere = [
            SealContext { fleet: "default/api", ..seal_context(&hash) },
            SealContext { kind: "cluster", ..seal_context(&hash) },
            SealContext { name: "shop/tls2", ..seal_context(&hash) },
            // The same text, cut elsewhere.
            SealContext { fleet: "default/webs", kind: "ecret", ..seal_context(&hash) },
            SealContext { kind: "secretshop", name: "/tls", ..seal_context(&hash) },
        ];
        for other in elsewhere {
            assert_eq!(ring.open(&other, &sealed), Err(UnsealError::Forged), "{other:?}");
        }
    }

    #[test]
    fn the_same_content_has_another_hash_under_another_name() {
        let ring = ring(1, &[]);
        let names = [("cluster", "a"), ("cluster", "ab"), ("clustera", "b"), ("route", "a")];
        let hashes = names.map(|(kind, name)| ring.sealed_hash(kind, name, b"password"));
        let mut differing: Vec<_> = hashes.to_vec();
        differing.sort_unstable();
        differing.dedup();
        assert_eq!(differing.len(), names.len());
        assert!(!hashes.contains(blake3::hash(b"password").as_bytes()));
    }

    #[test]
    fn another_ring_does_not_open() {
        let ours = ring(1, &[("a", 2)]);
        let hash = ours.sealed_hash(KIND, NAME, b"pem");
        let sealed = ours.seal(&seal_context(&hash), b"pem").unwrap();
        for (other, error) in [
            (ring(1, &[("a", 7)]), UnsealError::Forged),
            (ring(8, &[("a", 2)]), UnsealError::Forged),
            (ring(1, &[("b", 2)]), UnsealError::UnknownKey { id: "a".to_owned() }),
            (ring(1, &[]), UnsealError::UnknownKey { id: "a".to_owned() }),
        ] {
            assert_eq!(other.open(&seal_context(&hash), &sealed), Err(error));
        }
    }

    #[test]
    fn without_a_key_nothing_is_sealed() {
        let ring = ring(1, &[]);
        let hash = ring.sealed_hash(KIND, NAME, b"pem");
        assert_eq!(ring.active_id(), None);
        assert_eq!(ring.seal(&seal_context(&hash), b"pem"), Err(SealError::NoKey));
    }

    #[test]
    fn a_plain_hash_is_not_let_out() {
        let ring = ring(1, &[("a", 2)]);
        let hash = blake3::hash(b"pem");
        assert_eq!(ring.seal(&seal_context(hash.as_bytes()), b"pem"), Err(SealError::ForeignHash));
    }

    #[test]
    fn every_purpose_has_its_own_key() {
        let ring = ring(1, &[("a", 1)]);
        let keys = &ring.0;
        let subkeys = [
            &keys.mac,
            &keys.secret_hash,
            &keys.other_hash,
            &keys.seal[0].cipher,
            &keys.seal[0].nonce,
        ];
        for (at, one) in subkeys.iter().enumerate() {
            assert!(one.bytes() != &[1; 32]);
            assert!(subkeys[..at].iter().all(|other| one.bytes() != other.bytes()));
        }
    }

    /// This release must open bodies that older ones sealed, and distributors of older releases must open bodies that
    /// this one seals.
    #[test]
    fn every_release_makes_the_same_bytes() {
        let ring = ring(1, &[("a", 2)]);
        let hash = ring.sealed_hash(KIND, NAME, b"pem");
        let sealed = ring.seal(&seal_context(&hash), b"pem").unwrap();
        let other = ring.sealed_hash("cluster", "shop", b"password");
        let mac = Signer::new(ring, "heliograph".into()).sign(b"message");
        let stored = [&mac[..], &hash, &sealed.nonce, &sealed.ciphertext, &other];
        let stored: Vec<String> = stored.iter().map(|bytes| hex(bytes)).collect();
        assert_eq!(
            stored,
            [
                "451451c914ead3974fe84442f5c259ba9c3a145e281becee7c98495472115ce7",
                "9d0cb1a0f7c64ba0768082f2e15e0c010ceed43515cbd2ce408ad2c2d9888f8a",
                "67dfc207ef9b7334f98d6c2287972a93444bfe8d0a4334f4",
                "f9d773c6cc5212007147a2e402d088f0e2dd53",
                "f7d59344ce56af1cbc76ddf63f4236e61a610865c61ea9978c3d44ac97875854",
            ]
        );
    }

    #[test]
    fn debug_shows_ids_alone() {
        assert_eq!(
            format!("{:?}", ring(1, &[("new", 2), ("old", 3)])),
            r#"KeyRing ["new", "old"]"#
        );
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

use std::hash::Hasher;

/// Equal content has equal digests, and other content has another one.
pub(crate) type Digest = [u8; 16];

pub(crate) fn of(content: &[u8]) -> Digest {
    truncated(blake3::hash(content))
}

/// Takes values that say what they are made of through [`std::hash::Hash`], and keeps more of it than 64 bits.
#[derive(Default)]
pub(crate) struct Digester(blake3::Hasher);

impl Digester {
    pub(crate) fn digest(&self) -> Digest {
        truncated(self.0.finalize())
    }
}

impl Hasher for Digester {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.digest();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

fn truncated(hash: blake3::Hash) -> Digest {
    let [low, _] = hash.as_bytes().as_chunks::<16>().0 else { return Digest::default() };
    *low
}

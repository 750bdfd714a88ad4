use super::ring::{Key, KeyRing, is_id};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::Generate;
use serde::Deserialize;
use serde_saphyr::Spanned;
use zeroize::Zeroizing;

/// A fault of a key ring's text, or of a request to change it. Quotes only valid ids of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error(
        "line {line}: a key ring is `root: KEY` and `seal:` with a list of `id: ID` and `key: KEY`, and no more: \
         mend it, or make one with `helio store keys new FILE`"
    )]
    Malformed { line: u64 },
    #[error(
        "line {line}: a key is 32 bytes in base64, as `helio store keys new FILE` creates them: copy the whole key"
    )]
    WrongKey { line: u64 },
    #[error("line {line}: an id is 1 to 32 of A-Z a-z 0-9 . _ -: give this key another one")]
    WrongId { line: u64 },
    #[error("line {line}: the id {id:?} occurs twice: remove one of the two keys")]
    RepeatedId { line: u64, id: String },
    #[error(
        "line {line}: this key occurs twice: remove it here, and add a new one with `helio store keys rotate FILE`"
    )]
    RepeatedKey { line: u64 },
    #[error("an id is 1 to 32 of A-Z a-z 0-9 . _ -: choose another one")]
    InvalidId,
    #[error("the ring has a key {id:?} already: choose another id for the new one")]
    IdTaken { id: String },
    #[error("the ring has no key {id:?}: its keys are {ids:?}")]
    NoSuchId { id: String, ids: Vec<String> },
    #[error(
        "the key {id:?} is the one that seals: first add a new one, with `helio store keys rotate FILE`"
    )]
    ActiveKey { id: String },
    #[error("the system gave no random bytes for a key: try again")]
    NoRandomness,
}

/// A key ring as its file says it.
struct Content {
    root: Key,
    seal: Vec<(String, Key)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    root: Spanned<Encoded>,
    /// Neither missing nor null: a file that was cut off must not pass for a ring without keys.
    seal: Spanned<Option<Vec<Entry>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: Spanned<String>,
    key: Spanned<Encoded>,
}

/// The text of a key, wiped when dropped.
#[derive(Deserialize)]
#[serde(from = "String")]
struct Encoded(Zeroizing<String>);

const HEADING: &str = "\
# The key ring of a Heliograph store. Who has it can read the secrets there and forge what proxies are told.
# `helio store keys rotate FILE` puts a new sealing key in front; `helio store keys forget FILE ID` takes an old
# one away, once nothing in the store is sealed with it.

# Authenticates heads and hides the versions of secrets. It does not rotate.
";

impl KeyRing {
    pub fn parse(text: &str) -> Result<Self, RingError> {
        let content = Content::parse(text)?;
        Ok(Self::derive(&content.root, &content.seal))
    }

    /// The text of a new ring with one sealing key.
    pub fn generate(id: &str) -> Result<Zeroizing<String>, RingError> {
        let mut content = Content { root: random()?, seal: Vec::new() };
        content.put_in_front(id)?;
        Ok(content.render())
    }

    /// The text of the ring with a new sealing key in front. The older ones still open; comments are not kept.
    pub fn rotate(text: &str, new_id: &str) -> Result<Zeroizing<String>, RingError> {
        let mut content = Content::parse(text)?;
        content.put_in_front(new_id)?;
        Ok(content.render())
    }

    /// The text of the ring without an old sealing key: bodies that it sealed can no longer be opened.
    pub fn forget(text: &str, id: &str) -> Result<Zeroizing<String>, RingError> {
        let mut content = Content::parse(text)?;
        content.remove(id)?;
        Ok(content.render())
    }
}

impl Content {
    fn parse(text: &str) -> Result<Self, RingError> {
        let options = serde_saphyr::options! { with_snippet: false };
        // The parser's own words quote what it met, which may be a key: only the line is taken from them.
        let document: Document =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                RingError::Malformed { line: error.location().map_or(1, |at| at.line().max(1)) }
            })?;
        let mut content =
            Self { root: document.root.value.decode(line(&document.root))?, seal: Vec::new() };
        let line = line(&document.seal);
        for entry in document.seal.value.ok_or(RingError::Malformed { line })? {
            content.push(entry)?;
        }
        Ok(content)
    }

    fn push(&mut self, Entry { id, key }: Entry) -> Result<(), RingError> {
        if !is_id(&id.value) {
            return Err(RingError::WrongId { line: line(&id) });
        }
        if self.position(&id.value).is_some() {
            return Err(RingError::RepeatedId { line: line(&id), id: id.value });
        }
        let line = line(&key);
        let key = key.value.decode(line)?;
        if key == self.root || self.seal.iter().any(|(_, other)| key == *other) {
            return Err(RingError::RepeatedKey { line });
        }
        self.seal.push((id.value, key));
        Ok(())
    }

    fn put_in_front(&mut self, id: &str) -> Result<(), RingError> {
        if !is_id(id) {
            return Err(RingError::InvalidId);
        }
        if self.position(id).is_some() {
            return Err(RingError::IdTaken { id: id.to_owned() });
        }
        self.seal.insert(0, (id.to_owned(), random()?));
        Ok(())
    }

    fn remove(&mut self, id: &str) -> Result<(), RingError> {
        if !is_id(id) {
            return Err(RingError::InvalidId);
        }
        match self.position(id) {
            None => {
                let ids = self.seal.iter().map(|(id, _)| id.clone()).collect();
                Err(RingError::NoSuchId { id: id.to_owned(), ids })
            }
            Some(0) => Err(RingError::ActiveKey { id: id.to_owned() }),
            Some(at) => {
                self.seal.remove(at);
                Ok(())
            }
        }
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.seal.iter().position(|(other, _)| other == id)
    }

    fn render(&self) -> Zeroizing<String> {
        // Room for all of it: a string that grows leaves its old self behind, unwiped.
        let mut text = String::with_capacity(HEADING.len() + 128 * (self.seal.len() + 1));
        text.push_str(HEADING);
        text.push_str("root: ");
        STANDARD.encode_string(self.root.bytes(), &mut text);
        text.push_str("\n\n# The first seals, all open.\nseal:");
        if self.seal.is_empty() {
            text.push_str(" []");
        }
        for (id, key) in &self.seal {
            text.push_str("\n  - id: \"");
            text.push_str(id);
            text.push_str("\"\n    key: ");
            STANDARD.encode_string(key.bytes(), &mut text);
        }
        text.push('\n');
        Zeroizing::new(text)
    }
}

impl From<String> for Encoded {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl Encoded {
    fn decode(&self, line: u64) -> Result<Key, RingError> {
        let bytes = STANDARD.decode(self.0.as_bytes()).map(Zeroizing::new);
        let bytes: Option<[u8; 32]> = bytes.ok().and_then(|bytes| bytes.as_slice().try_into().ok());
        bytes.map(Key::new).ok_or(RingError::WrongKey { line })
    }
}

fn line<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

fn random() -> Result<Key, RingError> {
    <[u8; 32]>::try_generate().map(Key::new).map_err(|_| RingError::NoRandomness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{SealContext, UnsealError};
    use proptest::prelude::*;

    const ROOT: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const ONE: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
    const TWO: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";

    fn valid() -> String {
        format!("root: {ROOT}\nseal:\n- id: a\n  key: {ONE}\n- id: b\n  key: {TWO}\n")
    }

    /// The words of the text that might be keys.
    fn keys_in(text: &str) -> Vec<&str> {
        text.split_whitespace().filter(|word| word.ends_with('=')).collect()
    }

    fn ids(text: &str) -> Vec<String> {
        KeyRing::parse(text).unwrap().ids().map(str::to_owned).collect()
    }

    #[test]
    fn a_new_ring_is_valid_and_unlike_every_other() {
        let (one, other) =
            (KeyRing::generate("2026-11").unwrap(), KeyRing::generate("2026-11").unwrap());
        assert_eq!(ids(&one), ["2026-11"]);
        let (one, other) = (keys_in(&one), keys_in(&other));
        assert_eq!(one.len(), 2, "the root and one key");
        assert!(one.iter().all(|key| !other.contains(key)));
    }

    #[test]
    fn rotation_puts_a_key_in_front_and_forgets_none() {
        let before = KeyRing::generate("a").unwrap();
        let after = KeyRing::rotate(&before, "b").unwrap();
        assert_eq!(ids(&after), ["b", "a"]);
        assert!(keys_in(&before).iter().all(|key| keys_in(&after).contains(key)));
        assert_eq!(keys_in(&before)[0], keys_in(&after)[0], "the root does not rotate");

        let taken = KeyRing::rotate(&after, "a").unwrap_err();
        assert_eq!(taken, RingError::IdTaken { id: "a".to_owned() });
    }

    #[test]
    fn a_secret_outlives_the_key_that_sealed_it() {
        let parse = |text: &str| KeyRing::parse(text).unwrap();
        let first = KeyRing::generate("a").unwrap();
        let both = KeyRing::rotate(&first, "b").unwrap();
        let last = KeyRing::forget(&both, "a").unwrap();
        let hash = parse(&first).sealed_hash("secret", "tls", b"pem");
        let seal_context =
            SealContext { fleet: "default/web", kind: "secret", name: "tls", hash: &hash };

        let old = parse(&first).seal(&seal_context, b"pem").unwrap();
        assert_eq!(parse(&both).open(&seal_context, &old).unwrap(), "pem");
        // Under the same hash: no reader sees a new version.
        let new = parse(&both).seal(&seal_context, b"pem").unwrap();
        assert_eq!(new.key_id, "b");
        assert_eq!(parse(&last).open(&seal_context, &new).unwrap(), "pem");
        let forgotten = UnsealError::UnknownKey { id: "a".to_owned() };
        assert_eq!(parse(&last).open(&seal_context, &old), Err(forgotten));
    }

    #[test]
    fn the_active_key_is_not_forgotten() {
        let forget = |id| KeyRing::forget(&valid(), id).unwrap_err().to_string();
        assert!(forget("a").contains("helio store keys rotate"), "{}", forget("a"));
        assert_eq!(forget("c"), r#"the ring has no key "c": its keys are ["a", "b"]"#);
        assert!(!forget(ONE).contains(ONE), "a key by mistake");
    }

    #[test]
    fn a_ring_without_sealing_keys_is_one() {
        let text = format!("root: {ROOT}\nseal: []\n");
        assert_eq!(ids(&text), [""; 0]);
        assert_eq!(ids(&Content::parse(&text).unwrap().render()), [""; 0]);
        assert_eq!(ids(&KeyRing::rotate(&text, "first").unwrap()), ["first"]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let malformed = |line| RingError::Malformed { line };
        let cases = [
            ("".to_owned(), malformed(1)),
            (ROOT.to_owned(), malformed(1)),
            (format!("- {ROOT}\n"), malformed(1)),
            (format!("root: {ROOT}\n"), malformed(1)),
            (format!("root: {ROOT}\nseal:\n"), malformed(2)),
            (format!("root: {ROOT}\nseal: {ONE}\n"), malformed(2)),
            (format!("root: {ROOT}\nseal: [{ONE}]\n"), malformed(2)),
            (format!("root: {ROOT}\nseal:\n- id: a\n"), malformed(3)),
            (format!("root: {ROOT}\nroot: {ONE}\nseal: []\n"), malformed(2)),
            (format!("root: {ROOT}\n{ONE}: b\nseal: []\n"), malformed(2)),
            (format!("{}  more: {ROOT}\n", valid()), malformed(7)),
            (format!("{}---\n{}", valid(), valid()), malformed(8)),
            (format!("root: [{ROOT}]\nseal: []\n"), malformed(1)),
            (format!("root: \"{ROOT}\nseal: []\n"), malformed(2)),
            (valid().replace(ROOT, &ROOT[4..]), RingError::WrongKey { line: 1 }),
            (valid().replace(ONE, &ONE[..43]), RingError::WrongKey { line: 4 }),
            (valid().replace(TWO, &format!("\"{TWO} \"")), RingError::WrongKey { line: 6 }),
            (valid().replace(TWO, "''"), RingError::WrongKey { line: 6 }),
            (valid().replace("id: b", &format!("id: {TWO}")), RingError::WrongId { line: 5 }),
            (valid().replace("id: b", "id: ''"), RingError::WrongId { line: 5 }),
            (
                valid().replace("id: b", "id: a"),
                RingError::RepeatedId { line: 5, id: "a".to_owned() },
            ),
            (valid().replace(TWO, ONE), RingError::RepeatedKey { line: 6 }),
            (valid().replace(TWO, ROOT), RingError::RepeatedKey { line: 6 }),
        ];
        for (text, expected) in cases {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn ids_are_short_and_plain() {
        for id in ["a", "2026-11", "A.b_c-9", &"x".repeat(32)] {
            assert!(KeyRing::generate(id).is_ok(), "{id}");
        }
        for id in ["", "a b", "a\"", "a\nb", "a/b", "é", &"x".repeat(33)] {
            assert_eq!(KeyRing::generate(id), Err(RingError::InvalidId), "{id}");
        }
    }

    proptest! {
        /// A ring with a piece cut out, doubled or replaced: refused or not, no part of a key gets out.
        #[test]
        fn errors_quote_no_key(
            from: prop::sample::Index, length in 0..60usize, put in "[ \n:\"'\\-\\[{&*!|=A-C]{0,4}", twice: bool
        ) {
            let text = valid();
            let from = from.index(text.len());
            let to = (from + length).min(text.len());
            let piece = if twice { &text[from..to] } else { "" };
            let text = format!("{}{put}{piece}{}", &text[..from], &text[to..]);
            if let Err(error) = KeyRing::parse(&text) {
                let shown = format!("{error} {error:?}");
                for key in [ROOT, ONE, TWO] {
                    prop_assert!(!shown.contains(&key[..8]), "{}", shown);
                }
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[ -~\n]{0,200}") {
            let _ = KeyRing::parse(&text);
        }
    }
}

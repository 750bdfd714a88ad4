//! Texts of Envoy's, and what is found in any of them.

/// How many of the texts that words quote are looked for: a client may quote as many as it likes.
pub(super) const QUOTES: usize = 4;

/// Words shorter than this are in every route.
const TELLING: usize = 4;

/// What stands outside of quotation marks.
pub(super) fn unquoted(words: &str) -> String {
    words.split(['\'', '"', '`']).step_by(2).collect::<Vec<_>>().join(" ")
}

/// The names in a text: whatever stands between spaces and punctuation that names of ours do not have.
pub(super) fn names(words: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "/-._*".contains(letter);
    let parts = words.split(move |letter| !is_part(letter));
    parts.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty())
}

/// The number behind this.
pub(super) fn index(words: &str, before: &str) -> Option<usize> {
    let (_, rest) = words.split_once(before)?;
    rest.split_once(']')?.0.parse().ok()
}

/// What stands in quotation marks, the longest first.
pub(super) fn quotes(words: &str) -> impl Iterator<Item = &str> {
    let mut quoted: Vec<&str> = ['\'', '"', '`']
        .into_iter()
        .flat_map(|mark| words.split(mark).skip(1).step_by(2))
        .filter(|quoted| quoted.len() >= TELLING)
        .collect();
    quoted.sort_by_key(|quoted| std::cmp::Reverse(quoted.len()));
    quoted.into_iter()
}

pub(super) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(bytes, wanted).is_some()
}

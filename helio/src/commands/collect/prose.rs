//! Recognises prose after the name of a credential, as in "token: expired", where its value could be.

/// Whether `rest` begins with prose about the credential that `name` (with its separator) names, after `before`.
///
/// In doubt it does not. Its position must allow a sentence and no configuration, all its words up to the state must be
/// in a list, and an end or another such word must follow: after any other word the value could come.
pub(super) fn is_prose(before: &str, name: &str, rest: &str) -> bool {
    says_a_state(rest) && is_word(before, name) && is_in_sentence(before)
}

/// What a credential can be. No word that one is likely to be.
const STATES: [&str; 38] = [
    "absent",
    "accepted",
    "configured",
    "decoded",
    "denied",
    "disabled",
    "empty",
    "expected",
    "expired",
    "failed",
    "forbidden",
    "found",
    "given",
    "ignored",
    "incorrect",
    "invalid",
    "malformed",
    "mismatch",
    "missing",
    "needed",
    "none",
    "optional",
    "present",
    "provided",
    "refused",
    "rejected",
    "renewed",
    "required",
    "revoked",
    "set",
    "supported",
    "unauthorized",
    "unknown",
    "unset",
    "unsupported",
    "valid",
    "verified",
    "wrong",
];

/// What can be before a state.
const BEFORE: [&str; 14] = [
    "already", "are", "be", "been", "cannot", "could", "has", "have", "is", "must", "not", "too",
    "was", "were",
];

/// What can be behind a state.
const BEHIND: [&str; 23] = [
    "after", "again", "and", "anymore", "as", "at", "because", "before", "but", "by", "for",
    "from", "here", "in", "on", "or", "since", "so", "until", "when", "while", "with", "yet",
];

/// How much of the preceding text is checked.
const NEAR: usize = 200;

/// A word of a sentence and a colon: neither the end of a longer name, nor `token=`, nor `"token":`, nor `token:` and a
/// value in the next line.
fn is_word(before: &str, name: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || "_-.$%&?/".contains(char);
    let Some((word, blank)) = name.split_once(':') else { return false };
    let is_blank = !blank.is_empty() && blank.chars().all(|char| char == ' ');
    !before.ends_with(is_part) && word.chars().all(|char| char.is_ascii_alphabetic()) && is_blank
}

/// At the begin of a line, or behind something that is not how YAML begins a key.
fn is_in_sentence(before: &str) -> bool {
    // A page may be one line, of any length.
    let near = &before[before.floor_char_boundary(before.len().saturating_sub(NEAR))..];
    let line = near.rsplit(['\n', '\r']).next().unwrap_or_default();
    // The ends of lines are written as two characters in a string of JSON.
    let line = line.rsplit("\\n").next().unwrap_or_default();
    match line.trim_end().chars().next_back() {
        None => line.is_empty(),
        Some(last) => last.is_alphanumeric() || ":.;!?()]\"'".contains(last),
    }
}

fn says_a_state(rest: &str) -> bool {
    let mut rest = rest;
    loop {
        let (word, behind) = first_word(rest);
        if is_one_of(&STATES, word) {
            return may_be_behind(behind);
        }
        match behind.strip_prefix(' ') {
            Some(next) if is_one_of(&BEFORE, word) => rest = next,
            _ => return false,
        }
    }
}

fn may_be_behind(rest: &str) -> bool {
    match rest.strip_prefix(' ') {
        Some(next) => {
            let (word, behind) = first_word(next);
            let is_known = is_one_of(&BEHIND, word) || is_one_of(&STATES, word);
            is_known && (is_end(behind) || behind.starts_with(['.', ',', ';']))
        }
        None => is_end(rest.strip_prefix(['.', ',', ';', '!', '?', ')']).unwrap_or(rest)),
    }
}

fn is_end(rest: &str) -> bool {
    match rest.strip_prefix(['"', '\'']) {
        Some(behind) => !behind.starts_with(char::is_alphanumeric),
        None => rest.is_empty() || rest.starts_with([' ', '\r', '\n']),
    }
}

fn first_word(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(text.len());
    text.split_at(end)
}

fn is_one_of(list: &[&str], word: &str) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_told_from_a_configuration() {
        let said = [
            ("", "token: ", "expired"),
            ("the ", "token: ", "not found"),
            ("INFO a: b\n", "token: ", "expired\nINFO"),
            ("x: ", "Password: ", "has not been set, stopping"),
            ("\"detail\":\"", "token: ", "expired\""),
            ("", "token: ", "expired after 5s"),
        ];
        for (before, name, rest) in said {
            assert!(is_prose(before, name, rest), "{before}{name}{rest}");
        }
        let other = [
            // Not a word that could be said of it, or not to its end.
            ("", "token: ", ""),
            ("", "token: ", "sunshine"),
            ("", "token: ", "not"),
            ("", "token: ", "not sunshine"),
            ("", "token: ", "expired1"),
            ("", "token: ", "expired-abc"),
            ("", "token: ", "expired.abc"),
            ("", "token: ", "expired\"abc"),
            ("", "token: ", "expired sunshine"),
            ("", "token: ", "expired (abc)"),
            ("", "token: ", "expired: abc"),
            ("", "token: ", "expired=abc"),
            ("", "token: ", "expired for=abc"),
            ("", "token: ", "expired}"),
            // Not a word and a colon.
            ("", "token=", "expired"),
            ("", "token:", "expired"),
            ("", "token:\n", "expired"),
            ("", "token\": ", "expired"),
            ("", "api_key: ", "expired"),
            ("x-", "token: ", "expired"),
            ("store", "Password: ", "expired"),
            ("?", "token: ", "expired"),
            // A place of a configuration.
            ("  ", "token: ", "expired"),
            ("a:\n  ", "token: ", "expired"),
            ("- ", "token: ", "expired"),
            ("{", "token: ", "expired"),
            ("{ ", "token: ", "expired"),
            ("{a: b, ", "token: ", "expired"),
            ("{\"detail\":\"a:\\n  ", "token: ", "expired\""),
        ];
        for (before, name, rest) in other {
            assert!(!is_prose(before, name, rest), "{before}{name}{rest}");
        }
    }
}

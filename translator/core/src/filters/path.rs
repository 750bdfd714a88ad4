//! What redirects and rewrites have in common: another path.

use super::Refusal;
use crate::regex;
use heliograph_envoy::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use heliograph_model::{HttpMatch, PathMatch, PathRewrite};

/// How Envoy is told to change a path.
pub(super) enum Change {
    Prefix(String),
    Regex(RegexMatchAndSubstitute),
}

/// A path that Envoy takes: absolute, without query or fragment.
pub(crate) fn check(path: &str) -> Result<&str, Refusal> {
    let plain = |byte: u8| byte > b' ' && byte != 0x7f && byte != b'?' && byte != b'#';
    match path.starts_with('/') && path.bytes().all(plain) {
        true => Ok(path),
        false => Err(format!("{path:?} is not a path: it begins with / and has no ?, # or space")),
    }
}

pub(super) fn accept_full(path: Option<&String>) -> Result<PathRewrite, Refusal> {
    let path = path.ok_or("replaceFullPath is missing")?;
    check(path).map(|path| PathRewrite::Full(path.to_owned()))
}

pub(super) fn accept_prefix(
    path: Option<&String>,
    matches: &[HttpMatch],
) -> Result<PathRewrite, Refusal> {
    let path = path.ok_or("replacePrefixMatch is missing")?;
    if !matches.iter().all(|http_match| matches!(http_match.path, PathMatch::Prefix(_))) {
        return Err(
            "replacePrefixMatch needs every match of the rule to be a PathPrefix".to_owned()
        );
    }
    // Gateway API reads an empty replacement as `/`.
    let path = if path.is_empty() { "/" } else { path };
    check(path).map(|path| PathRewrite::Prefix(path.trim_end_matches('/').to_owned()))
}

/// `None` where the path stays as it is.
pub(super) fn change(rewrite: &PathRewrite, http_match: &HttpMatch) -> Option<Change> {
    match (rewrite, &http_match.path) {
        (PathRewrite::Full(path), _) => Some(substitute("^/.*$", path)),
        (PathRewrite::Prefix(new), PathMatch::Prefix(old)) => {
            match (old.is_empty(), new.is_empty()) {
                (true, true) => None,
                // `/foo/bar` must become `/bar`, and `/foo` must become `/`: neither `//bar` nor nothing.
                (false, true) => Some(substitute(&format!("^{}/*", regex::escape(old)), "/")),
                // `/bar` must become `/new/bar`, not `/newbar`.
                (true, false) => Some(substitute("^/", &format!("{new}/"))),
                (false, false) => Some(Change::Prefix(new.clone())),
            }
        }
        // Refused by `accept_prefix`.
        (PathRewrite::Prefix(_), PathMatch::Exact(_) | PathMatch::Regex(_) | PathMatch::Rpc(_)) => {
            None
        }
    }
}

/// The pattern that Envoy is given for it, if any.
pub(super) fn pattern(rewrite: &PathRewrite, http_match: &HttpMatch) -> Option<String> {
    match change(rewrite, http_match)? {
        Change::Prefix(_) => None,
        Change::Regex(substitution) => substitution.pattern.map(|pattern| pattern.regex),
    }
}

fn substitute(pattern: &str, substitution: &str) -> Change {
    Change::Regex(RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher { regex: pattern.to_owned(), ..Default::default() }),
        // A backslash would name a group.
        substitution: substitution.replace('\\', "\\\\"),
    })
}

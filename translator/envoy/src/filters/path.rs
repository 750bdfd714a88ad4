//! What redirects and rewrites have in common: another path.

use heliograph_envoy::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use heliograph_model::{HttpMatch, PathMatch, PathRewrite, escape_regex};

/// How Envoy changes a path.
pub(super) enum Change {
    Prefix(String),
    Regex(RegexMatchAndSubstitute),
}

/// `None` where the path stays as it is.
pub(super) fn change(rewrite: &PathRewrite, http_match: &HttpMatch) -> Option<Change> {
    match (rewrite, &http_match.path) {
        (PathRewrite::Full(path), _) => Some(substitute("^/.*$", path)),
        (PathRewrite::Prefix(new), PathMatch::Prefix(old)) => {
            match (old.is_empty(), new.is_empty()) {
                (true, true) => None,
                // `/foo/bar` must become `/bar`, and `/foo` must become `/`: neither `//bar` nor nothing.
                (false, true) => Some(substitute(&format!("^{}/*", escape_regex(old)), "/")),
                // `/bar` must become `/new/bar`, not `/newbar`.
                (true, false) => Some(substitute("^/", &format!("{new}/"))),
                (false, false) => Some(Change::Prefix(new.clone())),
            }
        }
        // The front end refuses it.
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

//! What redirects and rewrites have in common: another path.

use super::Refusal;
use heliograph_model::{HttpMatch, PathMatch, PathRewrite};

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

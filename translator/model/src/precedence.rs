use crate::{HttpMatch, PathMatch, RpcMatch, StringMatch};
use std::cmp::Reverse;

/// How specific a match is: the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// Gateway API: the longest service, then the longest method, then the most headers. Before whatever is not of gRPC,
    /// since it leaves that alone.
    Rpc { service: Reverse<usize>, method: Reverse<usize>, headers: Reverse<usize> },
    /// Gateway API: an exact path, then the longest, then a method, then the most headers, then the most query parameters.
    /// Where regular expressions stand is left open: here it is between exact paths and prefixes, so that a prefix can
    /// catch what they leave.
    Http {
        path: (PathRank, Reverse<usize>),
        method: Reverse<bool>,
        headers: Reverse<usize>,
        query: Reverse<usize>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathRank {
    Exact,
    Regex,
    Prefix,
}

impl Precedence {
    pub fn of(http_match: &HttpMatch) -> Self {
        let path = match &http_match.path {
            PathMatch::Exact(path) => (PathRank::Exact, Reverse(path.len())),
            PathMatch::Regex(pattern) => (PathRank::Regex, Reverse(pattern.len())),
            PathMatch::Prefix(prefix) => (PathRank::Prefix, Reverse(prefix.len())),
            PathMatch::Rpc(RpcMatch { service, method }) => {
                let length = |part: &Option<StringMatch>| {
                    Reverse(part.as_ref().map_or(0, StringMatch::length))
                };
                return Self::Rpc {
                    service: length(service),
                    method: length(method),
                    headers: Reverse(http_match.headers.len()),
                };
            }
        };
        Self::Http {
            path,
            method: Reverse(http_match.method.is_some()),
            headers: Reverse(http_match.headers.len()),
            query: Reverse(http_match.query.len()),
        }
    }
}

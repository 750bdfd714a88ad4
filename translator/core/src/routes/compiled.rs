use crate::build;
use crate::build::names;
use crate::objects::route_object;
use crate::routes::Rules;
use crate::world::{CompiledRouteKey, Reader};
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_model::{
    HttpMatch, HttpRule, PathMatch, Route, RouteId, RpcMatch, StringMatch, TableKey, UpstreamId,
};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A route as Envoy reads it, for one listener: encoded once, copied into every virtual host of the listener that it belongs
/// to. Two listeners of one table may have other policies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledRoute {
    pub(crate) created: i64,
    /// In the order of the route's rules and matches.
    pub(crate) routes: Vec<CompiledMatch>,
    /// The upstreams that the route leads to.
    pub(crate) upstreams: BTreeSet<UpstreamId>,
    /// All of it is left out, hosts included.
    pub(crate) is_dropped: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledMatch {
    pub(crate) precedence: Precedence,
    pub(crate) encoded: Bytes,
}

/// How specific a match is: the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
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
pub(crate) enum PathRank {
    Exact,
    Regex,
    Prefix,
}

/// What the length of a message and the number of a match take at most.
const FRAME: u64 = 16;

/// What an instruction of a regular expression takes in Envoy.
const INSTRUCTION: u64 = 16;

pub(crate) fn compiled(reader: &Reader<'_>, key: &CompiledRouteKey) -> CompiledRoute {
    let CompiledRouteKey { route: id, table, listener: _ } = key;
    let rules = reader.rules(id);
    let mut compiled = CompiledRoute {
        created: rules.map_or(i64::MAX, |rules| rules.created),
        routes: Vec::new(),
        upstreams: BTreeSet::new(),
        is_dropped: false,
    };
    let Some(Route::Http(route)) = rules.and_then(|rules| rules.route.as_ref()) else {
        return compiled;
    };
    let left_out = reader.left_out_of(&table.fleet, &route_object(id));
    compiled.is_dropped = left_out.is_some_and(|left_out| left_out.is_dropped);
    for (index, rule) in route.rules.iter().enumerate() {
        let left_out = left_out.filter(|left_out| left_out.has_rule(index));
        let unserved = left_out.map(|_| rule.unserved());
        let rule = unserved.as_ref().unwrap_or(rule);
        compiled.upstreams.extend(rule.upstreams().cloned());
        for (alternative, http_match) in rule.matches.iter().enumerate() {
            if left_out.is_some_and(|left_out| left_out.drops(index, alternative)) {
                continue;
            }
            let name = format!("{}/{index}/{alternative}", names::route(id));
            let routes = build::routes(&name, rule, http_match, table);
            compiled.routes.extend(routes.into_iter().map(|route| CompiledMatch {
                precedence: Precedence::of(http_match),
                encoded: route.encode_to_vec().into(),
            }));
        }
    }
    compiled
}

/// How many bytes the route takes at each host of a table; rather more than less. Nothing is copied for it: one match of
/// each rule is built, and the others differ in the match alone.
pub(crate) fn size(rules: &Rules, key: &RouteId, table: &TableKey) -> u64 {
    let Some(Route::Http(route)) = &rules.route else { return 0 };
    let name = names::route(key);
    let of_rule = |rule: &HttpRule| {
        let Some(first) = rule.matches.first() else { return 0 };
        let routes = build::routes(&name, rule, first, table);
        let copies = routes.len() as u64;
        let built: u64 = routes.iter().map(|route| route.encoded_len() as u64 + FRAME).sum();
        let rest = built.saturating_sub(copies * build::match_size(first));
        rule.matches.iter().fold(0, |sum: u64, http_match| {
            sum.saturating_add(rest + copies * build::match_size(http_match))
        })
    };
    let sum = route.rules.iter().map(of_rule).fold(0, u64::saturating_add);
    sum.saturating_add(rules.expressions.instructions.saturating_mul(INSTRUCTION))
}

impl Precedence {
    fn of(http_match: &HttpMatch) -> Self {
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

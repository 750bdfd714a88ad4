use crate::{names, policy, route};
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_model::{HttpPolicy, HttpRoute, HttpRule, Precedence, RouteId, TableKey};

/// A match of a rule as Envoy reads it, encoded once.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledMatch {
    pub precedence: Precedence,
    pub encoded: Bytes,
}

/// The most bytes of a message's length and a match's number.
const FRAME: u64 = 16;

/// A rule as Envoy reads it, in the order of its matches. `is_dropped` says which of them are left out.
pub fn compile(
    id: &RouteId,
    index: usize,
    rule: &HttpRule,
    policy: &HttpPolicy,
    table: &TableKey,
    is_dropped: impl Fn(usize) -> bool,
) -> Vec<CompiledMatch> {
    let mut compiled = Vec::new();
    for (alternative, http_match) in rule.matches.iter().enumerate() {
        if is_dropped(alternative) {
            continue;
        }
        let name = format!("{}/{index}/{alternative}", names::route(id));
        let routes = route::routes(&name, rule, policy, http_match, table);
        compiled.extend(routes.into_iter().map(|route| CompiledMatch {
            precedence: Precedence::of(http_match),
            encoded: route.encode_to_vec().into(),
        }));
    }
    compiled
}

/// How many bytes the route takes at each host of a table; rather more than less. Nothing is copied for it: one match of
/// each rule is built, and the others differ in the match alone.
pub fn size(id: &RouteId, route: &HttpRoute, table: &TableKey) -> u64 {
    let name = names::route(id);
    let of_rule = |rule: &HttpRule| {
        let Some(first) = rule.matches.first() else { return 0 };
        // Which policies are in force differs from listener to listener, and what they add is little.
        let routes = route::routes(&name, rule, &HttpPolicy::default(), first, table);
        let copies = routes.len() as u64;
        let frame = FRAME + policy::MOST_BYTES;
        let built: u64 = routes.iter().map(|route| route.encoded_len() as u64 + frame).sum();
        let rest = built.saturating_sub(copies * route::match_size(first));
        rule.matches.iter().fold(0, |sum: u64, http_match| {
            sum.saturating_add(rest + copies * route::match_size(http_match))
        })
    };
    route.rules.iter().map(of_rule).fold(0, u64::saturating_add)
}

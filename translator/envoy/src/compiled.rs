use crate::outline::MissingMatches;
use crate::{names, outline, policy, route};
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_model::{HttpPolicy, HttpRoute, HttpRule, Precedence, RouteId, TableKey};

/// A match of a rule as Envoy reads it, encoded once.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledMatch {
    pub precedence: Precedence,
    /// It is there for a match that proxies reject, and takes nothing from any other of the same precedence.
    pub is_outline: bool,
    pub encoded: Bytes,
}

/// What is to stay of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Match,
    /// What Envoy can hold for certain, which may be more than the match.
    Outline,
    /// The same, but not if it is the match itself: Envoy rejects that.
    OtherOutline,
    Nothing,
}

/// The matches of a rule as Envoy reads them.
#[derive(Debug, Default)]
pub struct CompiledRule {
    /// In the order of the rule's matches.
    pub matches: Vec<CompiledMatch>,
    /// The matches that are not there as they were written.
    pub missing: Option<MissingMatches>,
    /// Requests of a match that is missing are in none of the matches.
    pub is_open: bool,
}

/// The most bytes of a message's length and a match's number.
const FRAME: u64 = 16;

/// A rule as Envoy reads it. `keep` says what stays of each of its matches.
pub fn compile(
    id: &RouteId,
    index: usize,
    rule: &HttpRule,
    policy: &HttpPolicy,
    table: &TableKey,
    keep: impl Fn(usize) -> Keep,
) -> CompiledRule {
    let mut compiled = CompiledRule::default();
    for (alternative, http_match) in rule.matches.iter().enumerate() {
        let name = format!("{}/{index}/{alternative}", names::route(id));
        let precedence = Precedence::of(http_match);
        let is_plain = || outline::is_plain(http_match);
        let keep = keep(alternative);
        if keep == Keep::Match || (keep == Keep::Outline && is_plain()) {
            let routes = route::routes(&name, rule, policy, http_match, table);
            compiled.matches.extend(routes.into_iter().map(|route| CompiledMatch {
                precedence: precedence.clone(),
                is_outline: false,
                encoded: route.encode_to_vec().into(),
            }));
            continue;
        }
        let has_outline = keep == Keep::Outline || (keep == Keep::OtherOutline && !is_plain());
        let outline =
            has_outline.then(|| outline::compiled(&name, rule, http_match, table)).flatten();
        compiled.is_open |= outline.is_none();
        compiled.matches.extend(outline);
        let missing = MissingMatches::of(http_match, precedence);
        compiled.missing = MissingMatches::joined(compiled.missing.take(), Some(missing));
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

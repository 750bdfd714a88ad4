use crate::objects::route_object;
use crate::policies::Levels;
use crate::routes::Rules;
use crate::world::{CompiledRouteKey, Reader};
use heliograph_envoy_dialect::{self as envoy, CompiledMatch, CompiledRule, Keep, MissingMatches};
use heliograph_model::{FrozenSet, Route, RouteId, TableKey, UpstreamId};
use heliograph_views::LeftOut;

/// A route as Envoy reads it, for one listener: encoded once, copied into every virtual host of the listener that it belongs
/// to. Two listeners of one table may have other policies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledRoute {
    pub(crate) created: i64,
    /// In the order of the route's rules and matches.
    pub(crate) routes: Vec<CompiledMatch>,
    /// The upstreams that the route leads to.
    pub(crate) upstreams: FrozenSet<UpstreamId>,
    /// Matches are dropped of which nothing could stay, so whatever else comes to its hosts may be theirs.
    pub(crate) closes_hosts: bool,
    /// The matches that are dropped although a policy protects them: what their author serves behind them may be what is to be
    /// protected.
    pub(crate) unprotected: Option<MissingMatches>,
}

/// The bytes that an instruction of a regular expression uses in Envoy.
const INSTRUCTION: u64 = 16;

pub(crate) fn compiled(reader: &Reader<'_>, key: &CompiledRouteKey) -> CompiledRoute {
    let CompiledRouteKey { route: id, table, listener } = key;
    let rules = reader.rules(id);
    let mut compiled = CompiledRoute {
        created: rules.map_or(i64::MAX, |rules| rules.created),
        routes: Vec::new(),
        upstreams: FrozenSet::default(),
        closes_hosts: false,
        unprotected: None,
    };
    let Some(Route::Http(route)) = rules.and_then(|rules| rules.route.as_ref()) else {
        return compiled;
    };
    let left_out = reader.left_out_of(&table.fleet, &route_object(id));
    let levels = Levels::of(reader, id, listener);
    let mut upstreams = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let left_out = left_out.filter(|left_out| left_out.has_rule(index));
        // A rule that is left out, or that a policy closes, has its matches and nothing else.
        let policy = levels.http(rule.name.as_deref()).ok();
        let is_protected = policy.as_ref().is_none_or(|policy| policy.security.is_some());
        let policy = policy.filter(|_| left_out.is_none());
        let unserved = policy.is_none().then(|| rule.unserved());
        let (rule, policy) = (unserved.as_ref().unwrap_or(rule), policy.unwrap_or_default());
        upstreams.extend(rule.upstreams().cloned());
        let keep = |match_index| keep(left_out, index, match_index);
        let rule = envoy::compile(id, index, rule, &policy, table, keep);
        let CompiledRule { matches, missing, is_open } = rule;
        compiled.routes.extend(matches);
        compiled.closes_hosts |= is_open;
        if is_protected {
            compiled.unprotected = MissingMatches::joined(compiled.unprotected.take(), missing);
        }
    }
    compiled.upstreams = upstreams.into_iter().collect();
    compiled
}

fn keep(left_out: Option<&LeftOut>, rule: usize, index: usize) -> Keep {
    match left_out {
        Some(it) if it.is_dropped && it.has_outlines => Keep::Outline,
        Some(it) if it.is_dropped => Keep::Nothing,
        Some(it) if it.drops(rule, index) => Keep::OtherOutline,
        _ => Keep::Match,
    }
}

/// How many bytes the route takes at each host of a table; rather more than less.
pub(crate) fn size(rules: &Rules, id: &RouteId, table: &TableKey) -> u64 {
    let Some(Route::Http(route)) = &rules.route else { return 0 };
    let instructions = rules.expressions.instructions.saturating_mul(INSTRUCTION);
    envoy::size(id, route, table).saturating_add(instructions)
}

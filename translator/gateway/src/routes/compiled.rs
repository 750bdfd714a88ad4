use crate::objects::route_object;
use crate::policies::Levels;
use crate::routes::Rules;
use crate::world::{CompiledRouteKey, Reader};
use heliograph_envoy_dialect::{self as envoy, CompiledMatch};
use heliograph_model::{FrozenSet, Route, RouteId, TableKey, UpstreamId};

/// A route as Envoy reads it, for one listener: encoded once, copied into every virtual host of the listener that it belongs
/// to. Two listeners of one table may have other policies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledRoute {
    pub(crate) created: i64,
    /// In the order of the route's rules and matches.
    pub(crate) routes: Vec<CompiledMatch>,
    /// The upstreams that the route leads to.
    pub(crate) upstreams: FrozenSet<UpstreamId>,
    /// All of it is left out, hosts included.
    pub(crate) is_dropped: bool,
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
        is_dropped: false,
    };
    let Some(Route::Http(route)) = rules.and_then(|rules| rules.route.as_ref()) else {
        return compiled;
    };
    let left_out = reader.left_out_of(&table.fleet, &route_object(id));
    compiled.is_dropped = left_out.is_some_and(|left_out| left_out.is_dropped);
    let levels = Levels::of(reader, id, listener);
    let mut upstreams = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let left_out = left_out.filter(|left_out| left_out.has_rule(index));
        // A rule that is left out, or that a policy closes, has its matches and nothing else.
        let policy = levels.http(rule.name.as_deref()).ok().filter(|_| left_out.is_none());
        let unserved = policy.is_none().then(|| rule.unserved());
        let (rule, policy) = (unserved.as_ref().unwrap_or(rule), policy.unwrap_or_default());
        upstreams.extend(rule.upstreams().cloned());
        let is_dropped = |match_index| left_out.is_some_and(|it| it.drops(index, match_index));
        compiled.routes.extend(envoy::compile(id, index, rule, &policy, table, is_dropped));
    }
    compiled.upstreams = upstreams.into_iter().collect();
    compiled
}

/// How many bytes the route takes at each host of a table; rather more than less.
pub(crate) fn size(rules: &Rules, id: &RouteId, table: &TableKey) -> u64 {
    let Some(Route::Http(route)) = &rules.route else { return 0 };
    let instructions = rules.expressions.instructions.saturating_mul(INSTRUCTION);
    envoy::size(id, route, table).saturating_add(instructions)
}

//! What the kinds of routes have in common.

use super::{Expressions, RouteScope, Rules};
use crate::backends::Reference;
use crate::filters::{self, FilterPosition};
use crate::objects::created;
use crate::objects::{ObjectName, gateway, route_object};
use crate::regex;
use crate::status::Condition;
use crate::status::reasons::route::accepted::UNSUPPORTED_VALUE;
use crate::world::Reader;
use heliograph_envoy_dialect::{self as envoy, Pattern};
use heliograph_model::{
    Hostname, HttpMatch, HttpRoute, HttpRule, Route, RouteId, StringMatch, Target,
    UpstreamProtocol, WeightedTarget,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// The API's bound. Envoy refuses weights whose sum does not fit in 32 bits.
const LARGEST_WEIGHT: u32 = 1_000_000;

/// The fields of a route object that all kinds of routes share; not its rules.
pub(super) struct RouteFields<'a> {
    pub(super) metadata: &'a ObjectMeta,
    pub(super) parents: Vec<gateway::ParentRef>,
    pub(super) hostnames: &'a [String],
    /// The protocol of a backend that names none.
    pub(super) default_protocol: UpstreamProtocol,
}

/// A backendRef of any kind of route.
pub(super) struct BackendRef<'a> {
    pub(super) group: Option<&'a str>,
    pub(super) kind: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) port: Option<i32>,
    pub(super) weight: Option<i32>,
}

/// A value that cannot be served rejects the route as a whole, with the reason; a reference that cannot be resolved does
/// not, and is reported in `resolved`.
pub(super) fn accept(
    reader: &Reader<'_>,
    id: &RouteId,
    given: RouteFields<'_>,
    route: impl FnOnce(&mut RouteScope<'_>, &mut Expressions) -> Result<Route, String>,
) -> Rules {
    let mut resolved = super::resolved();
    let mut backend_references = BTreeSet::new();
    let mut scope = RouteScope {
        reader,
        route: &route_object(id),
        default_protocol: given.default_protocol,
        resolved: &mut resolved,
        backend_references: &mut backend_references,
    };
    let hostnames = hostnames(given.hostnames);
    let mut expressions = Expressions::default();
    let route = route(&mut scope, &mut expressions);
    let (hostnames, route, refusal) = match hostnames.and_then(|hostnames| Ok((hostnames, route?)))
    {
        Ok((hostnames, route)) => (hostnames, Some(route), None),
        Err(reason) => (vec![Hostname::Any], None, Some(Condition::new(UNSUPPORTED_VALUE, reason))),
    };
    Rules {
        generation: given.metadata.generation.unwrap_or_default(),
        created: created(given.metadata),
        parents: given.parents,
        hostnames,
        route,
        expressions,
        refusal,
        resolved,
        backend_references: backend_references.into_iter().collect(),
    }
}

/// A header and what its value must be, for each of them once.
pub(super) fn headers<'a>(
    given: impl Iterator<Item = (&'a str, bool, &'a str)>,
) -> Result<Vec<(String, StringMatch)>, String> {
    // Gateway API: of several entries with equivalent names, the first counts.
    let mut seen = BTreeSet::new();
    let mut headers = Vec::new();
    for (name, is_pattern, value) in given {
        let name = name.to_ascii_lowercase();
        filters::check_header_name(&name)?;
        let value = text(is_pattern, value)?;
        if seen.insert(name.clone()) {
            headers.push((name, value));
        }
    }
    // The order in which headers are written decides nothing, so it must not make another version.
    headers.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(headers)
}

pub(super) fn text(is_pattern: bool, value: &str) -> Result<StringMatch, String> {
    match is_pattern {
        true => regex::accept(value).map(StringMatch::Regex),
        false => Ok(StringMatch::Exact(value.to_owned())),
    }
}

/// A backend and its weight.
pub(super) fn backend(
    scope: &mut RouteScope<'_>,
    reference: &BackendRef<'_>,
) -> Result<(u32, Target), String> {
    let target = scope.resolve(&Reference {
        group: reference.group.unwrap_or_default(),
        kind: reference.kind.unwrap_or("Service"),
        name: ObjectName::new(reference.namespace.unwrap_or(scope.namespace()), reference.name),
        port: reference.port,
    });
    Ok((share(reference.weight.unwrap_or(1))?, target))
}

/// A backend with its share of a rule's requests, and what is done to those.
pub(super) fn target<F: serde::Serialize>(
    scope: &mut RouteScope<'_>,
    reference: &BackendRef<'_>,
    given: Option<&[F]>,
    matches: &[HttpMatch],
) -> Result<WeightedTarget, String> {
    let (weight, target) = backend(scope, reference)?;
    Ok(WeightedTarget {
        weight,
        target,
        filters: filters::accept(
            scope,
            given.unwrap_or_default(),
            FilterPosition::Backend { matches },
        )?,
    })
}

fn hostnames(given: &[String]) -> Result<Vec<Hostname>, String> {
    if given.is_empty() {
        return Ok(vec![Hostname::Any]);
    }
    let parse = |hostname: &String| hostname.parse().map_err(|error| format!("hostnames: {error}"));
    given.iter().map(parse).collect()
}

/// The rules of a route over HTTP. Without any there is one for everything, as the API defaults it.
pub(super) fn over_http<R: Default>(
    scope: &mut RouteScope<'_>,
    given: Option<&[R]>,
    expressions: &mut Expressions,
    rule: fn(&mut RouteScope<'_>, &R) -> Result<HttpRule, String>,
) -> Result<Route, String> {
    let Some(given) = given else {
        return Ok(Route::Http(HttpRoute { rules: vec![rule(scope, &R::default())?] }));
    };
    let limits = scope.reader.limits();
    let mut accept = |given: &R| {
        let rule = rule(scope, given)?;
        for Pattern { text, tries } in envoy::patterns(&rule) {
            let checked = regex::check_size(&text, limits);
            expressions.is_too_large |= checked.is_err();
            let instructions = checked?;
            expressions.instructions += instructions;
            expressions.tried += instructions * tries;
        }
        Ok(rule)
    };
    let mut rules = Vec::new();
    for (index, given) in given.iter().enumerate() {
        rules.push(accept(given).map_err(|reason: String| format!("rule {index}: {reason}"))?);
    }
    Ok(Route::Http(HttpRoute { rules }))
}

fn share(weight: i32) -> Result<u32, String> {
    u32::try_from(weight)
        .ok()
        .filter(|weight| *weight <= LARGEST_WEIGHT)
        .ok_or_else(|| format!("weight {weight} is not between 0 and {LARGEST_WEIGHT}"))
}

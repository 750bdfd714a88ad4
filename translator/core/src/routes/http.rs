use super::{Rules, Scope, regex};
use crate::backends::Reference;
use crate::filters::{self, Place};
use crate::ir::{
    Hostname, HttpMatch, HttpRoute, HttpRule, PathMatch, Route, StringMatch, Timeouts,
    WeightedTarget,
};
use crate::objects::{ObjectKey, ObjectName, gateway};
use crate::status::Condition;
use crate::world::Reader;
use std::collections::BTreeSet;
use std::time::Duration;

/// Envoy's bound.
const LONGEST_QUERY_NAME: usize = 1024;
/// The API's bound. Envoy refuses weights whose sum does not fit in 32 bits.
const LARGEST_WEIGHT: u32 = 1_000_000;

pub(super) fn rules(reader: &Reader<'_>, key: &ObjectKey) -> Option<Rules> {
    let object = reader.object::<gateway::HttpRoute>(&key.name)?;
    let gateway::HttpRouteSpec {
        hostnames,
        parent_refs,
        rules,
        // No Gateway is one by default.
        use_default_gateways: _,
    } = &object.spec;
    let mut resolved = super::resolved();
    let hostnames = accept_hostnames(hostnames.as_deref().unwrap_or_default());
    let accepted = accept(reader, key, rules.as_deref(), &mut resolved);
    let (hostnames, route, refusal) = match hostnames
        .and_then(|hostnames| Ok((hostnames, accepted?)))
    {
        Ok((hostnames, route)) => (hostnames, Some(Route::Http(route)), None),
        Err(reason) => {
            (vec![Hostname::Any], None, Some(Condition::no("Accepted", "UnsupportedValue", reason)))
        }
    };
    let created = object.metadata.creation_timestamp.as_ref();
    Some(Rules {
        generation: object.metadata.generation.unwrap_or_default(),
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        parents: parent_refs.clone().unwrap_or_default(),
        hostnames,
        route,
        refusal,
        resolved,
    })
}

fn accept_hostnames(given: &[String]) -> Result<Vec<Hostname>, String> {
    if given.is_empty() {
        return Ok(vec![Hostname::Any]);
    }
    let parse = |hostname: &String| hostname.parse().map_err(|error| format!("hostnames: {error}"));
    given.iter().map(parse).collect()
}

/// A value that cannot be served refuses the route as a whole, with the reason; a reference that leads nowhere does not,
/// and is told in `resolved`.
fn accept(
    reader: &Reader<'_>,
    key: &ObjectKey,
    given: Option<&[gateway::HttpRule]>,
    resolved: &mut Condition,
) -> Result<HttpRoute, String> {
    let mut scope = Scope { reader, route: key, resolved };
    let Some(given) = given else {
        // Without rules there is one for all paths, as the API defaults it.
        return Ok(HttpRoute { rules: vec![rule(&mut scope, &gateway::HttpRule::default())?] });
    };
    let mut rules = Vec::new();
    for (index, given) in given.iter().enumerate() {
        rules.push(rule(&mut scope, given).map_err(|reason| format!("rule {index}: {reason}"))?);
    }
    Ok(HttpRoute { rules })
}

fn rule(scope: &mut Scope<'_>, rule: &gateway::HttpRule) -> Result<HttpRule, String> {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::HttpRule {
        backend_refs,
        filters,
        matches,
        name: _,
        retry,
        session_persistence,
        timeouts,
    } = rule;
    if retry.is_some() {
        return Err("retry is not supported".to_owned());
    }
    if session_persistence.is_some() {
        return Err("sessionPersistence is not supported".to_owned());
    }
    let matches = match matches.as_deref().filter(|matches| !matches.is_empty()) {
        None => vec![http_match(&gateway::HttpMatch::default())?],
        Some(matches) => matches.iter().map(http_match).collect::<Result<_, _>>()?,
    };
    let place = Place::Rule { matches: &matches };
    let filters = filters::accept(scope, filters.as_deref().unwrap_or_default(), place)?;
    let mut targets = Vec::new();
    for reference in backend_refs.iter().flatten() {
        targets.push(target(scope, reference)?);
    }
    let timeouts = match timeouts {
        None => Timeouts::default(),
        Some(timeouts) => Timeouts {
            request: duration(timeouts.request.as_deref())?,
            backend_request: duration(timeouts.backend_request.as_deref())?,
        },
    };
    Ok(HttpRule { matches, filters, targets, timeouts })
}

fn http_match(given: &gateway::HttpMatch) -> Result<HttpMatch, String> {
    let gateway::HttpMatch { headers, method, path, query_params } = given;
    // Gateway API: of several entries with equivalent names, the first counts.
    let mut seen = BTreeSet::new();
    let mut matched_headers = Vec::new();
    for header in headers.iter().flatten() {
        let name = header.name.to_ascii_lowercase();
        filters::check_header_name(&name)?;
        let value = match &header.r#type {
            None | Some(gateway::HeaderMatchType::Exact) => {
                StringMatch::Exact(header.value.clone())
            }
            Some(gateway::HeaderMatchType::RegularExpression) => {
                StringMatch::Regex(regex::accept(&header.value)?)
            }
        };
        if seen.insert(name.clone()) {
            matched_headers.push((name, value));
        }
    }
    let mut seen = BTreeSet::new();
    let mut query = Vec::new();
    for parameter in query_params.iter().flatten() {
        let value = match &parameter.r#type {
            None | Some(gateway::QueryMatchType::Exact) => {
                StringMatch::Exact(parameter.value.clone())
            }
            Some(gateway::QueryMatchType::RegularExpression) => {
                StringMatch::Regex(regex::accept(&parameter.value)?)
            }
        };
        if !(1..=LONGEST_QUERY_NAME).contains(&parameter.name.len()) {
            return Err("the name of a query parameter is empty or too long".to_owned());
        }
        if seen.insert(parameter.name.clone()) {
            query.push((parameter.name.clone(), value));
        }
    }
    // The order in which headers are written decides nothing, so it must not make another version.
    matched_headers.sort_by(|one, other| one.0.cmp(&other.0));
    query.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(HttpMatch {
        path: path_match(path.as_ref())?,
        method: method.as_ref().map(method_name),
        headers: matched_headers,
        query,
    })
}

fn path_match(path: Option<&gateway::PathMatch>) -> Result<PathMatch, String> {
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    match path.and_then(|path| path.r#type.as_ref()) {
        Some(gateway::PathMatchType::RegularExpression) => {
            Ok(PathMatch::Regex(regex::accept(value)?))
        }
        Some(gateway::PathMatchType::Exact) => {
            Ok(PathMatch::Exact(filters::check_path(value)?.to_owned()))
        }
        None | Some(gateway::PathMatchType::PathPrefix) => {
            Ok(PathMatch::Prefix(filters::check_path(value)?.trim_end_matches('/').to_owned()))
        }
    }
}

fn method_name(method: &impl serde::Serialize) -> String {
    // The methods are a closed enum that is written as its variants are.
    match serde_json::to_value(method) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn duration(text: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let parsed: gateway_api::Duration =
        text.parse().map_err(|_| format!("timeouts: {text:?} is not a duration like 10s"))?;
    // Gateway API's durations are whole milliseconds below 100,000 hours.
    Ok(Some(Duration::from_millis(u64::try_from(parsed.as_millis()).unwrap_or(u64::MAX))))
}

fn target(
    scope: &mut Scope<'_>,
    reference: &gateway::HttpBackendRef,
) -> Result<WeightedTarget, String> {
    let gateway::HttpBackendRef { filters, group, kind, name, namespace, port, weight } = reference;
    let target = scope.resolve(&Reference {
        group: group.as_deref().unwrap_or_default(),
        kind: kind.as_deref().unwrap_or("Service"),
        name: ObjectName::new(namespace.as_deref().unwrap_or(scope.namespace()), name),
        port: *port,
    });
    let filters: Vec<gateway::HttpFilter> =
        filters.iter().flatten().map(filters::of_backend).collect::<Result<_, _>>()?;
    Ok(WeightedTarget {
        weight: share(weight.unwrap_or(1))?,
        target,
        filters: filters::accept(scope, &filters, Place::Backend)?,
    })
}

fn share(weight: i32) -> Result<u32, String> {
    u32::try_from(weight)
        .ok()
        .filter(|weight| *weight <= LARGEST_WEIGHT)
        .ok_or_else(|| format!("weight {weight} is not between 0 and {LARGEST_WEIGHT}"))
}

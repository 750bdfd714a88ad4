use super::rules::{self, BackendRef, RouteFields};
use super::{RouteScope, Rules};
use crate::duration;
use crate::filters::{self, FilterPosition};
use crate::objects::gateway;
use crate::regex;
use crate::world::Reader;
use heliograph_model::{
    HttpMatch, HttpRule, PathMatch, Retry, RouteId, Timeouts, UpstreamProtocol,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Envoy's bound.
const LONGEST_QUERY_NAME: usize = 1024;
/// The most attempts after the first one: each client could ask this many times as much of the backends. Gateway API's
/// conformance suite asks for 100.
const MOST_ATTEMPTS: u32 = 100;

pub(super) fn accept(reader: &Reader<'_>, id: &RouteId) -> Option<Rules> {
    let object = reader.object::<gateway::HttpRoute>(&id.name)?;
    let gateway::HttpRouteSpec {
        hostnames,
        parent_refs,
        rules: given_rules,
        // No Gateway is one by default.
        use_default_gateways: _,
    } = &object.spec;
    let given = RouteFields {
        metadata: &object.metadata,
        parents: parent_refs.clone().unwrap_or_default(),
        hostnames: hostnames.as_deref().unwrap_or_default(),
        default_protocol: UpstreamProtocol::Http1,
    };
    Some(rules::accept(reader, id, given, |scope, expressions| {
        rules::over_http(scope, given_rules.as_deref(), expressions, rule)
    }))
}

fn rule(scope: &mut RouteScope<'_>, rule: &gateway::HttpRule) -> Result<HttpRule, String> {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::HttpRule {
        backend_refs,
        filters,
        matches,
        name,
        retry,
        session_persistence,
        timeouts,
    } = rule;
    if session_persistence.is_some() {
        return Err("sessionPersistence is not supported".to_owned());
    }
    let matches = match matches.as_deref().filter(|matches| !matches.is_empty()) {
        None => vec![http_match(&gateway::HttpMatch::default())?],
        Some(matches) => matches.iter().map(http_match).collect::<Result<_, _>>()?,
    };
    let position = FilterPosition::Rule { matches: &matches };
    let filters = filters::accept(scope, filters.as_deref().unwrap_or_default(), position)?;
    let mut targets = Vec::new();
    for reference in backend_refs.iter().flatten() {
        let gateway::HttpBackendRef { filters, group, kind, name, namespace, port, weight } =
            reference;
        let reference = BackendRef {
            group: group.as_deref(),
            kind: kind.as_deref(),
            name,
            namespace: namespace.as_deref(),
            port: *port,
            weight: *weight,
        };
        targets.push(rules::target(scope, &reference, filters.as_deref(), &matches)?);
    }
    let timeouts = match timeouts {
        None => Timeouts::default(),
        Some(timeouts) => Timeouts {
            request: duration("timeouts", timeouts.request.as_deref())?,
            backend_request: duration("timeouts", timeouts.backend_request.as_deref())?,
        },
    };
    let retry = retry.as_ref().map(accept_retry).transpose()?;
    let name = name.as_deref().map(Into::into);
    Ok(HttpRule { name, matches, filters, targets, timeouts, retry })
}

fn http_match(given: &gateway::HttpMatch) -> Result<HttpMatch, String> {
    let gateway::HttpMatch { headers, method, path, query_params } = given;
    let headers = headers.iter().flatten().map(|header| {
        let is_pattern = header.r#type == Some(gateway::HeaderMatchType::RegularExpression);
        (header.name.as_str(), is_pattern, header.value.as_str())
    });
    // Gateway API: of several entries with the same name, the first counts.
    let mut seen = BTreeSet::new();
    let mut query = Vec::new();
    for parameter in query_params.iter().flatten() {
        let is_pattern = parameter.r#type == Some(gateway::QueryMatchType::RegularExpression);
        let value = rules::text(is_pattern, &parameter.value)?;
        if !(1..=LONGEST_QUERY_NAME).contains(&parameter.name.len()) {
            return Err("the name of a query parameter is empty or too long".to_owned());
        }
        if seen.insert(parameter.name.clone()) {
            query.push((parameter.name.clone(), value));
        }
    }
    // The order in which parameters are written decides nothing, so it must not make another version.
    query.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(HttpMatch {
        path: path_match(path.as_ref())?,
        method: method.as_ref().map(method_name),
        headers: rules::headers(headers)?,
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

fn accept_retry(given: &gateway::Retry) -> Result<Retry, String> {
    let gateway::Retry { attempts, backoff, codes } = given;
    let attempts = attempts.unwrap_or(1);
    let mut accepted: BTreeSet<u16> = BTreeSet::new();
    for code in codes.iter().flatten() {
        let code = u16::try_from(*code).ok().filter(|code| (400..600).contains(code));
        accepted.insert(code.ok_or("retry: codes must be from 400 to 599")?);
    }
    let backoff = duration("retry", backoff.as_deref())?;
    if backoff.is_some_and(|backoff| backoff.is_zero()) {
        return Err("retry: the backoff must be greater than zero".to_owned());
    }
    Ok(Retry {
        attempts: u32::try_from(attempts)
            .ok()
            .filter(|attempts| *attempts <= MOST_ATTEMPTS)
            .ok_or_else(|| {
                format!("retry: attempts must be from 0 to {MOST_ATTEMPTS}, not {attempts}")
            })?,
        codes: accepted.into_iter().collect(),
        backoff,
    })
}

fn duration(field: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    text.map(duration::parse).transpose().map_err(|why| format!("{field}: {why}"))
}

use crate::filters;
use crate::names;
use crate::policy;
use crate::{MILLION, duration, per_million};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use heliograph_envoy::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use heliograph_envoy::envoy::config::route::v3::retry_policy::RetryBackOff;
use heliograph_envoy::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier,
};
use heliograph_envoy::envoy::config::route::v3::route_match::{
    GrpcRouteMatchOptions, PathSpecifier,
};
use heliograph_envoy::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use heliograph_envoy::envoy::config::route::v3::{
    DirectResponseAction, HeaderMatcher, QueryParameterMatcher, RetryPolicy, Route, RouteAction,
    RouteMatch, WeightedCluster, route,
};
use heliograph_envoy::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_model::{
    Filter, HttpMatch, HttpPolicy, HttpRule, PathMatch, RpcMatch, StringMatch, TableKey, Target,
    WeightedTarget, escape_regex,
};
use std::borrow::Cow;

/// One match of a rule as Envoy reads it: one route, and one more for each backend with filters that Envoy has for routes
/// only.
pub(crate) fn routes(
    name: &str,
    rule: &HttpRule,
    policy: &HttpPolicy,
    http_match: &HttpMatch,
    table: &TableKey,
) -> Vec<Route> {
    let portions = portions(rule);
    let one = portions.len() == 1;
    let route = |(index, portion): (usize, Portion<'_>)| {
        let mut route = Route {
            name: if one { name.to_owned() } else { format!("{name}/{index}") },
            r#match: Some(RouteMatch {
                runtime_fraction: portion.below.map(per_million),
                ..route_match(http_match)
            }),
            action: Some(action(rule, http_match, &portion.targets)),
            ..Default::default()
        };
        filters::build(&rule.filters, http_match, table, &mut route);
        filters::build(&portion.filters, http_match, table, &mut route);
        policy::build(rule, policy, &mut route);
        route
    };
    portions.into_iter().enumerate().map(route).collect()
}

/// For hosts of another listener. RFC 9110, 15.5.20: the client may ask again on another connection.
pub(crate) fn misdirected() -> Route {
    everything("misdirected", 421)
}

/// For requests that may be those of a match which proxies reject.
pub(crate) fn closed() -> Route {
    everything("closed", 500)
}

fn everything(name: &str, status: u32) -> Route {
    Route {
        name: name.to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        action: Some(answer(status)),
        ..Default::default()
    }
}

/// A part of a rule's requests.
struct Portion<'a> {
    targets: Vec<&'a WeightedTarget>,
    /// What is done to them beside what the rule asks for.
    filters: Vec<Filter>,
    /// Which requests, as a bound in a million: Envoy rolls one die for a request, and asks each route in turn whether it is
    /// below. `None`: all that are left.
    below: Option<u32>,
}

fn portions(rule: &HttpRule) -> Vec<Portion<'_>> {
    let has_own_route = |target: &&WeightedTarget| {
        target.target != Target::Invalid && target.filters.iter().any(filters::is_of_route)
    };
    let live = rule.targets.iter().filter(|target| target.weight > 0);
    let (alone, together): (Vec<_>, Vec<_>) = live.partition(has_own_route);
    let total: u64 = rule.targets.iter().map(|target| u64::from(target.weight)).sum();
    let (mut portions, mut taken) = (Vec::new(), 0);
    for target in alone {
        taken += u64::from(target.weight);
        portions.push(Portion {
            targets: vec![target],
            filters: target.filters.iter().filter(|it| filters::is_of_route(it)).cloned().collect(),
            below: u32::try_from(taken * MILLION / total.max(1)).ok().filter(|_| taken < total),
        });
    }
    if taken < total || portions.is_empty() {
        portions.push(Portion { targets: together, filters: Vec::new(), below: None });
    }
    portions
}

fn route_match(http_match: &HttpMatch) -> RouteMatch {
    let path = match &http_match.path {
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) if prefix.is_empty() => PathSpecifier::Prefix("/".to_owned()),
        PathMatch::Prefix(prefix) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
        PathMatch::Regex(pattern) => PathSpecifier::SafeRegex(matcher(pattern)),
        PathMatch::Rpc(rpc) => rpc_path(rpc),
    };
    let method = http_match
        .method
        .iter()
        .map(|method| header(":method", &StringMatch::Exact(method.clone())));
    let headers = http_match.headers.iter().map(|(name, value)| header(name, value));
    RouteMatch {
        path_specifier: Some(path),
        grpc: matches!(http_match.path, PathMatch::Rpc(_)).then(GrpcRouteMatchOptions::default),
        headers: method.chain(headers).collect(),
        query_parameters: http_match
            .query
            .iter()
            .map(|(name, value)| QueryParameterMatcher {
                name: name.clone(),
                query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(
                    string(value),
                )),
            })
            .collect(),
        ..Default::default()
    }
}

/// How many bytes a match takes, in whatever route; a rewrite repeats its path.
pub(crate) fn match_size(http_match: &HttpMatch) -> u64 {
    let path = match &http_match.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::Regex(path) => path.len(),
        PathMatch::Rpc(_) => 0,
    };
    (route_match(http_match).encoded_len() + 2 * path) as u64
}

/// A regular expression that Envoy is given.
pub struct Pattern<'a> {
    pub text: Cow<'a, str>,
    /// How many of Envoy's routes try it to find out whether they match a request: none, if it is for what is done to
    /// requests that match.
    pub tries: u64,
}

/// All regular expressions that Envoy is given for a rule.
pub fn patterns(rule: &HttpRule) -> Vec<Pattern<'_>> {
    let of_targets = rule.targets.iter().flat_map(|target| &target.filters);
    let filters: Vec<&Filter> = rule.filters.iter().chain(of_targets).collect();
    let for_action = |text| Pattern { text, tries: 0 };
    let copies = portions(rule).len() as u64;
    let for_match = |text| Pattern { text, tries: copies };
    let mut patterns: Vec<Pattern<'_>> = Vec::new();
    let of_filters = filters.iter().copied().flat_map(filters::patterns).map(Cow::Borrowed);
    patterns.extend(of_filters.map(for_action));
    for http_match in &rule.matches {
        match &http_match.path {
            PathMatch::Regex(pattern) => patterns.push(for_match(pattern.into())),
            PathMatch::Rpc(rpc) => {
                patterns.extend(rpc_pattern(rpc).map(Cow::Owned).map(for_match));
            }
            PathMatch::Exact(_) | PathMatch::Prefix(_) => {}
        }
        for (_, value) in http_match.headers.iter().chain(&http_match.query) {
            if let StringMatch::Regex(pattern) = value {
                patterns.push(for_match(pattern.into()));
            }
        }
        let paths = filters.iter().filter_map(|filter| filters::path_pattern(filter, http_match));
        patterns.extend(paths.map(Cow::Owned).map(for_action));
    }
    patterns
}

/// The path of a call is `/service/method`.
fn rpc_path(rpc: &RpcMatch) -> PathSpecifier {
    match (&rpc.service, &rpc.method) {
        (Some(StringMatch::Exact(service)), None) => PathSpecifier::Prefix(format!("/{service}/")),
        (Some(StringMatch::Exact(service)), Some(StringMatch::Exact(method))) => {
            PathSpecifier::Path(format!("/{service}/{method}"))
        }
        _ => match rpc_pattern(rpc) {
            None => PathSpecifier::Prefix("/".to_owned()),
            Some(pattern) => PathSpecifier::SafeRegex(matcher(&pattern)),
        },
    }
}

/// `None` where the path of a call is matched without a pattern.
fn rpc_pattern(rpc: &RpcMatch) -> Option<String> {
    let pattern = |part: &Option<StringMatch>| match part {
        None => "[^/]+".to_owned(),
        Some(StringMatch::Exact(text)) => escape_regex(text),
        Some(StringMatch::Regex(pattern)) => format!("(?:{pattern})"),
    };
    match (&rpc.service, &rpc.method) {
        (None, None)
        | (Some(StringMatch::Exact(_)), None)
        | (Some(StringMatch::Exact(_)), Some(StringMatch::Exact(_))) => None,
        (service, method) => Some(format!("/{}/{}", pattern(service), pattern(method))),
    }
}

fn header(name: &str, value: &StringMatch) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string(value))),
        ..Default::default()
    }
}

fn string(value: &StringMatch) -> StringMatcher {
    let pattern = match value {
        StringMatch::Exact(text) => MatchPattern::Exact(text.clone()),
        StringMatch::Regex(pattern) => MatchPattern::SafeRegex(matcher(pattern)),
    };
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

fn matcher(pattern: &str) -> RegexMatcher {
    RegexMatcher { regex: pattern.to_owned(), ..Default::default() }
}

/// The action for a request, before filters change it.
fn action(rule: &HttpRule, http_match: &HttpMatch, targets: &[&WeightedTarget]) -> route::Action {
    // Gateway API: what leads nowhere is answered with 500, and a call with UNAVAILABLE, which is what Envoy makes of 503.
    let (status, not_found) = match http_match.path {
        PathMatch::Rpc(_) => (503, ClusterNotFoundResponseCode::ServiceUnavailable),
        _ => (500, ClusterNotFoundResponseCode::InternalServerError),
    };
    let cluster = match targets {
        targets if targets.iter().all(|target| target.target == Target::Invalid) => {
            return answer(status);
        }
        [WeightedTarget { target: Target::Upstream(backend), filters, .. }]
            if filters.iter().all(filters::is_of_route) =>
        {
            ClusterSpecifier::Cluster(names::cluster(backend))
        }
        targets => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: targets.iter().map(|target| share(target)).collect(),
            ..Default::default()
        }),
    };
    route::Action::Route(RouteAction {
        cluster_specifier: Some(cluster),
        cluster_not_found_response_code: not_found.into(),
        // Envoy's own default of 15 s would end long responses; a route can set a limit.
        timeout: Some(duration(rule.timeouts.request.unwrap_or_default())),
        retry_policy: retry_policy(rule),
        ..Default::default()
    })
}

fn share(target: &WeightedTarget) -> ClusterWeight {
    let mut share = ClusterWeight {
        name: match &target.target {
            Target::Upstream(backend) => names::cluster(backend),
            Target::Invalid => names::NO_CLUSTER.to_owned(),
        },
        weight: Some(UInt32Value { value: target.weight }),
        ..Default::default()
    };
    filters::build_backend(&target.filters, &mut share);
    share
}

/// Failures in which no backend can have processed the request: it was not reached, or it refused the stream.
const UNSEEN: &str = "connect-failure,refused-stream,reset-before-request";

/// Envoy has the timeout of one attempt here too, also where nothing is tried again.
fn retry_policy(rule: &HttpRule) -> Option<RetryPolicy> {
    let per_try = rule.timeouts.backend_request.filter(|timeout| !timeout.is_zero());
    let retry = rule.retry.as_ref().filter(|retry| retry.attempts > 0);
    if per_try.is_none() && retry.is_none() {
        return None;
    }
    let codes = retry.map_or(&[][..], |retry| &retry.codes);
    Some(RetryPolicy {
        retry_on: match retry {
            None => String::new(),
            Some(_) if codes.is_empty() => UNSEEN.to_owned(),
            Some(_) => format!("{UNSEEN},retriable-status-codes"),
        },
        num_retries: Some(UInt32Value { value: retry.map_or(0, |retry| retry.attempts) }),
        retriable_status_codes: codes.iter().map(|code| u32::from(*code)).collect(),
        per_try_timeout: per_try.map(duration),
        retry_back_off: retry
            .and_then(|retry| retry.backoff)
            .map(|base| RetryBackOff { base_interval: Some(duration(base)), ..Default::default() }),
        ..Default::default()
    })
}

pub(crate) fn answer(status: u32) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction { status, ..Default::default() })
}

use super::duration;
use crate::filters;
use crate::ir::{
    HttpMatch, HttpRule, PathMatch, StringMatch, TableKey, Target, Timeouts, WeightedTarget,
};
use heliograph_envoy::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use heliograph_envoy::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use heliograph_envoy::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier,
};
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use heliograph_envoy::envoy::config::route::v3::{
    DirectResponseAction, HeaderMatcher, QueryParameterMatcher, RetryPolicy, Route, RouteAction,
    RouteMatch, WeightedCluster, route,
};
use heliograph_envoy::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use heliograph_envoy::google::protobuf::UInt32Value;

/// Names no cluster: Envoy answers what is sent there with the code for a cluster that is not found, 500.
const NO_CLUSTER: &str = "invalid-backend";

/// One match of a rule as Envoy reads it.
pub(crate) fn route(
    name: String,
    rule: &HttpRule,
    http_match: &HttpMatch,
    table: &TableKey,
) -> Route {
    let mut route = Route {
        name,
        r#match: Some(route_match(http_match)),
        action: Some(action(rule)),
        ..Default::default()
    };
    filters::build(&rule.filters, http_match, table, &mut route);
    route
}

fn route_match(http_match: &HttpMatch) -> RouteMatch {
    let path = match &http_match.path {
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) if prefix.is_empty() => PathSpecifier::Prefix("/".to_owned()),
        PathMatch::Prefix(prefix) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
        PathMatch::Regex(pattern) => PathSpecifier::SafeRegex(regex(pattern)),
    };
    let method = http_match
        .method
        .iter()
        .map(|method| header(":method", &StringMatch::Exact(method.clone())));
    let headers = http_match.headers.iter().map(|(name, value)| header(name, value));
    RouteMatch {
        path_specifier: Some(path),
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
        StringMatch::Regex(pattern) => MatchPattern::SafeRegex(regex(pattern)),
    };
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

fn regex(pattern: &str) -> RegexMatcher {
    RegexMatcher { regex: pattern.to_owned(), ..Default::default() }
}

/// What is done with a request, before filters have their say.
fn action(rule: &HttpRule) -> route::Action {
    let targets: Vec<&WeightedTarget> =
        rule.targets.iter().filter(|target| target.weight > 0).collect();
    let cluster = match targets.as_slice() {
        // Gateway API: a rule that leads nowhere answers 500.
        [] => return internal_error(),
        targets if targets.iter().all(|target| target.target == Target::Invalid) => {
            return internal_error();
        }
        [WeightedTarget { target: Target::Backend(backend), filters, .. }]
            if filters.is_empty() =>
        {
            ClusterSpecifier::Cluster(backend.to_string())
        }
        targets => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: targets.iter().map(|target| share(target)).collect(),
            ..Default::default()
        }),
    };
    route::Action::Route(RouteAction {
        cluster_specifier: Some(cluster),
        cluster_not_found_response_code: ClusterNotFoundResponseCode::InternalServerError.into(),
        // Envoy's own default of 15 s would end long answers; who wants a limit says so.
        timeout: Some(duration(rule.timeouts.request.unwrap_or_default())),
        retry_policy: per_try_timeout(&rule.timeouts),
        ..Default::default()
    })
}

fn share(target: &WeightedTarget) -> ClusterWeight {
    let mut share = ClusterWeight {
        name: match &target.target {
            Target::Backend(backend) => backend.to_string(),
            Target::Invalid => NO_CLUSTER.to_owned(),
        },
        weight: Some(UInt32Value { value: target.weight }),
        ..Default::default()
    };
    filters::build_backend(&target.filters, &mut share);
    share
}

/// Envoy has the timeout of one attempt in the policy for retries; this one retries nothing.
fn per_try_timeout(timeouts: &Timeouts) -> Option<RetryPolicy> {
    let timeout = timeouts.backend_request.filter(|timeout| !timeout.is_zero())?;
    Some(RetryPolicy {
        num_retries: Some(UInt32Value { value: 0 }),
        per_try_timeout: Some(duration(timeout)),
        ..Default::default()
    })
}

fn internal_error() -> route::Action {
    route::Action::DirectResponse(DirectResponseAction { status: 500, ..Default::default() })
}

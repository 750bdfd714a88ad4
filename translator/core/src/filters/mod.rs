//! Filters of routes: one file each, with `accept` (from the object) and `build` (to Envoy).
//!
//! A new filter is a file here, a variant of [`Filter`], and a line in each of the lists below; [`in_connection_manager`] is
//! for those that Envoy has as filters of its own.

mod cors;
mod headers;
mod mirror;
mod path;
mod redirect;
mod rewrite;

pub(crate) use headers::check_name as check_header_name;
pub(crate) use path::check as check_path;

use crate::objects::gateway::{HttpFilter, HttpFilterType};
use crate::routes::Scope;
use heliograph_envoy::any;
use heliograph_envoy::envoy::config::route::v3::{Route, weighted_cluster::ClusterWeight};
use heliograph_envoy::envoy::extensions::filters::http::router::v3::Router;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter as ManagerFilter, http_filter,
};
use heliograph_model::{Filter, HttpMatch, TableKey};
use serde::Serialize;

/// Where filters stand.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Rule {
        matches: &'a [HttpMatch],
    },
    /// On one backend of several.
    Backend {
        matches: &'a [HttpMatch],
    },
}

/// Why a filter cannot be served, as a clause.
type Refusal = String;

/// `scope` is for filters that refer to something: a mirror to its backend. The generated types of filters differ in name
/// alone, of whatever kind of route they are and wherever they stand.
pub(crate) fn accept<F: Serialize>(
    scope: &mut Scope<'_>,
    filters: &[F],
    place: Place<'_>,
) -> Result<Vec<Filter>, Refusal> {
    let filters: Vec<HttpFilter> = filters.iter().map(as_http).collect::<Result<_, _>>()?;
    let accepted: Vec<Filter> =
        filters.iter().map(|filter| accept_one(scope, filter, place)).collect::<Result<_, _>>()?;
    for (index, filter) in accepted.iter().enumerate() {
        let kind = std::mem::discriminant(filter);
        if matches!(filter, Filter::Mirror(_)) {
            continue;
        }
        if accepted[..index].iter().any(|earlier| std::mem::discriminant(earlier) == kind) {
            return Err(format!("filter {:?} is given twice", filters[index].r#type));
        }
    }
    let has = |wanted: fn(&Filter) -> bool| accepted.iter().any(wanted);
    if has(|filter| matches!(filter, Filter::Redirect(_)))
        && has(|filter| matches!(filter, Filter::Rewrite(_)))
    {
        return Err("a redirect and a rewrite exclude each other".to_owned());
    }
    Ok(accepted)
}

fn accept_one(
    scope: &mut Scope<'_>,
    filter: &HttpFilter,
    place: Place<'_>,
) -> Result<Filter, Refusal> {
    match (&filter.r#type, place) {
        (HttpFilterType::RequestHeaderModifier, _) => headers::accept_request(filter),
        (HttpFilterType::ResponseHeaderModifier, _) => headers::accept_response(filter),
        (HttpFilterType::RequestRedirect, Place::Rule { matches }) => {
            redirect::accept(filter, matches)
        }
        (HttpFilterType::UrlRewrite, Place::Rule { matches } | Place::Backend { matches }) => {
            rewrite::accept(filter, matches)
        }
        (HttpFilterType::RequestMirror, _) => mirror::accept(scope, filter),
        (HttpFilterType::Cors, Place::Rule { .. }) => cors::accept(filter),
        (other, Place::Rule { .. }) => Err(format!("filter {other:?} is not supported")),
        (other, Place::Backend { .. }) => {
            Err(format!("filter {other:?} is not supported on a backend"))
        }
    }
}

/// Adds the filters of a rule to its route, whose action stands already.
pub(crate) fn build(
    filters: &[Filter],
    http_match: &HttpMatch,
    table: &TableKey,
    route: &mut Route,
) {
    for filter in filters {
        match filter {
            Filter::RequestHeaders(edits) => headers::build_request(edits, route),
            Filter::ResponseHeaders(edits) => headers::build_response(edits, route),
            Filter::Redirect(redirect) => redirect::build(redirect, http_match, table, route),
            Filter::Rewrite(rewrite) => rewrite::build(rewrite, http_match, route),
            Filter::Mirror(mirror) => mirror::build(mirror, route),
            Filter::Cors(cors) => cors::build(cors, route),
        }
    }
}

/// The regular expressions that Envoy is given for a filter, whatever the match.
pub(crate) fn patterns(filter: &Filter) -> impl Iterator<Item = &str> {
    let cors = match filter {
        Filter::Cors(cors) => Some(cors),
        Filter::RequestHeaders(_)
        | Filter::ResponseHeaders(_)
        | Filter::Redirect(_)
        | Filter::Rewrite(_)
        | Filter::Mirror(_) => None,
    };
    cors.into_iter().flat_map(cors::patterns)
}

/// The regular expression that Envoy is given for a filter to change the path of what matches.
pub(crate) fn path_pattern(filter: &Filter, http_match: &HttpMatch) -> Option<String> {
    let rewrite = match filter {
        Filter::Redirect(redirect) => redirect.path.as_ref()?,
        Filter::Rewrite(rewrite) => rewrite.path.as_ref()?,
        Filter::RequestHeaders(_)
        | Filter::ResponseHeaders(_)
        | Filter::Mirror(_)
        | Filter::Cors(_) => return None,
    };
    path::pattern(rewrite, http_match)
}

/// Whether Envoy has this filter for a route only, and not for one backend of several.
pub(crate) fn is_of_route(filter: &Filter) -> bool {
    match filter {
        Filter::Rewrite(_) | Filter::Mirror(_) => true,
        Filter::RequestHeaders(_) | Filter::ResponseHeaders(_) => false,
        // Refused by `accept` on a backend.
        Filter::Redirect(_) | Filter::Cors(_) => false,
    }
}

/// The filters of every connection manager, in the order in which a request passes them. Those that routes switch on are
/// here for all: to add one for its first use would make Envoy drain the listener's connections.
pub(crate) fn in_connection_manager() -> Vec<ManagerFilter> {
    // Must be the last.
    let router = ManagerFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
        ..Default::default()
    };
    vec![cors::in_manager(), router]
}

/// Adds the filters of one backend to its share.
pub(crate) fn build_backend(filters: &[Filter], share: &mut ClusterWeight) {
    for filter in filters {
        match filter {
            Filter::RequestHeaders(edits) => headers::build_request(edits, share),
            Filter::ResponseHeaders(edits) => headers::build_response(edits, share),
            // A route of its own has them, or `accept` refused them.
            Filter::Redirect(_) | Filter::Rewrite(_) | Filter::Mirror(_) | Filter::Cors(_) => {}
        }
    }
}

fn as_http(filter: &impl Serialize) -> Result<HttpFilter, Refusal> {
    serde_json::to_value(filter)
        .and_then(serde_json::from_value)
        .map_err(|error| format!("filter: {error}"))
}

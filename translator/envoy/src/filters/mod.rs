//! Filters of routes as Envoy has them, one file each.
//!
//! A new filter is a file here and a line in each of the lists below; [`in_connection_manager`] has those that are HTTP
//! filters in Envoy.

mod cors;
mod headers;
mod mirror;
mod path;
mod redirect;
mod rewrite;

use heliograph_envoy::any;
use heliograph_envoy::envoy::config::route::v3::{Route, weighted_cluster::ClusterWeight};
use heliograph_envoy::envoy::extensions::filters::http::router::v3::Router;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter as ManagerFilter, http_filter,
};
use heliograph_model::{Filter, HttpMatch, TableKey};

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
        // The front end refuses them on a backend.
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
            // A route of its own has them, or the front end refuses them.
            Filter::Redirect(_) | Filter::Rewrite(_) | Filter::Mirror(_) | Filter::Cors(_) => {}
        }
    }
}

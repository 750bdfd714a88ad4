//! Filters of routes: one file each, with `accept` (from the object) and `build` (to Envoy).
//!
//! A new filter is a file here, a variant of [`ir::Filter`] and a line in each of the lists below.

mod headers;
mod path;
mod redirect;
mod rewrite;

pub(crate) use headers::check_name as check_header_name;
pub(crate) use path::check as check_path;

use crate::ir::{Filter, HttpMatch, TableKey};
use crate::objects::gateway::{HttpFilter, HttpFilterType};
use heliograph_envoy::envoy::config::route::v3::{Route, weighted_cluster::ClusterWeight};

/// Where filters stand.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Rule {
        matches: &'a [HttpMatch],
    },
    /// On one backend of several, where Envoy can do less.
    Backend,
}

/// Why a filter cannot be served, as a clause.
type Refusal = String;

pub(crate) fn accept(filters: &[HttpFilter], place: Place<'_>) -> Result<Vec<Filter>, Refusal> {
    let accepted: Vec<Filter> =
        filters.iter().map(|filter| accept_one(filter, place)).collect::<Result<_, _>>()?;
    for (index, filter) in accepted.iter().enumerate() {
        let kind = std::mem::discriminant(filter);
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

fn accept_one(filter: &HttpFilter, place: Place<'_>) -> Result<Filter, Refusal> {
    match (&filter.r#type, place) {
        (HttpFilterType::RequestHeaderModifier, _) => headers::accept_request(filter),
        (HttpFilterType::ResponseHeaderModifier, _) => headers::accept_response(filter),
        (HttpFilterType::RequestRedirect, Place::Rule { matches }) => {
            redirect::accept(filter, matches)
        }
        (HttpFilterType::UrlRewrite, Place::Rule { matches }) => rewrite::accept(filter, matches),
        (other, Place::Rule { .. }) => Err(format!("filter {other:?} is not supported")),
        (other, Place::Backend) => Err(format!("filter {other:?} is not supported on a backend")),
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
        }
    }
}

/// Adds the filters of one backend to its share.
pub(crate) fn build_backend(filters: &[Filter], share: &mut ClusterWeight) {
    for filter in filters {
        match filter {
            Filter::RequestHeaders(edits) => headers::build_request(edits, share),
            Filter::ResponseHeaders(edits) => headers::build_response(edits, share),
            // Refused by `accept`.
            Filter::Redirect(_) | Filter::Rewrite(_) => {}
        }
    }
}

/// The generated types of a filter on a rule and of one on a backend differ in name alone.
pub(crate) fn of_backend(filter: &impl serde::Serialize) -> Result<HttpFilter, Refusal> {
    serde_json::to_value(filter)
        .and_then(serde_json::from_value)
        .map_err(|error| format!("filter: {error}"))
}

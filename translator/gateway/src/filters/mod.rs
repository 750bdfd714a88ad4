//! Filters of routes, as their objects have them: one file each. A new filter is a variant of [`Filter`], a file here with a
//! line in [`accept`], and a file in the dialect.

mod cors;
mod headers;
mod mirror;
mod path;
mod redirect;
mod rewrite;

pub(crate) use headers::check_name as check_header_name;
pub(crate) use path::check as check_path;

use crate::objects::gateway::{HttpFilter, HttpFilterType};
use crate::routes::RouteScope;
use heliograph_model::{Filter, HttpMatch};
use serde::Serialize;

/// Where a filter is: on a rule or on a backend.
#[derive(Clone, Copy)]
pub(crate) enum FilterPosition<'a> {
    Rule { matches: &'a [HttpMatch] },
    Backend { matches: &'a [HttpMatch] },
}

/// Why a filter cannot be served, as a clause.
type Refusal = String;

/// `scope` is for filters that refer to something: a mirror to its backend. The generated types of filters differ in name
/// alone, of whatever kind of route they are and wherever they stand.
pub(crate) fn accept<F: Serialize>(
    scope: &mut RouteScope<'_>,
    filters: &[F],
    position: FilterPosition<'_>,
) -> Result<Vec<Filter>, Refusal> {
    let filters: Vec<HttpFilter> = filters.iter().map(as_http).collect::<Result<_, _>>()?;
    let accepted: Vec<Filter> = filters
        .iter()
        .map(|filter| accept_one(scope, filter, position))
        .collect::<Result<_, _>>()?;
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
    scope: &mut RouteScope<'_>,
    filter: &HttpFilter,
    position: FilterPosition<'_>,
) -> Result<Filter, Refusal> {
    match (&filter.r#type, position) {
        (HttpFilterType::RequestHeaderModifier, _) => headers::accept_request(filter),
        (HttpFilterType::ResponseHeaderModifier, _) => headers::accept_response(filter),
        (HttpFilterType::RequestRedirect, FilterPosition::Rule { matches }) => {
            redirect::accept(filter, matches)
        }
        (
            HttpFilterType::UrlRewrite,
            FilterPosition::Rule { matches } | FilterPosition::Backend { matches },
        ) => rewrite::accept(filter, matches),
        (HttpFilterType::RequestMirror, _) => mirror::accept(scope, filter),
        (HttpFilterType::Cors, FilterPosition::Rule { .. }) => cors::accept(filter),
        (other, FilterPosition::Rule { .. }) => Err(format!("filter {other:?} is not supported")),
        (other, FilterPosition::Backend { .. }) => {
            Err(format!("filter {other:?} is not supported on a backend"))
        }
    }
}

fn as_http(filter: &impl Serialize) -> Result<HttpFilter, Refusal> {
    serde_json::to_value(filter)
        .and_then(serde_json::from_value)
        .map_err(|error| format!("filter: {error}"))
}

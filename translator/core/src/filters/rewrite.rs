use super::{Refusal, path, redirect};
use crate::objects::gateway::{HttpFilter, RewritePathType, UrlRewrite};
use heliograph_envoy::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use heliograph_envoy::envoy::config::route::v3::{Route, route};
use heliograph_model::{Filter, HttpMatch, Rewrite};

pub(super) fn accept(filter: &HttpFilter, matches: &[HttpMatch]) -> Result<Filter, Refusal> {
    let UrlRewrite { hostname, path } =
        filter.url_rewrite.as_ref().ok_or("urlRewrite is missing")?;
    let path = match path {
        None => None,
        Some(path) => Some(match path.r#type {
            RewritePathType::ReplaceFullPath => path::accept_full(path.replace_full_path.as_ref())?,
            RewritePathType::ReplacePrefixMatch => {
                path::accept_prefix(path.replace_prefix_match.as_ref(), matches)?
            }
        }),
    };
    Ok(Filter::Rewrite(Rewrite { hostname: redirect::precise(hostname.as_deref())?, path }))
}

pub(super) fn build(rewrite: &Rewrite, http_match: &HttpMatch, route: &mut Route) {
    // A route that answers by itself has nothing to rewrite.
    let Some(route::Action::Route(action)) = &mut route.action else { return };
    if let Some(hostname) = &rewrite.hostname {
        action.host_rewrite_specifier =
            Some(HostRewriteSpecifier::HostRewriteLiteral(hostname.clone()));
    }
    match rewrite.path.as_ref().and_then(|rewrite| path::change(rewrite, http_match)) {
        None => {}
        // Envoy takes one of the two and rejects both with the whole table. The rule may have set the other: what its backend
        // asks for comes later, and counts.
        Some(path::Change::Prefix(prefix)) => {
            action.prefix_rewrite = prefix;
            action.regex_rewrite = None;
        }
        Some(path::Change::Regex(regex)) => {
            action.regex_rewrite = Some(regex);
            action.prefix_rewrite.clear();
        }
    }
}

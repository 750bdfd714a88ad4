use super::path;
use heliograph_envoy::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use heliograph_envoy::envoy::config::route::v3::{Route, route};
use heliograph_model::{HttpMatch, Rewrite};

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

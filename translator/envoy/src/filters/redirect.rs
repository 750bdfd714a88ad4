use super::path;
use heliograph_envoy::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use heliograph_envoy::envoy::config::route::v3::{RedirectAction, Route, route};
use heliograph_model::{HttpMatch, Redirect, Scheme, TableKey};

pub(super) fn build(
    redirect: &Redirect,
    http_match: &HttpMatch,
    table: &TableKey,
    route: &mut Route,
) {
    let path = redirect.path.as_ref().and_then(|rewrite| path::change(rewrite, http_match));
    route.action = Some(route::Action::Redirect(RedirectAction {
        host_redirect: redirect.hostname.clone().unwrap_or_default(),
        port_redirect: port(redirect, table).map_or(0, u32::from),
        response_code: match redirect.status {
            301 => RedirectResponseCode::MovedPermanently,
            303 => RedirectResponseCode::SeeOther,
            307 => RedirectResponseCode::TemporaryRedirect,
            308 => RedirectResponseCode::PermanentRedirect,
            _ => RedirectResponseCode::Found,
        }
        .into(),
        scheme_rewrite_specifier: redirect.scheme.map(|scheme| {
            SchemeRewriteSpecifier::SchemeRedirect(
                match scheme {
                    Scheme::Http => "http",
                    Scheme::Https => "https",
                }
                .to_owned(),
            )
        }),
        path_rewrite_specifier: path.map(|change| match change {
            path::Change::Prefix(prefix) => PathRewriteSpecifier::PrefixRewrite(prefix),
            path::Change::Regex(regex) => PathRewriteSpecifier::RegexRewrite(regex),
        }),
        ..Default::default()
    }));
}

/// Gateway API: the port of the filter, else that of the filter's scheme, else the listener's; and the location omits it
/// where the scheme implies it. Envoy writes the port that is configured, and without one repeats that of the request's
/// Host, so it is configured unless it is implied and the Host has none.
fn port(redirect: &Redirect, table: &TableKey) -> Option<u16> {
    let arrived = if table.listener.is_some() { Scheme::Https } else { Scheme::Http };
    let port = redirect.port.unwrap_or_else(|| redirect.scheme.map_or(table.port, standard_port));
    let implied = port == standard_port(redirect.scheme.unwrap_or(arrived));
    let host_has_no_port = redirect.hostname.is_some() || table.port == standard_port(arrived);
    (!(implied && host_has_no_port)).then_some(port)
}

fn standard_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

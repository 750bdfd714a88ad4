use super::{Refusal, path};
use crate::objects::gateway::{HttpFilter, RedirectPathType, RedirectScheme, RequestRedirect};
use heliograph_model::{Filter, Hostname, HttpMatch, Redirect, Scheme};

pub(super) fn accept(filter: &HttpFilter, matches: &[HttpMatch]) -> Result<Filter, Refusal> {
    let redirect = filter.request_redirect.as_ref().ok_or("requestRedirect is missing")?;
    let RequestRedirect { hostname, path, port, scheme, status_code } = redirect;
    let path = match path {
        None => None,
        Some(path) => Some(match path.r#type {
            RedirectPathType::ReplaceFullPath => {
                path::accept_full(path.replace_full_path.as_ref())?
            }
            RedirectPathType::ReplacePrefixMatch => {
                path::accept_prefix(path.replace_prefix_match.as_ref(), matches)?
            }
        }),
    };
    let port = match port {
        None => None,
        Some(port) => Some(u16::try_from(*port).map_err(|_| format!("{port} is not a port"))?),
    };
    let status = match status_code.unwrap_or(302) {
        status @ (301 | 302 | 303 | 307 | 308) => status as u16,
        other => return Err(format!("a redirect cannot have status {other}")),
    };
    let scheme = scheme.as_ref().map(|scheme| match scheme {
        RedirectScheme::Http => Scheme::Http,
        RedirectScheme::Https => Scheme::Https,
    });
    Ok(Filter::Redirect(Redirect {
        scheme,
        hostname: precise(hostname.as_deref())?,
        port,
        path,
        status,
    }))
}

/// A hostname that can stand in a request.
pub(super) fn precise(hostname: Option<&str>) -> Result<Option<String>, Refusal> {
    match Hostname::parse(hostname).map_err(|error| error.to_string())? {
        Hostname::Any => Ok(None),
        Hostname::Exact(name) => Ok(Some(name.to_string())),
        Hostname::Below(name) => Err(format!("*.{name} is not one host")),
    }
}

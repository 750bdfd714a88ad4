use super::{Refusal, path, redirect};
use crate::objects::gateway::{HttpFilter, RewritePathType, UrlRewrite};
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

use super::Refusal;
use crate::objects::gateway::{self, HttpFilter};
use heliograph_model::{Cors, Filter, StringMatch, escape_regex};

/// The API's default, in seconds.
const MAX_AGE: i32 = 5;

pub(super) fn accept(filter: &HttpFilter) -> Result<Filter, Refusal> {
    let cors = filter.cors.as_ref().ok_or("cors is missing")?;
    let gateway::Cors {
        allow_credentials,
        allow_headers,
        allow_methods,
        allow_origins,
        expose_headers,
        max_age,
    } = cors;
    let names = |names: &Option<Vec<String>>| -> Result<Vec<String>, Refusal> {
        let names = names.iter().flatten();
        names.map(|name| super::check_header_name(name).map(|()| name.clone())).collect()
    };
    let max_age = max_age.unwrap_or(MAX_AGE);
    Ok(Filter::Cors(Cors {
        origins: allow_origins
            .iter()
            .flatten()
            .map(|origin| accept_origin(origin))
            .collect::<Result<_, _>>()?,
        // Methods are made of the same characters as names of headers.
        methods: names(allow_methods)?,
        headers: names(allow_headers)?,
        exposed_headers: names(expose_headers)?,
        credentials: allow_credentials.unwrap_or_default(),
        max_age: u32::try_from(max_age).map_err(|_| format!("cors: maxAge {max_age} is no age"))?,
    }))
}

/// `*`, or `https://example.com`, where a `*` in the host stands for any number of labels.
fn accept_origin(origin: &str) -> Result<StringMatch, Refusal> {
    let plain = |byte: u8| byte > b' ' && byte != 0x7f;
    if origin.is_empty() || !origin.bytes().all(plain) {
        return Err(format!("cors: {origin:?} is not an origin"));
    }
    if origin == "*" {
        return Ok(StringMatch::Regex(".*".to_owned()));
    }
    if !origin.contains('*') {
        return Ok(StringMatch::Exact(origin.to_owned()));
    }
    let parts: Vec<String> = origin.split('*').map(escape_regex).collect();
    Ok(StringMatch::Regex(parts.join("[^:/]*")))
}

use super::Refusal;
use crate::objects::gateway::{self, HttpFilter};
use crate::regex;
use heliograph_envoy::any;
use heliograph_envoy::envoy::config::route::v3::Route;
use heliograph_envoy::envoy::extensions::filters::http::cors::v3::{Cors as InManager, CorsPolicy};
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter as ManagerFilter, http_filter,
};
use heliograph_envoy::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use heliograph_envoy::google::protobuf::BoolValue;
use heliograph_model::{Cors, Filter, StringMatch};

const NAME: &str = "envoy.filters.http.cors";

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

/// The regular expressions that Envoy is given.
pub(super) fn patterns(cors: &Cors) -> impl Iterator<Item = &str> {
    cors.origins.iter().filter_map(|origin| match origin {
        StringMatch::Regex(pattern) => Some(pattern.as_str()),
        StringMatch::Exact(_) => None,
    })
}

pub(super) fn build(cors: &Cors, route: &mut Route) {
    let origin = |origin: &StringMatch| {
        let pattern = match origin {
            StringMatch::Exact(origin) => MatchPattern::Exact(origin.clone()),
            StringMatch::Regex(pattern) => MatchPattern::SafeRegex(RegexMatcher {
                regex: pattern.clone(),
                ..Default::default()
            }),
        };
        StringMatcher { match_pattern: Some(pattern), ..Default::default() }
    };
    let policy = CorsPolicy {
        allow_origin_string_match: cors.origins.iter().map(origin).collect(),
        allow_methods: cors.methods.join(", "),
        allow_headers: cors.headers.join(", "),
        expose_headers: cors.exposed_headers.join(", "),
        max_age: cors.max_age.to_string(),
        allow_credentials: Some(BoolValue { value: cors.credentials }),
        // What other origins ask is answered here too, without a word that allows it.
        forward_not_matching_preflights: Some(BoolValue { value: false }),
        ..Default::default()
    };
    route.typed_per_filter_config.insert(NAME.to_owned(), any(&policy));
}

pub(super) fn in_manager() -> ManagerFilter {
    ManagerFilter {
        name: NAME.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(&InManager::default()))),
        ..Default::default()
    }
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
    let parts: Vec<String> = origin.split('*').map(regex::escape).collect();
    Ok(StringMatch::Regex(parts.join("[^:/]*")))
}

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
use heliograph_model::{Cors, StringMatch};

const NAME: &str = "envoy.filters.http.cors";

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

//! From the intermediate representation to Envoy's protobuf: one file per resource type.

mod cluster;
mod endpoints;
mod listener;
pub(crate) mod names;
mod route;
mod secret;
mod table;
mod tls;

pub(crate) use cluster::cluster;
pub(crate) use endpoints::endpoints;
pub(crate) use listener::listener;
pub(crate) use route::{Pattern, match_size, misdirected, patterns, routes};
pub(crate) use secret::secret;
pub(crate) use table::table;

use heliograph_envoy::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use heliograph_envoy::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, RuntimeFractionalPercent,
};
use heliograph_envoy::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use heliograph_envoy::google::protobuf;
use std::time::Duration;

/// Everything comes over the one stream.
fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}

/// What shares of requests are counted in.
pub(crate) const MILLION: u64 = 1_000_000;

/// So many of a million requests.
pub(crate) fn per_million(numerator: u32) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator,
            denominator: DenominatorType::Million.into(),
        }),
        ..Default::default()
    }
}

fn duration(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}

//! Model values to Envoy's resources, as pure functions: one file for each resource type, one for each filter of routes,
//! and one for each section of policies.
//!
//! It reads the model and nothing else: no object of Kubernetes, no Secret and no ConfigMap is looked up while a message is
//! built. [`names`] has the names of resources, and [`rejection`] reads Envoy's error texts.

mod cluster;
mod compiled;
mod endpoints;
mod filters;
mod listener;
pub mod names;
mod outline;
mod overlay;
mod policy;
pub mod rejection;
mod route;
mod secret;
mod table;
mod tcp_proxy;
mod tls;
mod virtual_host;

pub use cluster::cluster;
pub use compiled::{CompiledMatch, CompiledRule, Keep, compile, size};
pub use endpoints::endpoints;
pub use listener::listener;
pub use outline::{MissingMatches, MissingPaths};
pub use overlay::{Patch, variant};
pub use route::{Pattern, patterns};
pub use secret::secret;
pub use table::table;
pub use virtual_host::{closed, misdirected, virtual_host};

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

/// The denominator of shares of requests.
const MILLION: u64 = 1_000_000;

/// So many of a million requests.
fn per_million(numerator: u32) -> RuntimeFractionalPercent {
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

use super::Group;
use heliograph_envoy::envoy::config::core::v3::node::UserAgentVersionType;
use heliograph_envoy::envoy::config::core::v3::{BuildVersion, Extension, Locality, Node};
use heliograph_envoy::envoy::r#type::v3::SemanticVersion;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_envoy::google::protobuf::{Struct, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a client says of itself when its stream begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeSize {
    /// Who and where it is: about 100 bytes.
    #[default]
    Bare,
    /// With a list of extensions as long as that of an Envoy: about 61 KB.
    Real,
}

/// About as many as Envoy 1.40 has, together as long.
const EXTENSIONS: usize = 900;
const CATEGORIES: [&str; 8] = [
    "filters.http",
    "filters.network",
    "transport_sockets.upstream",
    "transport_sockets.downstream",
    "access_loggers",
    "load_balancing_policies",
    "resource_monitors",
    "matching.input",
];

/// The node of the clients of a group that have the values of this turn, without an id.
pub(super) fn build(group: &Group, turn: usize, fleet: &str) -> Node {
    let mut turn = turn;
    let region = group.region.pick(&mut turn).map(str::to_owned);
    let zone = group.zone.pick(&mut turn).map(str::to_owned);
    let version = group.version.pick(&mut turn).and_then(build_version);
    let labels = group.labels.iter().filter_map(|(name, values)| {
        let value = values.pick(&mut turn)?;
        Some((name.clone(), string(value)))
    });
    let labels: BTreeMap<_, _> = labels.collect();
    let metadata = (!labels.is_empty()).then(|| Struct {
        fields: [("labels".to_owned(), value(Kind::StructValue(Struct { fields: labels })))].into(),
    });
    let locality = (region.is_some() || zone.is_some()).then(|| Locality {
        region: region.unwrap_or_default(),
        zone: zone.unwrap_or_default(),
        ..Default::default()
    });
    let extensions = match group.node {
        NodeSize::Bare => 0,
        NodeSize::Real => EXTENSIONS,
    };
    Node {
        cluster: fleet.to_owned(),
        metadata,
        locality,
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: version.map(UserAgentVersionType::UserAgentBuildVersion),
        extensions: (0..extensions).map(extension).collect(),
        ..Default::default()
    }
}

/// `MAJOR.MINOR.PATCH`.
pub(super) fn build_version(text: &str) -> Option<BuildVersion> {
    let mut numbers = text.splitn(3, '.').map(|number| number.parse().ok());
    let (major_number, minor_number, patch) =
        (numbers.next()??, numbers.next()??, numbers.next()??);
    let version = SemanticVersion { major_number, minor_number, patch };
    Some(BuildVersion { version: Some(version), ..Default::default() })
}

fn extension(at: usize) -> Extension {
    let category = CATEGORIES.iter().cycle().nth(at).copied().unwrap_or_default();
    Extension {
        name: format!("{category}.extension_{at:03}"),
        category: format!("envoy.{category}"),
        ..Default::default()
    }
}

fn string(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

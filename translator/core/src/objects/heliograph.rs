//! The kinds of our own, group `heliograph.dev`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What some of a Gateway's proxies see otherwise than the others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ViewPolicy {
    pub metadata: ObjectMeta,
    pub spec: ViewPolicySpec,
    #[serde(default)]
    pub status: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewPolicySpec {
    pub target_ref: TargetRef,
    /// Which proxies; all of them without it.
    #[serde(default)]
    pub clients: Clients,
    pub rules: Vec<ViewRule>,
}

/// A Gateway of the same namespace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TargetRef {
    pub group: String,
    pub kind: String,
    pub name: String,
}

/// All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Clients {
    pub namespaces: Vec<String>,
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<LabelSelectorRequirement>,
    pub envoy: VersionRange,
}

/// Both ends belong to it. `1.31` stands for every `1.31.x`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VersionRange {
    pub min: Option<String>,
    pub max: Option<String>,
}

/// One of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ViewRule {
    pub prefer: Option<Prefer>,
    pub only: Option<Only>,
    pub overlay: Option<Overlay>,
}

/// Endpoints that have more of these labels in common with the proxy are used before others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Prefer {
    /// The widest first.
    pub labels: Vec<String>,
}

/// Nobody else sees these listeners, nor what is there for them alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Only {
    pub listeners: Vec<String>,
}

/// A resource of Envoy's, by its type and name, is another one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    pub r#type: String,
    pub name: String,
    #[serde(default)]
    pub merge_patch: Option<serde_json::Value>,
    #[serde(default)]
    pub json_patch: Option<json_patch::Patch>,
}

/// What is known of a proxy. Its name is the proxy's node id, its labels are the proxy's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Proxy {
    pub metadata: ObjectMeta,
    pub spec: ProxySpec,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    pub target_ref: TargetRef,
}

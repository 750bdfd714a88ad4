//! The kinds of our own, group `heliograph.dev`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What some of a Gateway's proxies see otherwise than the others.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "heliograph.dev",
    version = "v1alpha1",
    kind = "ViewPolicy",
    namespaced,
    status = "Said",
    derive = "PartialEq",
    doc = "What some of a Gateway's proxies see otherwise than the others."
)]
#[serde(rename_all = "camelCase")]
pub struct ViewPolicySpec {
    pub target_ref: TargetRef,
    /// Which proxies; all of them without it.
    #[serde(default)]
    pub clients: Clients,
    pub rules: Vec<ViewRule>,
}

/// A Gateway of the same namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRef {
    pub group: String,
    pub kind: String,
    pub name: String,
}

/// All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clients {
    pub namespaces: Vec<String>,
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<LabelSelectorRequirement>,
    pub envoy: VersionRange,
}

/// Both ends belong to it. `1.31` stands for every `1.31.x`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VersionRange {
    pub min: Option<String>,
    pub max: Option<String>,
}

/// One of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ViewRule {
    pub prefer: Option<Prefer>,
    pub only: Option<Only>,
    pub overlay: Option<Overlay>,
}

/// Endpoints that have more of these labels in common with the proxy are used before others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prefer {
    /// The widest first.
    pub labels: Vec<String>,
}

/// Nobody else sees these listeners, nor what is there for them alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Only {
    pub listeners: Vec<String>,
}

/// A resource of Envoy's, by its type and name, is another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    pub r#type: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub merge_patch: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub json_patch: Option<json_patch::Patch>,
}

/// What was written back about an object. It is for others to read: what it holds must not keep the object from being
/// read here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Said(pub serde_json::Value);

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

impl JsonSchema for Said {
    fn schema_name() -> Cow<'static, str> {
        "Said".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
        json_schema!({
            "type": "object",
            "properties": {
                "conditions": {
                    "type": "array",
                    "items": Condition::json_schema(generator),
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}

/// The schema of an object that is not looked into.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": any_object(generator) })
}

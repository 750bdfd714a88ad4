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
    status = "OpaqueStatus",
    derive = "PartialEq",
    doc = "What some of a Gateway's proxies see otherwise than the others."
)]
#[serde(rename_all = "camelCase")]
pub struct ViewPolicySpec {
    /// The Gateway whose proxies it is for, in the same namespace; or the GatewayClass whose Gateways share proxies in this
    /// namespace.
    pub target_ref: TargetRef,
    /// Which of its proxies; all of them without it. All that is given must hold.
    #[serde(default)]
    pub clients: Clients,
    /// What these proxies see otherwise. Each rule is one of `prefer`, `only` and `overlay`.
    pub rules: Vec<ViewRule>,
}

/// A Gateway of the same namespace, or a GatewayClass whose Gateways share their proxies there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRef {
    /// `gateway.networking.k8s.io`; nothing else is accepted.
    pub group: String,
    /// `Gateway` or `GatewayClass`; nothing else is accepted.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clients {
    /// Proxies of these namespaces. With `only`, those whose authenticated identity is of one of them.
    pub namespaces: Vec<String>,
    /// Proxies with all of these labels.
    pub match_labels: BTreeMap<String, String>,
    /// Proxies whose labels are so, as in any selector of Kubernetes.
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// Proxies of these versions of Envoy, both ends included. One that does not say its version is within no bound.
    pub envoy: VersionRange,
}

/// Both ends belong to it. `1.31` stands for every `1.31.x`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VersionRange {
    /// The oldest version, such as `1.31` or `1.31.2`.
    pub min: Option<String>,
    /// The newest version. `1.31` stands for every `1.31.x`.
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
    /// Keys of labels, the widest first; one to eight of them.
    pub labels: Vec<String>,
}

/// Nobody else sees these listeners, nor what is there for them alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Only {
    /// Names of listeners of the Gateway, at least one. Of those that share a port, all or none.
    pub listeners: Vec<String>,
}

/// A resource of Envoy's, by its type and name, is another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    /// `Cluster`, `Endpoints`, `Listener` or `Route`.
    pub r#type: String,
    /// The name of the resource, as `helio translate` prints it.
    pub name: String,
    /// A merge patch (RFC 7396) of the resource. Either this or `jsonPatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub merge_patch: Option<serde_json::Value>,
    /// A JSON patch (RFC 6902) of the resource, operation by operation. Either this or `mergePatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub json_patch: Option<json_patch::Patch>,
}

/// The status of an object as it was read. The translator does not interpret it, so that no content of a status keeps the object
/// from being decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpaqueStatus(pub serde_json::Value);

/// What is known of a proxy. Its name is the proxy's node id, its labels are the proxy's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Proxy {
    pub metadata: ObjectMeta,
    pub spec: ProxySpec,
}

/// Whose proxy it is.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    /// The Gateway that it is a proxy of. It is in the same namespace.
    pub target_ref: TargetRef,
}

impl JsonSchema for OpaqueStatus {
    fn schema_name() -> Cow<'static, str> {
        "OpaqueStatus".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
        json_schema!({
            "type": "object",
            "description": "What the translator says of it.",
            "properties": {
                "conditions": {
                    "type": "array",
                    "description": "Whether it holds, and what is wrong with it.",
                    "items": Condition::json_schema(generator),
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
                "matches": {
                    "type": "object",
                    "description": "The proxies that it is for, of those that are listed.",
                    "properties": {
                        "count": { "type": "integer", "description": "How many they are." },
                        "proxies": {
                            "type": "array",
                            "description": "The node ids of the first ten.",
                            "items": { "type": "string" },
                        },
                    },
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

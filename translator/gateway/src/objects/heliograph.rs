//! The kinds of our own, group `heliograph.dev`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Configuration that differs for some of a Gateway's proxies.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "heliograph.dev",
    version = "v1alpha1",
    kind = "ViewPolicy",
    namespaced,
    status = "OpaqueStatus",
    derive = "PartialEq",
    doc = "Configuration that differs for some of a Gateway's proxies."
)]
#[serde(rename_all = "camelCase")]
pub struct ViewPolicySpec {
    /// The Gateway whose proxies the policy applies to, in the same namespace; or the GatewayClass whose Gateways share proxies
    /// in this namespace.
    pub target_ref: TargetRef,
    /// Selects proxies of the target. A proxy must meet every condition that is set. Default: all proxies.
    #[serde(default)]
    pub clients: Clients,
    /// What differs for these proxies. Each rule has exactly one of `prefer`, `only` and `overlay`.
    pub rules: Vec<ViewRule>,
}

/// A Gateway in the same namespace, or a GatewayClass whose Gateways share their proxies in that namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRef {
    /// Must be `gateway.networking.k8s.io`.
    pub group: String,
    /// `Gateway` or `GatewayClass`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Selects proxies of the target. A proxy must meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clients {
    /// Proxies in one of these namespaces. In a policy with `only`, the namespace is that of the proxy's authenticated identity.
    pub namespaces: Vec<String>,
    /// Proxies that have all of these labels.
    pub match_labels: BTreeMap<String, String>,
    /// Proxies whose labels meet these expressions, as in every label selector of Kubernetes.
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// Proxies with a version of Envoy in this range, including both bounds. A proxy that does not report its version is not
    /// selected.
    pub envoy: VersionRange,
}

/// A range of versions, including both bounds. `1.31` stands for every `1.31.x`.
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

/// Proxies use endpoints that have more of these labels in common with them before other endpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prefer {
    /// One to eight label keys, the one with the widest scope first.
    pub labels: Vec<String>,
}

/// Only these proxies receive these listeners and the resources that no other listener uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Only {
    /// Names of listeners of the Gateway, at least one. Of listeners that share a port, name all or none.
    pub listeners: Vec<String>,
}

/// Replaces an Envoy resource, given by type and name, with a patched one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    /// `Cluster`, `Endpoints`, `Listener` or `Route`.
    pub r#type: String,
    /// The name of the resource, as `helio translate` prints it.
    pub name: String,
    /// A merge patch (RFC 7396) of the resource. Set this or `jsonPatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub merge_patch: Option<serde_json::Value>,
    /// A list of JSON patch operations (RFC 6902) on the resource. Set this or `mergePatch`.
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

/// The fleet that the proxy belongs to.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    /// The Gateway that the proxy belongs to, in the same namespace.
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
            "description": "What the translator reports about the policy.",
            "properties": {
                "conditions": {
                    "type": "array",
                    "description": "Whether the policy is in force, and what is wrong with it.",
                    "items": Condition::json_schema(generator),
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
                "matches": {
                    "type": "object",
                    "description": "The proxies in the inventory that the policy selects.",
                    "properties": {
                        "count": { "type": "integer", "description": "The number of these proxies." },
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

//! How the Envoys of a Gateway are run.

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the Envoys of a Gateway are run. A Gateway names one with infrastructure.parametersRef, a GatewayClass with
/// parametersRef; where both do, the Gateway's counts, field by field.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "heliograph.dev",
    version = "v1alpha1",
    kind = "ProxyConfig",
    namespaced,
    derive = "PartialEq",
    doc = "How the Envoys of a Gateway are run."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfigSpec {
    /// Nothing is made for the Gateway: its Envoys are run by somebody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_managed: Option<bool>,
    /// What runs the Envoys, a Deployment unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Workload>,
    /// How many Envoys, one unless said. It says nothing for a DaemonSet, nor beside `hpa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The image of Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Names of Secrets of the Gateway's namespace that the image is pulled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secrets: Option<Vec<String>>,
    /// What the container of Envoy asks for, and may have at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// How much Envoy logs, `warning` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
    /// How many threads serve; the processors that Envoy may use, unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u16>,
    /// Laid over the bootstrap: of objects each field, lists one after the other, anything else replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::heliograph::any_object")]
    pub bootstrap: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainConfig>,
    /// With it, a HorizontalPodAutoscaler says how many Envoys there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<HpaConfig>,
    /// With it, there is a PodDisruptionBudget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Workload {
    #[default]
    Deployment,
    DaemonSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    #[default]
    Warning,
    Error,
    Critical,
}

/// The Service in front of the Envoys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceConfig {
    /// `LoadBalancer` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<ServiceType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    #[default]
    LoadBalancer,
    NodePort,
    ClusterIP,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficPolicy {
    Cluster,
    Local,
}

/// What an Envoy does before it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainConfig {
    /// The longest that it waits for its connections to end, 60 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub seconds: Option<i64>,
    /// Whether the image has `bash`, as Envoy's own has, and its distroless one has not. Without it, Envoy cannot be
    /// told to send its clients elsewhere, and only waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaConfig {
    /// One unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,
    /// Ten unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,
    /// In percent of what the container asks for, 70 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cpu_utilization: Option<i32>,
}

/// One of these; at most one Envoy is away, unless said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

impl ProxyConfigSpec {
    /// What both say; where both say something, this counts.
    pub(crate) fn over(&self, other: &Self) -> serde_json::Result<Self> {
        let mut together = serde_json::to_value(other)?;
        json_patch::merge(&mut together, &serde_json::to_value(self)?);
        serde_json::from_value(together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> ProxyConfigSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn of_two_the_nearer_counts_field_by_field() {
        let class = spec(
            r#"{"image": "a", "replicas": 3, "service": {"type": "NodePort", "annotations": {"x": "1"}}}"#,
        );
        let gateway = spec(r#"{"image": "b", "service": {"annotations": {"y": "2"}}}"#);
        let both = spec(
            r#"{"image": "b", "replicas": 3, "service": {"type": "NodePort", "annotations": {"x": "1", "y": "2"}}}"#,
        );
        assert_eq!(gateway.over(&class).unwrap(), both);
    }
}

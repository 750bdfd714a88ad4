//! How the Envoys of a Gateway are run.

use heliograph_model::HttpSettings;
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

// What fields mean that are left out. The schema has them for documentation; of CRDs they are only words.
pub(crate) const REPLICAS: i32 = 1;
pub(crate) const MIN_REPLICAS: i32 = 1;
pub(crate) const MAX_REPLICAS: i32 = 10;
pub(crate) const CPU_UTILIZATION: i32 = 70;
pub(crate) const MAX_UNAVAILABLE: i32 = 1;
pub(crate) const DRAIN_SECONDS: i64 = 60;
pub(crate) const HAS_SHELL: bool = true;
pub(crate) const MERGE_SLASHES: bool = true;
pub(crate) const REQUEST_HEADERS_SECONDS: u32 = 10;
pub(crate) const STREAM_IDLE_SECONDS: u32 = 300;
pub(crate) const MAX_CONCURRENT_STREAMS: u32 = 100;
const MOST_STREAMS: u32 = 10_000;

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
    #[schemars(extend("default" = false))]
    pub self_managed: Option<bool>,
    /// All Gateways of the class have the same Envoys, which run in the namespace of this ProxyConfig. Only that of a
    /// GatewayClass may say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub merge_gateways: Option<bool>,
    /// What runs the Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Workload::default()))]
    pub kind: Option<Workload>,
    /// How many Envoys. It says nothing for a DaemonSet, nor beside `hpa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = REPLICAS))]
    pub replicas: Option<i32>,
    /// The image of Envoy; that of the translator's flag `--proxy-image`, unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Names of Secrets of the Gateway's namespace that the image is pulled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secrets: Option<Vec<String>>,
    /// What the container of Envoy asks for, and may have at most. A limit of memory is also told to Envoy, which refuses
    /// requests at 95 % of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// How much Envoy logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = LogLevel::default()))]
    pub log_level: Option<LogLevel>,
    /// How many threads serve; the processors that Envoy may use, unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u16>,
    /// Laid over the bootstrap: of objects each field, lists one after the other, anything else replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::heliograph::any_object")]
    pub bootstrap: Option<serde_json::Value>,
    /// The Service in front of the Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceConfig>,
    /// Which annotations of the Gateway's `infrastructure` go to all that is made, pods included, and not to the Service alone:
    /// whole names, or `example.org/*`. Those without a prefix, such as `note`, always do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_annotations: Option<Vec<String>>,
    /// What Envoys accept of clients that speak HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
    /// What an Envoy does before it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainConfig>,
    /// With it, a HorizontalPodAutoscaler says how many Envoys there are. It says nothing for a DaemonSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<HpaConfig>,
    /// With it, there is a PodDisruptionBudget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbConfig>,
    /// Labels of the nodes that the pods may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that the pods tolerate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// The PriorityClass of the pods.
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
    /// How it is reached from outside of the cluster, if at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ServiceType::default()))]
    pub r#type: Option<ServiceType>,
    /// Annotations of the Service alone, beside those of the Gateway's `infrastructure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// `externalTrafficPolicy` of the Service. It says nothing for a `ClusterIP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
    /// `loadBalancerClass` of the Service. It says nothing for other types.
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

/// What Envoys accept of clients that speak HTTP. It holds for all listeners of the Gateway, or of all Gateways that share
/// these Envoys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpConfig {
    /// What is done with a path that has `%2F` or `%5C` in it, which routes and backends may read as another path. `Redirect`
    /// sends the client to the path with `/` in its place (gRPC is rejected), `Reject` answers 400, `Unescape` goes on with
    /// that path, and `Keep` leaves it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = EscapedSlashes::default()))]
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether `//` in a path is one `/`, for routes and for backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = MERGE_SLASHES))]
    pub merge_slashes: Option<bool>,
    /// What is done with a request that has a header with `_` in its name, which some backends read as `-`. `Reject` rejects the
    /// request, `Drop` removes the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = HeadersWithUnderscores::default()))]
    pub headers_with_underscores: Option<HeadersWithUnderscores>,
    /// How long the headers of a request may take from their first byte to their last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = REQUEST_HEADERS_SECONDS))]
    pub request_headers_seconds: Option<u32>,
    /// How long a request may go on with nothing sent in either direction; 0 for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = STREAM_IDLE_SECONDS))]
    pub stream_idle_seconds: Option<u32>,
    /// How many requests a client may have open at once on a connection of HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000), extend("default" = MAX_CONCURRENT_STREAMS))]
    pub max_concurrent_streams: Option<u32>,
}

impl HttpConfig {
    /// With defaults filled in, and within the bounds of the CRD, which files need not keep: Envoy would wait for ever without a
    /// timeout, and rejects a listener with no streams or very many.
    pub(crate) fn settings(&self) -> HttpSettings {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let Self {
            escaped_slashes,
            merge_slashes,
            headers_with_underscores,
            request_headers_seconds,
            stream_idle_seconds,
            max_concurrent_streams,
        } = self;
        HttpSettings {
            escaped_slashes: match escaped_slashes.unwrap_or_default() {
                EscapedSlashes::Redirect => heliograph_model::EscapedSlashes::Redirect,
                EscapedSlashes::Reject => heliograph_model::EscapedSlashes::Reject,
                EscapedSlashes::Unescape => heliograph_model::EscapedSlashes::Unescape,
                EscapedSlashes::Keep => heliograph_model::EscapedSlashes::Keep,
            },
            merge_slashes: merge_slashes.unwrap_or(MERGE_SLASHES),
            headers_with_underscores: match headers_with_underscores.unwrap_or_default() {
                HeadersWithUnderscores::Reject => heliograph_model::HeadersWithUnderscores::Reject,
                HeadersWithUnderscores::Drop => heliograph_model::HeadersWithUnderscores::Drop,
                HeadersWithUnderscores::Allow => heliograph_model::HeadersWithUnderscores::Allow,
            },
            request_headers_timeout: seconds(
                request_headers_seconds.unwrap_or(REQUEST_HEADERS_SECONDS).max(1),
            ),
            stream_idle_timeout: seconds(stream_idle_seconds.unwrap_or(STREAM_IDLE_SECONDS)),
            max_concurrent_streams: max_concurrent_streams
                .unwrap_or(MAX_CONCURRENT_STREAMS)
                .clamp(1, MOST_STREAMS),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EscapedSlashes {
    #[default]
    Redirect,
    Reject,
    Unescape,
    Keep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HeadersWithUnderscores {
    #[default]
    Reject,
    Drop,
    Allow,
}

/// What an Envoy does before it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainConfig {
    /// The longest that it waits for its connections to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600), extend("default" = DRAIN_SECONDS))]
    pub seconds: Option<i64>,
    /// Whether the image has `bash`, as Envoy's own has, and its distroless one has not. Without it, Envoy cannot be
    /// told to send its clients elsewhere, and only waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = HAS_SHELL))]
    pub shell: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaConfig {
    /// The fewest Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = MIN_REPLICAS))]
    pub min_replicas: Option<i32>,
    /// The most Envoys; `minReplicas` if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = MAX_REPLICAS))]
    pub max_replicas: Option<i32>,
    /// How much of the CPU that the containers ask for is to be used on average, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = CPU_UTILIZATION))]
    pub cpu_utilization: Option<i32>,
}

/// How many Envoys may be away at a time, by one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbConfig {
    /// How many Envoys stay, as a number or in percent of them. Beside it, `maxUnavailable` says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    /// How many Envoys may be away, as a number or in percent of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = MAX_UNAVAILABLE))]
    pub max_unavailable: Option<IntOrString>,
}

impl ProxyConfigSpec {
    /// Whether the Gateways of a class have the same proxies.
    pub(crate) fn merges(&self) -> bool {
        self.merge_gateways == Some(true)
    }

    /// Whether an annotation that a Gateway asks for goes to pods and their accounts. Those with a prefix speak to components of
    /// the cluster, which attach networks, inject containers or give rights for them: who writes Gateways need not be allowed that.
    pub(crate) fn allows_annotation(&self, name: &str) -> bool {
        let Some((prefix, _)) = name.split_once('/') else { return true };
        let mut allowed = self.allowed_annotations.iter().flatten();
        allowed.any(|allowed| allowed == name || allowed.strip_suffix("/*") == Some(prefix))
    }

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
    fn annotations_with_a_prefix_are_allowed_by_name_or_prefix() {
        let of = |text: &str| spec(text);
        let none = of("{}");
        assert!(none.allows_annotation("note") && !none.allows_annotation("example.org/note"));
        let some = of(r#"{"allowedAnnotations": ["example.org/note", "shop.test/*", "*", "/*"]}"#);
        for (name, is_allowed) in [
            ("example.org/note", true),
            ("example.org/other", false),
            ("shop.test/any", true),
            ("sub.shop.test/any", false),
            ("k8s.v1.cni.cncf.io/networks", false),
        ] {
            assert_eq!(some.allows_annotation(name), is_allowed, "{name}");
        }
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

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

/// How the Envoys of a Gateway run. A Gateway refers to a ProxyConfig in `infrastructure.parametersRef`, a GatewayClass in
/// `parametersRef`. If both do, the fields of the Gateway's ProxyConfig override those of the class.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "heliograph.dev",
    version = "v1alpha1",
    kind = "ProxyConfig",
    namespaced,
    derive = "PartialEq",
    doc = "How the Envoys of a Gateway run."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfigSpec {
    /// Heliograph creates nothing for the Gateway. You run its Envoys yourself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub self_managed: Option<bool>,
    /// All Gateways of the class share their Envoys, which run in the namespace of this ProxyConfig. Allowed only in the
    /// ProxyConfig of a GatewayClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub merge_gateways: Option<bool>,
    /// The kind of workload that runs the Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Workload::default()))]
    pub kind: Option<Workload>,
    /// The number of Envoys. Ignored for a DaemonSet, and when `hpa` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = REPLICAS))]
    pub replicas: Option<i32>,
    /// The image of Envoy. By default, that of the translator's flag `--proxy-image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Names of Secrets in the Gateway's namespace that contain credentials to pull the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secrets: Option<Vec<String>>,
    /// Resource requests and limits of the Envoy container. Envoy knows its memory limit and rejects requests when it uses 95 %
    /// of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The log level of Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = LogLevel::default()))]
    pub log_level: Option<LogLevel>,
    /// The number of Envoy's worker threads. By default, the number of processors that Envoy may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u16>,
    /// Merged into the generated bootstrap. Objects are merged field by field, lists are appended, and all other values are
    /// replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::heliograph::any_object")]
    pub bootstrap: Option<serde_json::Value>,
    /// The Service in front of the Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceConfig>,
    /// Annotations of the Gateway's `infrastructure` that are copied to every generated object, including pods, and not only to
    /// the Service. Each entry is a full name or `example.org/*`. Annotations without a prefix, such as `note`, are always
    /// copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_annotations: Option<Vec<String>>,
    /// What Envoys accept from HTTP clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
    /// What an Envoy does before it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainConfig>,
    /// Creates a HorizontalPodAutoscaler, which sets the number of Envoys. Ignored for a DaemonSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<HpaConfig>,
    /// Creates a PodDisruptionBudget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbConfig>,
    /// The labels that a node must have to run the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that the pods tolerate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// The name of the pods' PriorityClass.
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
    /// The type of the Service: how clients outside the cluster reach it, if at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ServiceType::default()))]
    pub r#type: Option<ServiceType>,
    /// Annotations of the Service only, in addition to those of the Gateway's `infrastructure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// `externalTrafficPolicy` of the Service. Ignored for the type `ClusterIP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
    /// `loadBalancerClass` of the Service. Ignored for types other than `LoadBalancer`.
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

/// What Envoys accept from HTTP clients. It applies to all listeners of the Gateway, or of all Gateways that share these Envoys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpConfig {
    /// What Envoy does with a path that contains `%2F` or `%5C`, which routes and backends may interpret differently. `Redirect`
    /// redirects the client to the path with `/` instead (gRPC requests are rejected), `Reject` answers with 400, `Unescape`
    /// continues with the path with `/` instead, and `Keep` leaves the path unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = EscapedSlashes::default()))]
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether `//` in a path becomes `/`, both for matching and in requests to backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = MERGE_SLASHES))]
    pub merge_slashes: Option<bool>,
    /// What Envoy does with a request that has a header with `_` in its name, which some backends read as `-`. `Reject` rejects
    /// the request, `Drop` removes the header, and `Allow` forwards it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = HeadersWithUnderscores::default()))]
    pub headers_with_underscores: Option<HeadersWithUnderscores>,
    /// The time in which a client must send all headers of a request, in seconds, from the first byte to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = REQUEST_HEADERS_SECONDS))]
    pub request_headers_seconds: Option<u32>,
    /// How long a request may be idle, with no data in either direction, in seconds. 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = STREAM_IDLE_SECONDS))]
    pub stream_idle_seconds: Option<u32>,
    /// The maximum number of concurrent requests on one HTTP/2 connection of a client.
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
    /// How long an Envoy waits for its connections to end, at most, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600), extend("default" = DRAIN_SECONDS))]
    pub seconds: Option<i64>,
    /// Whether the image contains `bash`. Envoy's standard image does, its distroless image does not. Without `bash`, an Envoy
    /// that ends cannot ask its clients to connect elsewhere; it only waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = HAS_SHELL))]
    pub shell: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaConfig {
    /// The minimum number of Envoys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = MIN_REPLICAS))]
    pub min_replicas: Option<i32>,
    /// The maximum number of Envoys. If `minReplicas` is greater, that applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = MAX_REPLICAS))]
    pub max_replicas: Option<i32>,
    /// The target of average CPU use, in percent of the containers' CPU requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = CPU_UTILIZATION))]
    pub cpu_utilization: Option<i32>,
}

/// How many Envoys may be unavailable at the same time. Set one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbConfig {
    /// How many Envoys must stay available, as a number or as a percentage. If set, `maxUnavailable` is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    /// How many Envoys may be unavailable, as a number or as a percentage.
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

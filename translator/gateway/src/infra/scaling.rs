use super::render::{Part, Renderer};
use crate::objects::proxy_config::{
    CPU_UTILIZATION, MAX_REPLICAS, MAX_UNAVAILABLE, MIN_REPLICAS, Workload,
};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec,
    MetricTarget, ResourceMetricSource,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// On request, and only for a Deployment.
pub(super) fn scaler(renderer: &Renderer<'_>) -> Option<HorizontalPodAutoscaler> {
    let config = renderer.proxies.config.hpa.as_ref()?;
    if renderer.workload() != Workload::Deployment {
        return None;
    }
    let least = config.min_replicas.unwrap_or(MIN_REPLICAS);
    let metric = MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource {
            name: "cpu".to_owned(),
            target: MetricTarget {
                type_: "Utilization".to_owned(),
                average_utilization: Some(config.cpu_utilization.unwrap_or(CPU_UTILIZATION)),
                ..MetricTarget::default()
            },
        }),
        ..MetricSpec::default()
    };
    Some(HorizontalPodAutoscaler {
        metadata: renderer.metadata(),
        spec: Some(HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: Part::Deployment.kind().to_owned(),
                name: renderer.name(),
            },
            min_replicas: Some(least),
            max_replicas: config.max_replicas.unwrap_or(MAX_REPLICAS).max(least),
            metrics: Some(vec![metric]),
            behavior: None,
        }),
        status: None,
    })
}

/// On request.
pub(super) fn budget(renderer: &Renderer<'_>) -> Option<PodDisruptionBudget> {
    let config = renderer.proxies.config.pdb.as_ref()?;
    let max_unavailable = match (&config.min_available, &config.max_unavailable) {
        // The API server takes one of the two.
        (Some(_), _) => None,
        (None, Some(most)) => Some(most.clone()),
        (None, None) => Some(IntOrString::Int(MAX_UNAVAILABLE)),
    };
    Some(PodDisruptionBudget {
        metadata: renderer.metadata(),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: config.min_available.clone(),
            max_unavailable,
            selector: Some(LabelSelector {
                match_labels: Some(renderer.selector()),
                match_expressions: None,
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        }),
        status: None,
    })
}

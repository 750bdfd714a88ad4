//! Reads the statuses that a control plane writes, and counts its writes.

use crate::bench::BenchError;
use crate::servers::{Kubernetes, ServersError};
use serde_json::Value;

/// How many statuses of Gateway API's objects the API was asked to write, also such that changed nothing.
pub(super) async fn writes(kubernetes: &Kubernetes) -> Result<f64, BenchError> {
    let page = kubernetes.text("/metrics").await?;
    let asked = page.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("group=\"gateway.networking.k8s.io\"")
            && line.contains("subresource=\"status\"")
            && !line.contains("verb=\"GET\"")
    });
    Ok(asked.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
}

/// Whether a controller has accepted the route.
pub(super) fn is_accepted(route: &Value) -> bool {
    let parents = route.pointer("/status/parents").and_then(Value::as_array);
    let mut parents = parents.into_iter().flatten();
    parents.any(|parent| {
        let conditions = parent["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Accepted" && it["status"] == "True")
    })
}

/// How many routes a Gateway's listener says are attached to it.
pub(super) fn attached(gateway: &Value) -> u64 {
    let said = gateway.pointer("/status/listeners/0/attachedRoutes").and_then(Value::as_u64);
    said.unwrap_or_default()
}

/// The list of objects at a path, and the version that a watch goes on from.
pub(super) async fn list(
    kubernetes: &Kubernetes,
    path: &str,
) -> Result<(Vec<Value>, String), ServersError> {
    let list = kubernetes.get(path).await?;
    let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default().to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok((items, version))
}

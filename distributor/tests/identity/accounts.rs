//! What is in a cluster whose API server is asked about tokens.

use crate::kubernetes::{Kubernetes, until};
use serde_json::json;

pub(crate) const AUDIENCE: &str = "heliograph";

/// Adds these accounts of namespaces, and that of the distributor, which may ask about tokens. Its own is in the file `token`.
pub(crate) async fn add_accounts(cluster: &Kubernetes, accounts: &[(&str, &str)]) {
    for (namespace, name) in accounts.iter().chain(&[("heliograph", "distributor")]) {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
        });
        cluster.apply(&format!("/api/v1/namespaces/{namespace}"), object).await;
        cluster.create_account(namespace, name).await;
    }
    let binding = json!({
        "metadata": { "name": "distributor" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator",
        },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "heliograph", "name": "distributor" }],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let own = cluster.token("heliograph", "distributor", &[]).await;
    std::fs::write(cluster.file("token"), own).unwrap();
}

/// The distributor cannot check tokens itself.
pub(crate) async fn withhold_keys(cluster: &Kubernetes) {
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = format!("{bindings}/system:service-account-issuer-discovery");
    until("the binding", async || cluster.has(&binding).await).await;
    cluster.delete(&binding).await;
}

//! What a real API server thinks of what the charts render, with every CRD that they write objects of.

use crate::helm::{CASES, NAMESPACE, Object, case, render};
use crate::kubernetes::Kubernetes;
use heliograph_translator::KubernetesArgs;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::json;
use std::fs;

/// By server-side apply that changes nothing. No field may be unknown, and nothing may be warned of: neither of APIs that will go
/// away, nor of pods that the strictest level of Pod Security would refuse.
#[tokio::test]
async fn an_api_server_takes_all_of_it_without_a_warning() {
    let kubernetes = Kubernetes::start().await;
    let client = administrator(&kubernetes).await;
    kubernetes.install_crds().await;
    for crd in render("heliograph-crds", &[]).unwrap() {
        if let Err(why) = apply(&client, &crd).await {
            panic!("{}: {why}", crd.name());
        }
        kubernetes.install_crd(crd.name(), &crd.text).await;
    }
    for (name, manifest) in operator_crds() {
        kubernetes.install_crd(&name, &manifest).await;
    }
    for namespace in [NAMESPACE, "monitoring"] {
        let labels = json!({
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        });
        let namespace = json!({ "metadata": { "name": namespace, "labels": labels } });
        kubernetes.create("/api/v1/namespaces", namespace).await;
    }
    for name in CASES {
        for object in case(name) {
            if let Err(why) = apply(&client, &object).await {
                panic!("{name}: {} {}: {why}\n{}", object.kind(), object.name(), object.text);
            }
        }
    }
    // It would say so.
    let pod = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: heliograph-system}\nspec:\n  \
               selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    \
               spec: {containers: [{name: c, image: i}]}\n";
    for (text, expected) in
        [(pod.to_owned(), "restricted"), (pod.replace("image: i", "imgae: i"), "imgae")]
    {
        let value = serde_saphyr::from_str(&text).unwrap();
        let why = apply(&client, &Object { text, value }).await.unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

async fn administrator(kubernetes: &Kubernetes) -> Client {
    let access = KubernetesArgs {
        kubernetes: true,
        kubeconfig: Some(kubernetes.file("kubeconfig")),
        kube_context: None,
        namespace_selector: None,
        ignore_kind: Vec::new(),
    };
    access.connect().await.unwrap()
}

/// Why not, or what is warned of.
async fn apply(client: &Client, object: &Object) -> Result<(), String> {
    let version = object.value["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object.kind());
    let (resource, capabilities) =
        pinned_kind(client, &kind).await.map_err(|error| error.to_string())?;
    let namespace = match capabilities.scope {
        Scope::Cluster => None,
        Scope::Namespaced => Some(object.value["metadata"]["namespace"].as_str().unwrap()),
    };
    assert_eq!(
        namespace.is_some(),
        object.value["metadata"]["namespace"].is_string(),
        "{} {}",
        object.kind(),
        object.name()
    );
    let path = format!(
        "{}/{}?dryRun=All&fieldValidation=Strict&fieldManager=test&force=true",
        resource.url_path(namespace),
        object.name()
    );
    let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
    let request = request.body(object.text.clone().into_bytes().into()).unwrap();
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    let (head, body) = answer.into_parts();
    if let Some(warning) = head.headers.get("warning") {
        return Err(warning.to_str().unwrap_or_default().to_owned());
    }
    let body = body.collect().await.unwrap().to_bytes();
    if head.status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned()) }
}

trait UrlPath {
    fn url_path(&self, namespace: Option<&str>) -> String;
}

impl UrlPath for kube::core::ApiResource {
    fn url_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        format!("{root}/{}/{namespace}{}", self.api_version, self.plural)
    }
}

fn operator_crds() -> Vec<(String, String)> {
    let folder = std::env::var("OPERATOR_CRDS").expect(
        "OPERATOR_CRDS is to name the folder whose path `scripts/tools operator-crds` prints",
    );
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut crds: Vec<_> = entries
        .map(|entry| {
            let file = entry.file_name().into_string().unwrap();
            // `keda.sh_scaledobjects.yaml`
            let (group, plural) = file.trim_end_matches(".yaml").split_once('_').unwrap();
            (format!("{plural}.{group}"), fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    crds.sort();
    crds
}

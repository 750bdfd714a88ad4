//! The rights in `deploy/translator.yaml` are what the program reads and writes, no more and no less.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_translator_core::infra::Part;
use heliograph_translator_core::objects::Kind;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::core::{ApiResource, GroupVersionKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A group, a resource of it, and what may be done with it.
type Right = (String, String, &'static str);

const READ: &[&str] = &["get", "list", "watch"];
/// By server-side apply.
const WRITE: &[&str] = &["create", "delete", "patch"];

#[test]
fn the_role_of_the_translator_is_what_it_needs() {
    let mut needed = BTreeSet::new();
    for kind in Kind::ALL.iter().filter(|kind| kind.api_version().is_some()) {
        let plural = plural(kind.group(), kind.as_str());
        needed.extend(rights(kind.group(), &plural, READ));
        // Those of Kubernetes itself have statuses that others write.
        if kind.has_status() && kind.group().contains('.') {
            needed.extend(rights(kind.group(), &format!("{plural}/status"), &["patch"]));
        }
    }
    for part in Part::ALL {
        let plural = plural(part.group(), part.kind());
        needed.extend(rights(part.group(), &plural, READ));
        needed.extend(rights(part.group(), &plural, WRITE));
    }
    // The directory of proxies, and what users are told.
    needed.extend(rights("", "pods", READ));
    needed.extend(rights("", "nodes", READ));
    needed.extend(rights("events.k8s.io", "events", &["create", "patch"]));

    let granted = granted();
    let missing: Vec<_> = needed.difference(&granted).collect();
    let needless: Vec<_> = granted.difference(&needed).collect();
    assert!(missing.is_empty(), "deploy/translator.yaml does not grant {missing:?}");
    assert!(needless.is_empty(), "deploy/translator.yaml grants what nothing needs: {needless:?}");
}

fn granted() -> BTreeSet<Right> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/translator.yaml");
    let manifests = fs::read_to_string(path).unwrap();
    let role =
        manifests.split("\n---\n").find(|document| document.contains("\nkind: ClusterRole\n"));
    let role: ClusterRole = serde_saphyr::from_str(role.unwrap()).unwrap();
    let mut granted = BTreeSet::new();
    for rule in role.rules.unwrap() {
        assert_eq!(rule.resource_names, None);
        for group in rule.api_groups.unwrap() {
            for resource in rule.resources.iter().flatten() {
                let verbs: Vec<&'static str> = rule.verbs.iter().map(|verb| known(verb)).collect();
                granted.extend(rights(&group, resource, &verbs));
            }
        }
    }
    granted
}

fn known(verb: &str) -> &'static str {
    let all = READ.iter().chain(WRITE);
    all.copied().find(|known| *known == verb).unwrap_or_else(|| panic!("nothing needs to {verb}"))
}

fn rights(group: &str, resource: &str, verbs: &[&'static str]) -> Vec<Right> {
    verbs.iter().map(|verb| (group.to_owned(), resource.to_owned(), *verb)).collect()
}

fn plural(group: &str, kind: &str) -> String {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)).plural
}

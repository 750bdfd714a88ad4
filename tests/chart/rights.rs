//! The rights that the chart gives are what the programs read and write, no more and no less.

use crate::helm::{Object, case, find, set};
use heliograph_gateway::infra::Part;
use heliograph_gateway::objects::Kind;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::core::{ApiResource, GroupVersionKind};
use std::collections::BTreeSet;

/// A group, a resource of it, and what may be done with it.
type Right = (String, String, &'static str);

const READ: &[&str] = &["get", "list", "watch"];
/// By server-side apply.
const WRITE: &[&str] = &["create", "delete", "patch"];

#[test]
fn the_translator_may_do_what_it_does() {
    let mut needed = needed(&[]);
    assert_same(&granted(&case("")), &needed);

    for part in Part::ALL {
        let plural = plural(part.group(), part.kind());
        for right in rights(part.group(), &plural, WRITE) {
            needed.remove(&right);
        }
        // Services and ConfigMaps are translated, too.
        if !matches!(part.kind(), "Service" | "ConfigMap") {
            for right in rights(part.group(), &plural, READ) {
                needed.remove(&right);
            }
        }
    }
    needed.retain(|(_, resource, _)| !matches!(resource.as_str(), "pods" | "nodes"));
    assert_same(&granted(&set(&["proxies.enabled=false"]).unwrap()), &needed);
}

#[test]
fn what_is_ignored_is_not_asked_for() {
    let ignored = [Kind::ViewPolicy, Kind::Secret];
    let granted = granted(&set(&["translator.ignoreKinds={ViewPolicy,Secret}"]).unwrap());
    assert_same(&granted, &needed(&ignored));
}

#[test]
fn the_distributor_may_ask_whose_a_token_is_and_no_more() {
    let role = |objects: &[Object]| {
        let mut roles =
            objects.iter().filter(|object| matches!(object.kind(), "ClusterRole" | "Role"));
        roles.find(|role| role.name().ends_with("-distributor")).cloned()
    };
    let reviews = role(&case("")).unwrap();
    assert_eq!(
        reviews.value["rules"].to_string(),
        r#"[{"apiGroups":["authentication.k8s.io"],"resources":["tokenreviews"],"verbs":["create"]}]"#
    );
    for name in ["minimal", "alternatives"] {
        let objects = case(name);
        assert!(role(&objects).is_none(), "{name}");
        let mut deployments = objects.iter().filter(|object| object.kind() == "Deployment");
        let distributor = deployments.find(|found| found.name().ends_with("-distributor")).unwrap();
        assert_eq!(distributor.pod().unwrap()["automountServiceAccountToken"], false, "{name}");
    }
}

fn needed(ignored: &[Kind]) -> BTreeSet<Right> {
    let mut needed = BTreeSet::new();
    let watched = Kind::ALL.iter().filter(|kind| kind.api_version().is_some());
    for kind in watched.filter(|kind| !ignored.contains(kind)) {
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
    // The inventory of proxies, and events for users.
    needed.extend(rights("", "pods", READ));
    needed.extend(rights("", "nodes", READ));
    needed.extend(rights("events.k8s.io", "events", &["create", "patch"]));
    needed
}

fn granted(objects: &[Object]) -> BTreeSet<Right> {
    let role = find(objects, "ClusterRole", "heliograph-translator");
    let role: ClusterRole = serde_json::from_value(role.value.clone()).unwrap();
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

#[track_caller]
fn assert_same(granted: &BTreeSet<Right>, needed: &BTreeSet<Right>) {
    let missing: Vec<_> = needed.difference(granted).collect();
    let needless: Vec<_> = granted.difference(needed).collect();
    let file = "templates/translator/rights.yaml";
    assert!(missing.is_empty(), "{file} does not grant {missing:?}");
    assert!(needless.is_empty(), "{file} grants what nothing needs: {needless:?}");
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

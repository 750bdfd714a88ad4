use super::*;
use crate::objects::{Document, Kind, Object, parse};
use serde_json::json;

/// A kind that has all ways to name targets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Spec {
    limit: Option<Limit>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Limit {
    seconds: Option<u32>,
}

impl PolicySpec for Spec {
    const TARGETS: TargetFields = TargetFields::All;
}

fn decode(object: Value) -> PolicyObject<Spec> {
    serde_json::from_value(object).unwrap()
}

fn with(spec: Value) -> PolicyObject<Spec> {
    decode(
        json!({ "kind": "Any", "metadata": { "name": "one", "namespace": "shop" }, "spec": spec }),
    )
}

fn target(name: &str) -> Value {
    json!({ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name })
}

fn fault(policy: &PolicyObject<Spec>) -> (&str, &str) {
    let fault = policy.spec.as_ref().unwrap_err();
    (&fault.field, &fault.message)
}

fn names(policy: &PolicyObject<Spec>) -> Vec<&str> {
    policy.targets.iter().map(|target| &*target.name).collect()
}

#[test]
fn targets_and_the_rest_are_decoded_apart() {
    let mut part = target("cart");
    part["sectionName"] = json!("checkout");
    let selector = json!({
        "kind": "HTTPRoute", "matchLabels": { "team": "shop" },
        "matchExpressions": [{ "key": "stage", "operator": "Exists" }],
    });
    let policy = with(json!({
        "targetRefs": [target("menu"), part], "targetSelectors": [selector], "targetRef": null,
        "limit": { "seconds": 3 },
    }));
    assert_eq!(policy.spec, Ok(Spec { limit: Some(Limit { seconds: Some(3) }) }));
    let fields: Vec<_> = policy.targets.iter().map(|target| &*target.field).collect();
    assert_eq!(fields, ["spec.targetRefs[0]", "spec.targetRefs[1]"]);
    assert_eq!(policy.targets[1].section_name.as_deref(), Some("checkout"));
    assert_eq!(policy.selectors[0].match_labels["team"], "shop");
    assert_eq!(policy.selectors[0].field, "spec.targetSelectors[0]");
    assert_eq!(names(&with(json!({ "targetRef": target("cart") }))), ["cart"]);
}

#[test]
fn what_is_not_understood_is_named_and_keeps_its_targets() {
    for (rest, field, message) in [
        (json!({ "retry": {} }), "spec.retry", "spec.retry is not supported"),
        (
            json!({ "limit": { "seconds": 3, "days": 1 }, "retry": {} }),
            "spec.limit.days",
            "spec.limit.days, spec.retry are not supported",
        ),
        (
            json!({ "limit": { "seconds": "three" } }),
            "spec.limit.seconds",
            "spec.limit.seconds: invalid type: string \"three\", expected u32",
        ),
        (
            json!({ "limit": { "days": 1, "seconds": "three" } }),
            "spec.limit.days",
            "spec.limit.days is not supported; spec.limit.seconds: invalid type: string \"three\", expected u32",
        ),
        (
            json!({ "limit": 3 }),
            "spec.limit",
            "spec.limit: invalid type: integer `3`, expected struct Limit",
        ),
    ] {
        let mut spec = rest.clone();
        spec["targetRefs"] = json!([target("cart")]);
        let policy = with(spec);
        assert_eq!(fault(&policy), (field, message), "{rest}");
        assert_eq!(names(&policy), ["cart"], "{rest}");
    }
}

#[test]
fn a_message_names_a_few_unsupported_fields() {
    let mut spec = json!({ "targetRefs": [target("cart")] });
    (0..20).for_each(|index| spec[format!("field{index:02}")] = json!(1));
    let policy = with(spec);
    let (_, message) = fault(&policy);
    assert!(message.ends_with("spec.field07 and 12 more are not supported"), "{message}");
}

/// More is targeted then, and not less.
#[test]
fn a_target_that_cannot_be_decoded_counts_as_the_object_that_it_names() {
    let mut odd = target("cart");
    odd["sectionName"] = json!(7);
    let mut misspelt = target("menu");
    misspelt["sectionNme"] = json!("checkout");
    let policy = with(json!({ "targetRefs": [odd, misspelt, { "kind": "HTTPRoute" }] }));
    assert_eq!(names(&policy), ["cart", "menu"]);
    assert_eq!(policy.targets[0].section_name, None);
    assert_eq!(fault(&policy).0, "spec.targetRefs[1].sectionNme");

    let none = with(json!({ "limit": {} }));
    assert_eq!(fault(&none), ("spec.targetRefs", "spec.targetRefs: it is missing"));
    let both = with(json!({ "targetRef": target("cart"), "targetRefs": [target("menu")] }));
    assert_eq!(names(&both), ["cart", "menu"]);
    assert_eq!(fault(&both).0, "spec.targetRef");
    let text = with(json!({ "targetRefs": "cart" }));
    assert_eq!(fault(&text).1, "spec.targetRefs: it is not a list");
}

/// More is selected then, and not less.
#[test]
fn a_selector_that_cannot_be_decoded_counts_for_its_kind() {
    let policy = with(json!({ "targetSelectors": [
        { "kind": "HTTPRoute", "matchLabels": { "team": 7 }, "namespaces": { "from": "Same" } },
        { "kind": "GRPCRoute", "matchExpressions": "all", "namespaces": null },
        { "matchLabels": { "team": "shop" } },
    ] }));
    let selected = policy.selectors.iter().map(|it| {
        let from = it.namespaces.as_ref().map(|namespaces| &*namespaces.from);
        (&*it.kind, from, it.match_labels.len() + it.match_expressions.len())
    });
    let expected = [("HTTPRoute", Some("All"), 0), ("GRPCRoute", None, 0)];
    assert_eq!(selected.collect::<Vec<_>>(), expected);
    assert_eq!(fault(&policy).0, "spec.targetSelectors[0].matchLabels.team");
}

#[test]
fn a_fault_outside_of_the_spec_is_one_as_well() {
    let spec = json!({ "targetRefs": [target("cart")] });
    let odd = decode(json!({ "metadata": { "name": "one", "labels": 5 }, "spec": spec }));
    assert_eq!((odd.metadata.name.as_deref(), fault(&odd).0), (Some("one"), "metadata.labels"));
    let beside = decode(json!({ "metadata": { "name": "one" }, "spec": spec, "specs": {} }));
    assert_eq!((names(&beside), fault(&beside).0), (vec!["cart"], "specs"));
    let text = decode(json!({ "metadata": { "name": "one" }, "spec": "none" }));
    assert_eq!(fault(&text).1, "spec: it is not an object");
}

/// The same from a file and from the API.
#[test]
fn where_an_object_comes_from_makes_no_difference() {
    let target = json!({ "group": "", "kind": "Service", "name": "cart" });
    for validation in [
        json!({ "wellKnownCACertificates": "System", "hostname": "cart.example" }),
        json!({ "wellKnownCACertificates": "System", "hostname": "cart.example", "hostnme": "x" }),
        json!({ "wellKnownCACertificates": "System", "hostname": 7 }),
    ] {
        let spec = json!({ "targetRefs": [target], "validation": validation });
        let manifest = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": { "name": "one", "namespace": "shop" }, "spec": spec,
        });
        let metadata = serde_json::from_value(manifest["metadata"].clone()).unwrap();
        let mut served = json!({ "spec": spec });
        let served = Kind::BackendTLSPolicy.read(metadata, &mut served).unwrap();
        let yaml = serde_saphyr::to_string(&manifest).unwrap();
        for text in [manifest.to_string(), yaml] {
            let Some(Document::Object(read)) = parse(&text).pop() else { panic!("{text}") };
            assert_eq!(read, served);
            let Object::BackendTLSPolicy(policy) = read else { panic!("{text}") };
            assert_eq!(policy.targets.len(), 1);
            assert_eq!(
                policy.spec.is_ok(),
                validation["hostname"] == "cart.example" && validation.get("hostnme").is_none()
            );
        }
    }
}

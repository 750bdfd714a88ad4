//! What the charts render, whatever is asked of them.

use crate::helm::{CASES, Object, case, charts, find, render, set};
use heliograph_shared::settings::{self, Parsed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;

/// The parts of a case by the name that they begin with.
fn deployment<'a>(objects: &'a [Object], part: &str) -> &'a Object {
    let mut all = objects.iter().filter(|object| object.kind() == "Deployment");
    all.find(|object| object.name().ends_with(part)).unwrap()
}

#[test]
fn programs_understand_how_they_are_started() {
    for name in CASES {
        let objects = case(name);
        let args = |part: &str| {
            let args = deployment(&objects, part).args().into_iter().map(OsString::from);
            [OsString::from(part)].into_iter().chain(args).collect::<Vec<_>>()
        };
        let parsed = settings::parse::<heliograph_translator::program::Program>(args("translator"));
        assert!(matches!(parsed, Ok(Parsed::Run(_))), "{name}: {:?}", parsed.err());
        let parsed =
            settings::parse::<heliograph_distributor::program::Program>(args("distributor"));
        assert!(matches!(parsed, Ok(Parsed::Run(_))), "{name}: {:?}", parsed.err());
    }
}

#[test]
fn files_that_flags_name_are_mounted() {
    for name in CASES {
        for object in case(name).iter().filter(|object| object.pod().is_some()) {
            let pod = object.pod().unwrap();
            let container = &pod["containers"][0];
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let mounts = list(&container["volumeMounts"]);
            for arg in object.args().iter().filter_map(|arg| arg.split_once("=/etc/")) {
                let path = format!("/etc/{}", arg.1);
                let mounted = mounts.iter().any(|mount| {
                    path.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap()))
                });
                assert!(mounted, "{name}: {} {path}", object.name());
            }
            let volumes = list(&pod["volumes"]);
            let names = |all: &[Value]| -> BTreeSet<String> {
                all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
            };
            assert_eq!(names(&mounts), names(&volumes), "{name}: {}", object.name());
        }
    }
}

/// The API server warns of the rest (`api.rs`); it does not know this.
#[test]
fn no_container_can_write_to_its_image() {
    let mut containers = 0;
    for name in CASES {
        for object in case(name) {
            let Some(pod) = object.pod() else { continue };
            for container in pod["containers"].as_array().unwrap() {
                let security = &container["securityContext"];
                assert_eq!(security["readOnlyRootFilesystem"], true, "{name}: {}", object.name());
                assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
                containers += 1;
            }
        }
    }
    assert!(containers > 10);
}

#[test]
fn what_scales_the_distributors_alone_says_how_many_there_are() {
    for (name, count) in
        [("", Some(2)), ("minimal", Some(1)), ("everything", None), ("alternatives", None)]
    {
        let objects = case(name);
        let replicas = &deployment(&objects, "-distributor").value["spec"]["replicas"];
        assert_eq!(replicas.as_u64(), count, "{name}");
    }
}

#[test]
fn pods_have_longer_than_their_streams_to_end() {
    for name in CASES {
        let objects = case(name);
        let distributor = deployment(&objects, "-distributor");
        let grace = distributor.pod().unwrap()["terminationGracePeriodSeconds"].as_u64().unwrap();
        let args = distributor.args();
        let drain = args.iter().find_map(|arg| arg.strip_prefix("--drain-time=")).unwrap();
        let drain: u64 = drain.trim_end_matches('s').parse().unwrap();
        assert!(grace >= drain + 10, "{name}: {grace} s for a drain of {drain} s");
    }
}

/// A version in a pod's labels would restart it for nothing, and one in a selector could never be changed.
#[test]
fn another_chart_alone_restarts_nothing() {
    for name in CASES {
        for object in case(name).iter().filter(|object| object.kind() == "Deployment") {
            let template = object.value["spec"]["template"].to_string();
            assert!(!template.contains("helm.sh/chart"), "{name}: {}", object.name());
            assert!(!template.contains("app.kubernetes.io/version"), "{name}: {}", object.name());
        }
    }
}

/// So that two installations do not take each other's pods.
#[test]
fn selectors_find_what_they_are_for() {
    for name in CASES {
        let objects = case(name);
        let labels: Vec<&Value> = objects
            .iter()
            .filter(|object| object.kind() == "Deployment")
            .map(|object| &object.value["spec"]["template"]["metadata"]["labels"])
            .collect();
        for object in &objects {
            let spec = &object.value["spec"];
            let selector = match object.kind() {
                "Service" => &spec["selector"],
                "Deployment" | "PodDisruptionBudget" => &spec["selector"]["matchLabels"],
                _ => continue,
            };
            assert!(selector["app.kubernetes.io/instance"].is_string(), "{}", object.name());
            let selector = selector.as_object().unwrap();
            let found = labels.iter().filter(|labels| {
                selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            });
            assert_eq!(found.count(), 1, "{name}: {} {}", object.kind(), object.name());
        }
    }
}

/// Only what a Job makes, what is brought along, and nothing that a release would keep in the clear.
#[test]
fn no_secret_is_part_of_a_release() {
    for name in CASES {
        assert!(case(name).iter().all(|object| object.kind() != "Secret"), "{name}");
    }
}

#[test]
fn nothing_makes_secrets_where_all_are_brought_along() {
    let objects = case("minimal");
    let kinds: BTreeSet<&str> = objects.iter().map(Object::kind).collect();
    assert!(!kinds.contains("Job") && !kinds.contains("CronJob"), "{kinds:?}");
    assert!(objects.iter().all(|object| !object.name().ends_with("-secrets")));
}

/// A Job cannot be changed, so one that is to do something else has another name.
#[test]
fn a_job_that_differs_has_another_name() {
    let job = |settings: &[&str]| {
        let objects = set(settings).unwrap();
        objects.iter().find(|object| object.kind() == "Job").unwrap().name().to_owned()
    };
    assert_eq!(job(&[]), job(&["distributor.replicas=5"]));
    assert_ne!(job(&[]), job(&["certificates.extraNames={xds.example.org}"]));
    assert_ne!(job(&[]), job(&["image.tag=v2"]));
}

#[test]
fn rules_and_dashboards_are_shipped_as_they_are() {
    let objects = case("everything");
    let shipped = |kind: &str, label: &str| {
        let of_kind = objects.iter().filter(move |object| object.kind() == kind);
        of_kind
            .filter(|object| {
                object.value["metadata"]["labels"]["app.kubernetes.io/component"] == label
            })
            .cloned()
            .collect::<Vec<_>>()
    };
    let files = |folder: &str| {
        let folder = charts().join("heliograph").join(folder);
        let entries = fs::read_dir(folder).into_iter().flatten().map(Result::unwrap);
        let mut texts: Vec<String> = entries
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| fs::read_to_string(entry.path()).unwrap())
            .collect();
        texts.sort();
        texts
    };
    let rules: Vec<Value> =
        files("rules").iter().map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    let shipped_rules = shipped("PrometheusRule", "rules");
    assert_eq!(shipped_rules.len(), rules.len());
    for rule in &shipped_rules {
        assert!(rules.contains(&rule.value["spec"]), "{}", rule.name());
        assert_eq!(rule.value["metadata"]["labels"]["release"], "prometheus");
    }
    let dashboards: Vec<Value> =
        files("dashboards").iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let shipped_dashboards = shipped("ConfigMap", "dashboards");
    assert_eq!(shipped_dashboards.len(), dashboards.len());
    for dashboard in &shipped_dashboards {
        let data = dashboard.value["data"].as_object().unwrap();
        let text = data.values().next().unwrap().as_str().unwrap();
        assert!(dashboards.contains(&serde_json::from_str(text).unwrap()), "{}", dashboard.name());
        assert_eq!(dashboard.value["metadata"]["labels"]["grafana_dashboard"], "1");
        assert_eq!(dashboard.value["metadata"]["namespace"], "monitoring");
    }
}

#[test]
fn the_crds_are_those_of_the_types_and_stay() {
    let rendered = render("heliograph-crds", &[]).unwrap();
    let folder = fs::read_dir(charts().join("heliograph-crds/files")).unwrap();
    let mut files = 0;
    for entry in folder.map(Result::unwrap) {
        let text = fs::read_to_string(entry.path()).unwrap();
        let of_type: Value = serde_saphyr::from_str(&text).unwrap();
        let name = of_type["metadata"]["name"].as_str().unwrap();
        let crd = find(&rendered, "CustomResourceDefinition", name);
        assert_eq!(numbers(&crd.value["spec"]), numbers(&of_type["spec"]), "{name}");
        let kept = &crd.value["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(kept, "keep");
        files += 1;
    }
    assert_eq!(rendered.len(), files);
}

/// With 1 for 1.0: helm does not tell them apart.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(values) => values.iter().map(numbers).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), numbers(value))).collect()
        }
        other => other.clone(),
    }
}

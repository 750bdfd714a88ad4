//! What the charts render, whatever is asked of them.

use crate::helm::{CASES, Object, case, charts, find, render, set};
use clap::{CommandFactory, Parser};
use heliograph_distributor::LoadArgs;
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

/// A pod whose volume takes more than its limit is evicted.
#[test]
fn the_snapshot_cache_fits_into_its_volume() {
    for (name, size) in [
        ("", Some(512)),
        ("minimal", Some(512)),
        ("everything", Some(2048)),
        ("alternatives", None),
    ] {
        let objects = case(name);
        let distributor = deployment(&objects, "-distributor");
        let args = distributor.args();
        let flag =
            |flag: &str| args.iter().find_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='));
        let told = flag("--snapshot-cache-size").map(|it| it.strip_suffix("MiB").unwrap());
        assert_eq!(told.map(|it| it.parse::<u64>().unwrap()), size, "{name}");
        let pod = distributor.pod().unwrap();
        let named = |list: &Value| {
            let all = list.as_array().unwrap().iter();
            all.clone().find(|it| it["name"] == "snapshot-cache").cloned()
        };
        let volume = named(&pod["volumes"]);
        assert_eq!(volume.is_some(), size.is_some(), "{name}");
        let (Some(volume), Some(size)) = (volume, size) else { continue };
        let limit = volume["emptyDir"]["sizeLimit"].as_str().unwrap();
        let limit: u64 = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        assert!(limit >= size + size / 4, "{name}: {limit} Mi for {size} MiB");
        let mount = named(&pod["containers"][0]["volumeMounts"]).unwrap();
        assert_eq!(mount["mountPath"].as_str(), flag("--snapshot-cache"), "{name}");
        assert!(mount["readOnly"].is_null(), "{name}");
    }
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

/// Pods that end are none to Kubernetes: without a pause, a rolling update would have all of them drain at once.
#[test]
fn a_rolling_update_waits_for_drains() {
    for settings in [&[][..], &["distributor.drainSeconds=900"]] {
        let objects = set(settings).unwrap();
        let distributor = deployment(&objects, "-distributor");
        let pause = distributor.value["spec"]["minReadySeconds"].as_u64().unwrap();
        assert!(distributor.args().contains(&format!("--drain-time={pause}s")));
        // Otherwise the API server refuses it.
        assert!(distributor.value["spec"]["progressDeadlineSeconds"].as_u64().unwrap() > pause);
    }
}

/// `scripts/install` finds the Job of the release by that.
#[test]
fn the_jobs_of_the_clock_are_not_the_releases() {
    let objects = case("");
    let managed = |metadata: &Value| metadata["labels"]["app.kubernetes.io/managed-by"].clone();
    let job = objects.iter().find(|object| object.kind() == "Job").unwrap();
    assert_eq!(managed(&job.value["metadata"]), "Helm");
    let clock = find(&objects, "CronJob", "heliograph-secrets");
    assert_eq!(managed(&clock.value["spec"]["jobTemplate"]["metadata"]), Value::Null);
    // Pods wait for the one, and the other must not wait for what never comes.
    assert_eq!(job.value["spec"]["activeDeadlineSeconds"], Value::Null);
    assert!(clock.value["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"].is_u64());
}

/// By what a pod takes: its request may be anything.
#[test]
fn distributors_are_scaled_by_cpu_whatever_they_request() {
    let objects = set(&["distributor.autoscaling.enabled=true"]).unwrap();
    let scaler = find(&objects, "HorizontalPodAutoscaler", "heliograph-distributor");
    let target = &scaler.value["spec"]["metrics"][0]["resource"]["target"];
    assert_eq!(*target, json!({ "type": "AverageValue", "averageValue": "700m" }));
    let objects = case("alternatives");
    let scaler = find(&objects, "ScaledObject", "heliograph-distributor");
    let triggers = &scaler.value["spec"]["triggers"];
    assert_eq!(triggers[0]["metadata"]["ignoreNullValues"], "false");
    assert_eq!(triggers[1]["metricType"], "AverageValue");
    assert_eq!(triggers[1]["metadata"], json!({ "value": "700m" }));
}

/// What a replica lets in fits into its memory, by the figures of docs/capacity.md.
#[test]
fn distributors_refuse_before_they_are_killed() {
    let objects = case("");
    let pod = deployment(&objects, "-distributor").pod().unwrap();
    let limit = pod["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap();
    let limit = limit.strip_suffix("Gi").unwrap().parse::<u64>().unwrap() << 30;
    let bounds = LoadArgs::DEFAULT;
    let streams = u64::try_from(bounds.max_streams).unwrap() * 66_000;
    let unauthenticated = u64::try_from(bounds.max_unauthenticated).unwrap() * 20_000;
    let received = 512 << 20;
    let memory = bounds.fleet_memory + bounds.subscription_memory + received;
    assert!(streams + unauthenticated + memory + 200_000_000 <= limit);
}

/// The flags of a distributor, as its chart gives them.
fn load(settings: &[&str]) -> LoadArgs {
    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        load: LoadArgs,
    }
    let objects = set(settings).unwrap();
    let known: BTreeSet<String> = Flags::command()
        .get_arguments()
        .filter_map(|it| it.get_long())
        .map(str::to_owned)
        .collect();
    let is_known = |arg: &String| {
        known.contains(arg.trim_start_matches("--").split('=').next().unwrap_or_default())
    };
    let args = deployment(&objects, "-distributor").args().into_iter().filter(is_known);
    Flags::try_parse_from([String::new()].into_iter().chain(args)).unwrap().load
}

#[test]
fn the_limits_of_distributors_are_those_of_the_program_unless_something_else_is_said() {
    let own = LoadArgs { drain_time: Some(LoadArgs::DRAIN_TIME), ..LoadArgs::DEFAULT };
    assert_eq!(load(&[]), own);
    let limits = |name: &str| format!("distributor.limits.{name}");
    let changed = [limits("streams=3000000"), limits("subscriptionMemory=1GiB")];
    let changed = load(&[&changed[0], &changed[1]]);
    let expected = LoadArgs { max_streams: 3_000_000, subscription_memory: 1 << 30, ..own.clone() };
    assert_eq!(changed, expected);
    // What is not said is the program's matter, and a flag that is given by hand is given once.
    let null = [limits("streams=null"), limits("fleetMemory=null"), limits("identityShare=null")];
    assert_eq!(load(&[&null[0], &null[1], &null[2]]), own);
    let args = load(&["distributor.extraArgs={--max-streams=7,--fleet-memory=1GiB}"]);
    assert_eq!(args, LoadArgs { max_streams: 7, fleet_memory: 1 << 30, ..own });
    let settings = [
        "distributor.extraEnv[0].name=HELIO_MAX_IDENTITY_SHARE",
        "distributor.extraEnv[0].value=50",
    ];
    let objects = set(&settings).unwrap();
    let args = deployment(&objects, "-distributor").args();
    assert!(!args.iter().any(|arg| arg.starts_with("--max-identity-share")), "{args:?}");
}

#[test]
fn envoys_run_as_the_pods_of_the_chart() {
    let flags = |settings: &[&str]| {
        let objects = set(settings).unwrap();
        let mut args = deployment(&objects, "-translator").args();
        args.retain(|arg| arg.starts_with("--proxy-user") || arg.starts_with("--proxy-group"));
        args
    };
    assert_eq!(flags(&[]), ["--proxy-user=65532", "--proxy-group=65532"]);
    let none = flags(&["pods.user=null", "pods.group=null"]);
    assert_eq!(none, ["--proxy-user=none", "--proxy-group=none"]);
    assert_eq!(flags(&["pods.group=7"]), ["--proxy-user=65532", "--proxy-group=7"]);
}

#[test]
fn addresses_are_no_names_of_a_certificate() {
    let objects = case("alternatives");
    let certificate = &find(&objects, "Certificate", "heliograph-xds").value["spec"];
    let host = "heliograph-distributor.heliograph-system.svc";
    assert_eq!(certificate["dnsNames"], json!([host, "*.xds.example.org"]));
    assert_eq!(certificate["ipAddresses"], json!(["192.0.2.10", "2001:db8::10"]));
}

/// Pods of a zone that is lost come up elsewhere.
#[test]
fn nodes_that_take_no_pods_are_not_waited_for() {
    let objects = case("everything");
    for part in ["-translator", "-distributor"] {
        let pod = deployment(&objects, part).pod().unwrap();
        for spread in pod["topologySpreadConstraints"].as_array().unwrap() {
            assert_eq!(spread["nodeTaintsPolicy"], "Honor", "{part}");
        }
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

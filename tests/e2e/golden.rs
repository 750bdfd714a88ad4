//! Every golden case, served to a real Envoy. `envoy --mode validate` would not do: it looks at static resources only.

use crate::harness::{Helio, get, until, write};
use heliograph_snapshot::ResourceType;
use hyper::StatusCode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Versions by type and name.
type Versions = BTreeMap<(&'static str, String), String>;

const MARK: &str = "\n#! ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_envoy_takes_every_golden_case_and_has_nothing_warming() {
    let _ports = take_turns();
    let cases = cases();
    assert!(cases.len() > 10, "only {} golden cases were found", cases.len());
    for path in cases {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let (input, output) = text.split_once(MARK).unwrap();
        let mut helio = Helio::start(|directory| write(directory, "case.yaml", input));
        helio.until_ready().await;
        for (fleet, expected) in expected(output) {
            let admin = helio.envoy_admin(&fleet);
            until(&format!("{name}: the Envoy of {fleet} holds what the case says"), || async {
                held(admin).await == expected
            })
            .await
            .unwrap_or_else(|late| panic!("{late}\nexpected {expected:#?}\n{}", helio.log()));
            assert_eq!(rejected_or_warming(admin).await, [""; 0], "{name}: {fleet}");
        }
        assert!(helio.end("TERM").await.success(), "{name}: {}", helio.log());
    }
}

/// The cases name their ports, so two runs of this test on one machine must not meet.
fn take_turns() -> fs::File {
    let lock = fs::File::create(std::env::temp_dir().join("heliograph-golden-ports")).unwrap();
    lock.lock().unwrap();
    lock
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../translator/gateway/tests/golden");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The versions that each fleet has in the case.
fn expected(output: &str) -> BTreeMap<String, Versions> {
    // The first line is the rest of the mark, and then come the sections.
    let (_, output) = output.split_once('\n').unwrap();
    let sections: Vec<Value> = serde_saphyr::from_multiple(output).unwrap();
    let fleets = sections.iter().find_map(|section| section.get("xds")).unwrap();
    let fleets = fleets.as_object().unwrap();
    fleets.iter().map(|(fleet, types)| (fleet.clone(), versions(types))).collect()
}

fn versions(types: &Value) -> Versions {
    let mut versions = Versions::new();
    for kind in ResourceType::ALL.map(ResourceType::as_str) {
        for (name, resource) in types.get(kind).and_then(Value::as_object).into_iter().flatten() {
            let version = match kind {
                // Envoy does not tell the versions of endpoints.
                "endpoints" => String::new(),
                _ => resource["version"].as_str().unwrap().to_owned(),
            };
            versions.insert((kind, name.clone()), version);
        }
    }
    versions
}

/// What an Envoy says that it holds and uses: nothing that is still warming.
async fn held(admin: u16) -> Versions {
    let Ok((StatusCode::OK, dump)) = get(admin, "/config_dump?include_eds").await else {
        return Versions::new();
    };
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let mut held = Versions::new();
    for config in dump["configs"].as_array().unwrap() {
        for (kind, list, name, version) in [
            ("cluster", "dynamic_active_clusters", "/cluster/name", "/version_info"),
            ("listener", "dynamic_listeners", "/name", "/active_state/version_info"),
            ("route", "dynamic_route_configs", "/route_config/name", "/version_info"),
            ("secret", "dynamic_active_secrets", "/name", "/version_info"),
            ("extension-config", "ecds_filters", "/ecds_filter/name", "/version_info"),
            ("endpoints", "dynamic_endpoint_configs", "/endpoint_config/cluster_name", ""),
        ] {
            for entry in config.get(list).and_then(Value::as_array).into_iter().flatten() {
                let text = |path| entry.pointer(path).and_then(Value::as_str);
                let Some(name) = text(name) else { continue };
                let version = if version.is_empty() { None } else { text(version) };
                held.insert((kind, name.to_owned()), version.unwrap_or_default().to_owned());
            }
        }
    }
    held
}

/// Counters of rejected updates and gauges of what is warming that are not zero.
async fn rejected_or_warming(admin: u16) -> Vec<String> {
    let (_, stats) = get(admin, "/stats?filter=update_rejected|warming").await.unwrap();
    assert!(stats.contains("cds.update_rejected: 0"), "no such counters: {stats}");
    stats.lines().filter(|line| !line.ends_with(": 0")).map(str::to_owned).collect()
}

//! What may be asked of the charts.

use crate::helm::{self, CASES, charts, set, values};
use serde_json::Value;
use std::fs;

#[test]
fn the_charts_have_nothing_to_complain_about() {
    for (chart, case) in
        CASES.iter().map(|case| ("heliograph", *case)).chain([("heliograph-crds", "")])
    {
        let output = helm::run(&["lint", "--strict"], chart, &values(case));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{chart} {case}: {said}");
    }
}

#[test]
fn the_charts_are_of_this_version() {
    for chart in ["heliograph", "heliograph-crds"] {
        let text = fs::read_to_string(charts().join(chart).join("Chart.yaml")).unwrap();
        let chart: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    }
}

/// helm holds the values to the schema; here the schema is held to the values, which are the documentation.
#[test]
fn what_the_schema_allows_is_in_the_values() {
    let file = |name: &str| fs::read_to_string(charts().join("heliograph").join(name)).unwrap();
    let values: Value = serde_saphyr::from_str(&file("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    let mut missing = Vec::new();
    compare(&schema, &schema, &values, "", &mut missing);
    missing.retain(|path| path != ".global");
    assert!(missing.is_empty(), "values.yaml does not have {missing:?}");
}

fn compare(root: &Value, schema: &Value, values: &Value, at: &str, missing: &mut Vec<String>) {
    let schema = match schema["$ref"].as_str() {
        None => schema,
        Some(name) => root.pointer(name.trim_start_matches('#')).unwrap(),
    };
    let Some(properties) = schema["properties"].as_object() else { return };
    assert_eq!(schema["additionalProperties"], false, "{at} takes what nobody reads");
    // An object of Kubernetes' own, empty by default.
    if values == &serde_json::json!({}) {
        return;
    }
    for (name, schema) in properties {
        let at = format!("{at}.{name}");
        match values.get(name) {
            None => missing.push(at),
            Some(values) => compare(root, schema, values, &at, missing),
        }
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    for (setting, expected) in [
        ("translator.replica=3", "additional properties 'replica' not allowed"),
        ("redis.builtin.image=x", "additional properties 'builtin' not allowed"),
        ("nothing=1", "additional properties 'nothing' not allowed"),
        ("access.rules[0].fleet=x", "additional properties 'fleet' not allowed"),
        ("distributor.drainSeconds=20s", "got string, want integer"),
        ("distributor.limits.maxStreams=1", "additional properties 'maxStreams' not allowed"),
        ("distributor.limits.identityShare=101", "maximum: got 101, want 100"),
        ("distributor.limits.subscriptionMemory=1g", "does not match pattern"),
        ("distributor.snapshotCache.sizeMiB=1Gi", "got string, want integer"),
        ("distributor.autoscaling.cpuPerPod=70%", "does not match pattern"),
        ("certificates.extraNames={https://xds.example.org}", "does not match pattern"),
        ("certificates.source=vault", "must be one of 'generated', 'cert-manager', 'existing'"),
        ("distributor.extraArgs={max-streams}", "does not match pattern"),
        ("translator.ignoreKinds={Pod}", "at '/translator/ignoreKinds/0'"),
    ] {
        let refused = set(&[setting]).unwrap_err();
        assert!(refused.contains(expected), "{setting}: {refused}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused_with_what_to_do() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["distributor.autoscaling.enabled=true", "distributor.keda.enabled=true"],
            "disable one of them",
        ),
        (
            &["distributor.autoscaling.enabled=true", "distributor.autoscaling.cpuPerPod=null"],
            "set cpuPerPod or streamsPerPod",
        ),
        (
            &["distributor.autoscaling.enabled=true", "distributor.autoscaling.minReplicas=11"],
            "minReplicas is more than maxReplicas",
        ),
        (&["access.tokens=jwks"], "set access.jwks.configMap and access.jwks.issuer"),
        (&["access.tokens=none"], "set access.tokens or access.clientCa.secret"),
        (&["access.tokens=none", "access.clientCa.secret=a"], "change one of them"),
        (&["proxies.credential=certificate"], "proxies.certificateSecret"),
        (
            &["proxies.credential=certificate", "proxies.certificateSecret=a"],
            "access.clientCa.secret",
        ),
        (&["certificates.source=existing"], "certificates.existing.secret"),
        (&["redis.auth.secret=a"], "is for your own Redis: set redis.url"),
        (&["redis.auth.usernameKey=a"], "is for your own Redis: set redis.url"),
        (&["redis.url=http://redis"], "redis.url must be one of"),
        (&["redis.url=redis://a", "redis.tls.caSecret=b"], "begin it with rediss instead of redis"),
        (
            &["redis.url=redis+cluster://a", "redis.tls.certificateSecret=b"],
            "begin it with rediss instead of redis",
        ),
        (&["redis.url=rediss://a", "redis.sentinelAuth.secret=b"], "set it to redis+sentinel://"),
        (
            &["redis.url=redis+sentinel://a/b", "redis.sentinelAuth.usernameKey=c"],
            "set redis.sentinelAuth.secret to its name",
        ),
        (&["redis.url=redis://a", "redis.auth.usernameKey=b"], "set redis.auth.secret"),
        (
            &["redis.url=redis://a", "redis.auth.usernameKey=b", "redis.translatorSecret=c"],
            "both redis.translatorSecret and redis.distributorSecret",
        ),
        (&["translator.serviceAccount.create=false"], "set name to an existing ServiceAccount"),
        (&["translator.limits.tableSize=61MiB"], "set it to at most 60MiB"),
    ];
    for (settings, expected) in cases {
        let refused = set(settings).unwrap_err();
        assert!(refused.contains(expected), "{settings:?}: {refused}");
    }
}

/// The translator would not start with more.
#[test]
fn a_table_has_the_size_that_the_store_takes() {
    for size in ["60MiB", "060MiB", "61440KiB", "0GiB", "1KiB"] {
        set(&[&format!("translator.limits.tableSize={size}")]).unwrap();
    }
    for size in ["61MiB", "070MiB", "61441KiB", "1GiB", "99999999999999999999KiB"] {
        let refused = set(&[&format!("translator.limits.tableSize={size}")]).unwrap_err();
        assert!(refused.contains(&format!("tableSize is {size}")), "{size}: {refused}");
    }
}

#[test]
fn credentials_of_each_program_need_no_others() {
    let own = ["redis.translatorSecret=a", "redis.distributorSecret=b"];
    let all = ["redis.url=redis://a", "redis.auth.usernameKey=user", own[0], own[1]];
    set(&all).unwrap();
}

/// What it renders is right, and yet not what was meant.
#[test]
fn that_nobody_may_scrape_is_said() {
    let blind = "Set networkPolicy.metricsFrom to Prometheus";
    assert!(!helm::notes(&[]).contains(blind));
    for on in [
        "monitoring.scrape=PodMonitor",
        "distributor.keda.enabled=true",
        "distributor.autoscaling.enabled=true,distributor.autoscaling.streamsPerPod=8000",
    ] {
        let said = helm::notes(&[on]);
        assert!(said.contains(blind), "{on}: {said}");
        for fits in ["networkPolicy.enabled=false", "networkPolicy.metricsFrom[0].podSelector.a=b"]
        {
            assert!(!helm::notes(&[on, fits]).contains(blind), "{on} {fits}");
        }
    }
}

#[test]
fn a_password_in_an_address_is_refused_and_not_repeated() {
    let refused = set(&["redis.url=redis://user:hunter2@redis"]).unwrap_err();
    assert!(refused.contains("redis.auth.secret"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

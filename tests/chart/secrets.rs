//! `helio secrets`, started as the chart's Job starts it and with the rights that the chart gives it.

use crate::helm::{NAMESPACE, Object, case, find};
use crate::kubernetes::Kubernetes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heliograph_store::keys::KeyRing;
use heliograph_testing::program;
use serde_json::{Value, json};
use std::process::{Command, Output};

const MADE: [&str; 4] =
    ["heliograph-keys", "heliograph-redis", "heliograph-xds", "heliograph-xds-authority"];

#[tokio::test]
async fn the_job_makes_what_is_missing_and_leaves_alone_what_is_there() {
    let kubernetes = Kubernetes::start().await;
    let job = prepare(&kubernetes).await;
    let made = run(&kubernetes, &job.args());
    assert!(made.status.success(), "{made:?}");

    let ring = data(&kubernetes, "heliograph-keys", "keys.yaml").await;
    assert!(KeyRing::parse(&ring).is_ok());
    let password = data(&kubernetes, "heliograph-redis", "password").await;
    assert_eq!(password.len(), 64);
    let configuration = data(&kubernetes, "heliograph-redis", "redis.conf").await;
    assert_eq!(configuration, format!("requirepass {password}\n"));
    let authority = data(&kubernetes, "heliograph-xds-authority", "tls.crt").await;
    assert_eq!(data(&kubernetes, "heliograph-xds", "ca.crt").await, authority);

    // What it says is for logs.
    let said = format!("{}{}", text(&made.stdout), text(&made.stderr));
    for secret in [password.as_str(), "PRIVATE KEY", "root:"] {
        assert!(!said.contains(secret), "{said}");
    }

    let before = versions(&kubernetes).await;
    let again = run(&kubernetes, &job.args());
    assert!(again.status.success(), "{again:?}");
    assert_eq!(versions(&kubernetes).await, before);
    assert!(text(&again.stdout).contains("is valid until"), "{again:?}");

    // The certificate is made for other names, by the same authority and without a word of the others.
    let mut args = job.args();
    args.push("--server-name=xds.example.org".to_owned());
    args.push("--server-name=2001:db8:0::10".to_owned());
    assert!(run(&kubernetes, &args).status.success());
    let after = versions(&kubernetes).await;
    assert!(run(&kubernetes, &args).status.success());
    assert_eq!(versions(&kubernetes).await, after, "it is for these names already");
    let changed = MADE.iter().zip(before.iter().zip(&after));
    let changed = changed.filter(|(_, (before, after))| before != after).map(|(name, _)| *name);
    let changed: Vec<&str> = changed.collect();
    assert_eq!(changed, ["heliograph-xds"]);
    assert_eq!(data(&kubernetes, "heliograph-xds", "ca.crt").await, authority);
}

#[tokio::test]
async fn what_cannot_be_done_is_said_in_a_line() {
    let kubernetes = Kubernetes::start().await;
    let job = prepare(&kubernetes).await;
    let secret =
        |name: &str, data: Value| json!({ "metadata": { "name": name }, "stringData": data });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let cases = [
        // No right to read others.
        (
            &["--key-ring=other"][..],
            "cannot read the Secret heliograph-system/other: secrets \"other\" is forbidden",
        ),
        (&["--key-ring=heliograph-keys"], "Secret heliograph-system/heliograph-keys, keys.yaml"),
        (
            &["--redis=heliograph-redis"],
            "Secret heliograph-system/heliograph-redis has no redis.conf",
        ),
        (
            &[
                "--certificate=heliograph-xds",
                "--authority=heliograph-xds-authority",
                "--server-name=a",
            ],
            "Secret heliograph-system/heliograph-xds-authority: delete this Secret, and run this command again for a new CA",
        ),
        (&[], "set at least one of --key-ring"),
    ];
    kubernetes.create(&path, secret("heliograph-keys", json!({ "keys.yaml": "hunter2" }))).await;
    kubernetes.create(&path, secret("heliograph-redis", json!({ "password": "hunter2" }))).await;
    let authority = json!({ "tls.crt": "hunter2", "tls.key": "hunter2" });
    kubernetes.create(&path, secret("heliograph-xds-authority", authority)).await;
    assert_eq!(job.args()[..2], ["secrets", "--namespace=heliograph-system"]);
    for (flags, expected) in cases {
        let mut args = job.args()[..2].to_vec();
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let refused = run(&kubernetes, &args);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.lines().count() == 1 && said.contains(expected), "{flags:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

/// The namespace with the account of the Job and its rights.
async fn prepare(kubernetes: &Kubernetes) -> Object {
    kubernetes.create("/api/v1/namespaces", json!({ "metadata": { "name": NAMESPACE } })).await;
    let objects = case("");
    for (kind, path) in [
        ("ServiceAccount", "/api/v1/namespaces/heliograph-system/serviceaccounts"),
        ("Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/heliograph-system/roles"),
        (
            "RoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/heliograph-system/rolebindings",
        ),
    ] {
        let object = find(&objects, kind, "heliograph-secrets");
        kubernetes.create(path, object.value.clone()).await;
    }
    let token = kubernetes.token(NAMESPACE, "heliograph-secrets", &[]).await;
    kubernetes.write_kubeconfig("job", &token);
    objects.into_iter().find(|object| object.kind() == "Job").unwrap()
}

fn run(kubernetes: &Kubernetes, args: &[String]) -> Output {
    Command::new(program("helio"))
        .args(args)
        .env("HELIO_KUBECONFIG", kubernetes.file("job"))
        .output()
        .unwrap()
}

async fn secret(kubernetes: &Kubernetes, name: &str) -> Value {
    kubernetes.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}")).await
}

async fn data(kubernetes: &Kubernetes, name: &str, key: &str) -> String {
    let data = secret(kubernetes, name).await["data"][key].as_str().unwrap().to_owned();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

async fn versions(kubernetes: &Kubernetes) -> Vec<Value> {
    let mut versions = Vec::new();
    for name in MADE {
        versions.push(secret(kubernetes, name).await["metadata"]["resourceVersion"].clone());
    }
    versions
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

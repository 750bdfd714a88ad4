//! `helio` in a cluster: it finds the pods, and asks their admin ports through the API server. The API server is a real one,
//! with its roles; the kubelet behind it is ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kubelet;
#[path = "../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;

use heliograph_testing::program;
use kubelet::Kubelet;
use kubernetes::{Kubernetes, until};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{fs, io};
use tempfile::TempDir;

const NAMESPACE: &str = "heliograph-system";

/// A program that stands for the translator and the distributor of a pod.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(folder: &Path, name: &str) -> Self {
        let log = folder.join(name);
        let mut command = Command::new(program("helio"));
        command.args(["standalone", "--xds-address=127.0.0.1:0", "--admin-address=127.0.0.1:0"]);
        command
            .arg("--dir")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart"));
        let output = fs::File::create(&log).unwrap();
        let child = command.stdin(Stdio::null()).stderr(output).spawn().unwrap();
        Self { child, log }
    }

    async fn admin(&self) -> u16 {
        let port = || {
            let text = fs::read_to_string(&self.log).unwrap();
            let (_, rest) = text.split_once(" admin=127.0.0.1:")?;
            rest.split(|char: char| !char.is_ascii_digit()).next()?.parse::<u16>().ok()
        };
        until("the program listens", async || port().is_some()).await;
        port().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pod of ours on the node.
async fn create_pod(api: &Kubernetes, name: &str, component: &str, phase: &str) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let labels =
        json!({"app.kubernetes.io/name": "heliograph", "app.kubernetes.io/component": component});
    let container = json!({
        "name": component, "image": format!("heliograph/{component}:test"),
        "ports": [{"name": "metrics", "containerPort": 1}, {"name": "admin", "containerPort": 19000}],
    });
    let other = json!({"name": "mesh", "image": "somebody/mesh:test"});
    let pod = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "node", "containers": [other, container], "automountServiceAccountToken": false},
    });
    api.create(&path, pod).await;
    let started = json!({"name": component, "image": "test", "imageID": "", "ready": true, "restartCount": 0});
    let status = json!({"status": {"phase": phase, "containerStatuses": [started]}});
    api.patch(&format!("{path}/{name}/status"), status).await;
}

/// What the kubelet says of a pod that ended, and why; `None` of its container if it knows nothing of that any more.
async fn end_pod(
    api: &Kubernetes,
    name: &str,
    component: &str,
    pod: Value,
    container: Option<Value>,
) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
    let started = json!({"name": component, "image": "test", "imageID": "", "ready": false, "restartCount": 0});
    let status = container.map(|mut status| {
        let fields = started.as_object().unwrap().clone().into_iter();
        let given = status.as_object_mut().unwrap();
        for (name, value) in fields {
            given.entry(name).or_insert(value);
        }
        status
    });
    let mut pod = pod;
    pod["containerStatuses"] = json!(Vec::from_iter(status));
    api.patch(&path, json!({"status": pod})).await;
}

/// Somebody with these rights in the namespace, and the kubeconfig of theirs.
async fn somebody(api: &Kubernetes, name: &str, rules: Value) -> PathBuf {
    api.create_account(NAMESPACE, name).await;
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    api.create(&format!("{roles}/roles"), json!({"metadata": {"name": name}, "rules": rules}))
        .await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    });
    api.create(&format!("{roles}/rolebindings"), binding).await;
    let token = api.token(NAMESPACE, name, &[]).await;
    api.write_kubeconfig(name, &token)
}

fn helio(kubeconfig: &Path, args: &[&str]) -> Output {
    Command::new(program("helio"))
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_cluster_are_asked_through_its_api_server() {
    let (api, kubelet, folder) =
        (Kubernetes::start().await, Kubelet::start().await, TempDir::new().unwrap());
    api.create("/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE}})).await;
    api.create_account(NAMESPACE, "default").await;
    api.create("/api/v1/nodes", json!({"metadata": {"name": "node"}})).await;
    let address = json!({"type": "InternalIP", "address": "127.0.0.1"});
    let endpoints = json!({"kubeletEndpoint": {"Port": kubelet.port}});
    let status = json!({"status": {"addresses": [address], "daemonEndpoints": endpoints}});
    api.patch("/api/v1/nodes/node/status", status).await;

    // What docs/cli.md says is enough, and what is not.
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]});
    let forward =
        json!({"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]});
    let logs = json!({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]});
    let operator = somebody(&api, "operator", json!([pods, forward, logs])).await;
    let onlooker = somebody(&api, "onlooker", json!([pods])).await;
    let stranger = somebody(&api, "stranger", json!([])).await;

    let none = helio(&operator, &["status"]);
    assert!(
        stderr(&none).contains("no pod in the namespace heliograph-system"),
        "{}",
        stderr(&none)
    );
    let refused = helio(&stranger, &["status"]);
    assert!(stderr(&refused).contains("is forbidden"), "{}", stderr(&refused));

    let programs = [Program::start(folder.path(), "one"), Program::start(folder.path(), "two")];
    for (name, program) in ["distributor-a", "translator-a"].iter().zip(&programs) {
        kubelet.runs(name, program.admin().await);
        create_pod(&api, name, name.trim_end_matches("-a"), "Running").await;
    }
    create_pod(&api, "distributor-b", "distributor", "Pending").await;
    create_pod(&api, "distributor-c", "distributor", "Running").await;
    create_pod(&api, "redis", "redis", "Running").await;
    // Evicted, or ended with its node: it stays in the list, and is not missing.
    create_pod(&api, "distributor-d", "distributor", "Failed").await;
    create_pod(&api, "translator-d", "translator", "Succeeded").await;
    create_pod(&api, "distributor-e", "distributor", "Running").await;
    let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let status = json!({"state": killed, "lastState": killed, "restartCount": 1});
    end_pod(&api, "distributor-d", "distributor", json!({"phase": "Failed"}), Some(status)).await;
    let completed = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let status = json!({"phase": "Succeeded"});
    end_pod(&api, "translator-d", "translator", status, Some(completed)).await;
    let evicted =
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node had no memory left"});
    end_pod(&api, "distributor-e", "distributor", evicted, None).await;
    // One of those that run was killed, and ended again before it was started the third time.
    let status = json!({"state": killed, "lastState": killed, "restartCount": 1});
    end_pod(&api, "distributor-c", "distributor", json!({"phase": "Running"}), Some(status)).await;

    let refused = helio(&onlooker, &["proxies"]);
    assert!(stderr(&refused).contains("pods/portforward"), "{}", stderr(&refused));
    assert!(stderr(&refused).ends_with("error: no program responded\n"), "{}", stderr(&refused));

    let output = helio(&operator, &["status", "-o", "json", "--timeout", "30s"]);
    let status: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!(status["distributors"][0]["name"], "distributor-a", "{status}");
    assert_eq!(status["distributors"][1]["name"], "translator-a", "{status}");
    assert_eq!(status["fleets"][0]["name"], "default/web", "{status}");
    let silent = &status["silent"];
    assert_eq!(
        silent[0],
        json!({"name": "distributor-b", "why": "its pod is not running: Pending"})
    );
    assert_eq!(
        silent[1],
        json!({"name": "distributor-c", "why": "connect: connection refused in the pod"})
    );
    assert_eq!(silent.as_array().unwrap().len(), 2, "{status}");
    assert_eq!(output.status.code(), Some(1));

    let file = folder.path().join("bundle.tar.gz");
    let output = helio(&operator, &["collect", "--file", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let files = unpacked(&fs::read(&file).unwrap());
    let of = |end: &str| {
        files.iter().find(|(path, _)| path.ends_with(end)).map(|(_, text)| text.as_str())
    };
    let expected = kubelet::LOG.replace("in-the-log-by-mistake", "[redacted]");
    assert_eq!(of("/logs/distributor-a.txt"), Some(expected.as_str()));
    assert!(of("/pods.json").unwrap().contains("Pending"));
    assert!(of("/about.json").unwrap().contains("its pod is not running: Pending"));

    // Those that ended are in it, as far as the API server has them, and say so.
    assert_eq!(of("/logs/ended/distributor-d.txt"), Some(expected.as_str()));
    assert_eq!(of("/logs/ended/translator-d.txt"), Some(expected.as_str()));
    assert_eq!(of("/logs/ended/distributor-d-before.txt"), Some(kubelet::LOG_BEFORE));
    assert_eq!(of("/logs/ended/translator-d-before.txt"), None);
    assert_eq!(of("/logs/distributor-c-before.txt"), Some(kubelet::LOG_BEFORE));
    assert_eq!(of("/logs/distributor-d.txt"), None);
    let gone = of("/logs/ended/distributor-e.txt").unwrap();
    assert!(
        gone.starts_with("it cannot be read: ") && gone.contains("pods/log distributor-e"),
        "{gone}"
    );
    let pods: Vec<Value> = serde_json::from_str(of("/pods.json").unwrap()).unwrap();
    let pod = |name: &str| pods.iter().find(|pod| pod["name"] == name).unwrap();
    for (name, ended, phase) in [
        ("distributor-a", false, "Running"),
        ("distributor-c", false, "Running"),
        ("distributor-d", true, "Failed"),
        ("distributor-e", true, "Failed"),
        ("translator-d", true, "Succeeded"),
    ] {
        assert_eq!((&pod(name)["ended"], &pod(name)["phase"]), (&json!(ended), &json!(phase)));
    }
    let killed = json!({"code": 137, "reason": "OOMKilled"});
    for name in ["distributor-c", "distributor-d"] {
        let container = &pod(name)["containers"][0];
        assert_eq!((&container["exit"], &container["lastExit"]), (&killed, &killed), "{container}");
    }
    assert_eq!(pod("distributor-e")["reason"], "Evicted");
    assert_eq!(pod("distributor-e")["message"], "The node had no memory left");
    // The command does not wait for pods that have ended.
    assert!(
        !stderr(&output).contains("-d") && !stderr(&output).contains("-e "),
        "{}",
        stderr(&output)
    );
    let about: Value = serde_json::from_str(of("/about.json").unwrap()).unwrap();
    assert_eq!(about["ended"], json!(["distributor-d", "distributor-e", "translator-d"]));

    // Where all have ended, there is still something to look at.
    for name in ["distributor-a", "distributor-b", "distributor-c", "translator-a"] {
        let component = name.split_once('-').unwrap().0;
        end_pod(&api, name, component, json!({"phase": "Failed"}), None).await;
    }
    let none = helio(&operator, &["status"]);
    assert!(stderr(&none).contains("no pod in the namespace"), "{}", stderr(&none));
    let file = folder.path().join("ended.tar.gz");
    let output = helio(&operator, &["collect", "--file", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let files = unpacked(&fs::read(&file).unwrap());
    assert_eq!(files.iter().filter(|(path, _)| path.contains("/logs/ended/")).count(), 8);
}

/// The files of an archive, with their paths.
fn unpacked(archive: &[u8]) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        (path, io::read_to_string(&mut entry).unwrap())
    });
    entries.collect()
}

//! What a translator holds of Secrets that nothing names, and of ConfigMaps that one namespace names by the hundred.

use super::*;
use rcgen::CertifiedKey;

const SECRETS: usize = 200;
const BYTES: usize = 1_000_000;

/// How much memory a process had at most, in MiB.
fn peak(translator: &Translator) -> u64 {
    let path = format!("/proc/{}/status", translator.program.id());
    let status = fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// 200 MB of Secrets, in a cluster of their own: every list of them costs its API server as much.
#[tokio::test]
async fn secrets_that_nothing_names_take_no_memory() {
    let cluster = Kubernetes::start().await;
    cluster.install_crds().await;
    let site = Site::over(Arc::new(cluster)).await;
    let first = site.translator("first");
    first.leads().await;
    site.newer(None).await;
    let before = peak(&first);

    let secrets = format!("/api/v1/namespaces/{}/secrets", site.namespace);
    let much = "x".repeat(BYTES);
    for number in 0..SECRETS {
        let pair = json!({ "tls.crt": much, "tls.key": "" });
        let metadata = json!({ "name": format!("pair-{number}") });
        let secret =
            json!({ "metadata": metadata, "type": "kubernetes.io/tls", "stringData": pair });
        site.cluster.create(&secrets, secret).await;
    }
    let all = &format!("heliograph_kubernetes_objects{{kind=\"Secret\"}} {SECRETS}\n");
    until("it knows all", async || first.says("/metrics", all).await).await;
    let watched = peak(&first);
    assert!(watched < before + 10, "{before} MiB, and {watched} MiB with {SECRETS} Secrets");

    // One that starts lists them.
    let second = site.translator("second");
    second.is_ready().await;
    until("it knows all", async || second.says("/metrics", all).await).await;
    let listed = peak(&second);
    assert!(
        listed < before + 10,
        "{before} MiB, and {listed} MiB of one that lists {SECRETS} Secrets"
    );
    assert!(
        second.says("/metrics", "heliograph_kubernetes_fetched_objects{kind=\"Secret\"} 0\n").await
    );
}

/// What one namespace has the translator fetch, 50 MB of it.
const CONFIG_MAPS: usize = 200;
const CONFIG_MAP_BYTES: usize = 250_000;

/// Of 16 MiB, the budget of a namespace.
const WITHIN_BUDGET: usize = (16 << 20) / CONFIG_MAP_BYTES;

/// In MiB: the budget, and what eight fetches and the objects themselves take.
const MARGIN: u64 = 16 + 20;

impl Site {
    /// A namespace of another tenant with ConfigMaps, each of which a BackendTLSPolicy names.
    async fn flood(&self) {
        let namespace = self.cluster.create_namespace("flood").await;
        let labels = json!({ "metadata": { "labels": { "site": self.namespace } } });
        self.cluster.patch(&format!("/api/v1/namespaces/{namespace}"), labels).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let policies =
            format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/backendtlspolicies");
        let much = "x".repeat(CONFIG_MAP_BYTES);
        for number in 0..CONFIG_MAPS {
            let name = format!("many-{number}");
            let map = json!({ "metadata": { "name": name }, "data": { "ca.crt": much } });
            self.cluster.create(&maps, map).await;
            let authority = json!({ "group": "", "kind": "ConfigMap", "name": name });
            let policy = json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
                "metadata": { "name": name },
                "spec": {
                    "targetRefs": [{ "group": "", "kind": "Service", "name": name }],
                    "validation": { "caCertificateRefs": [authority], "hostname": "shop.example" },
                },
            });
            self.cluster.create(&policies, policy).await;
        }
    }

    /// A Gateway whose listener has a certificate, which Envoy takes.
    async fn has_a_certificate(&self) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
        let data = json!({ "tls.crt": cert.pem(), "tls.key": signing_key.serialize_pem() });
        let metadata = json!({ "name": "pair" });
        let secret =
            json!({ "metadata": metadata, "type": "kubernetes.io/tls", "stringData": data });
        self.cluster
            .create(&format!("/api/v1/namespaces/{}/secrets", self.namespace), secret)
            .await;
        let tls = json!({ "certificateRefs": [{ "name": "pair" }] });
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "edge" },
            "spec": {
                "gatewayClassName": "heliograph",
                "listeners": [{ "name": "https", "protocol": "HTTPS", "port": 8443, "tls": tls }],
            },
        });
        self.cluster.apply(&self.gateway(), gateway).await;
        until("its listener has a certificate", async || {
            let gateway = self.cluster.get(&self.gateway()).await;
            let conditions = &gateway["status"]["listeners"][0]["conditions"];
            let conditions = conditions.as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "ResolvedRefs" && it["status"] == "True")
        })
        .await;
    }
}

/// One tenant names 50 MB, and has its budget of that; another tenant's Gateway has its certificate.
#[tokio::test]
async fn what_one_namespace_names_takes_no_more_memory_than_its_budget() {
    let cluster = Kubernetes::start().await;
    cluster.install_crds().await;
    let site = Site::over(Arc::new(cluster)).await;
    let first = site.translator("first");
    first.leads().await;
    site.newer(None).await;
    let before = peak(&first);

    site.flood().await;
    site.has_a_certificate().await;
    let counted = |metric: &str, count: usize| {
        format!("heliograph_kubernetes_{metric}_objects{{kind=\"ConfigMap\"}} {count}\n")
    };
    let fetched = &counted("fetched", WITHIN_BUDGET);
    let refused = &counted("withheld", CONFIG_MAPS - WITHIN_BUDGET);
    let is_bounded = async |translator: &Translator| {
        translator.says("/metrics", fetched).await && translator.says("/metrics", refused).await
    };
    until("it holds what the budget allows", async || is_bounded(&first).await).await;
    let watched = peak(&first);
    assert!(watched < before + MARGIN, "{before} MiB, and {watched} MiB with what is named");

    // One that starts fetches no more than that.
    let second = site.translator("second");
    second.is_ready().await;
    until("it holds what the budget allows", async || is_bounded(&second).await).await;
    let listed = peak(&second);
    assert!(listed < before + MARGIN, "{before} MiB, and {listed} MiB of one that starts");
}

//! What a translator holds of Secrets that nothing names.

use super::*;

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

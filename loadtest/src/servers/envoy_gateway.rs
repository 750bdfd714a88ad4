use super::certificates::Certificates;
use super::kubernetes::Kubernetes;
use super::{Program, Programs, ServersError, Start, url};
use crate::security::Security;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Envoy Gateway over a Kubernetes API, outside of a cluster.
#[derive(Debug)]
pub(crate) struct EnvoyGateway {
    program: Program,
    path: PathBuf,
    certificates: Certificates,
    _folder: TempDir,
}

pub(crate) const CONTROLLER_NAME: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const NAMESPACE: &str = "envoy-gateway-system";
/// It listens there, and nothing can tell it otherwise.
const ADS: &str = "127.0.0.1:18000";
const READY: &str = "127.0.0.1:8081";

/// It reads its certificates in `/certs`, and nothing can tell it otherwise: so it sees a root folder with all that the
/// real one has, and that. The arguments are the new root, the certificates and a command.
const WITH_CERTIFICATES: &str = r#"
set -e
root=$1 certificates=$2
shift 2
mount -t tmpfs none "$root"
for entry in /*; do
    if [ -L "$entry" ]; then
        cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ] && [ "$entry" != /certs ]; then
        mkdir "$root$entry"
        mount --rbind "$entry" "$root$entry"
    fi
done
mkdir "$root/certs"
cp "$certificates"/* "$root/certs/"
exec chroot "$root" "$@"
"#;

impl EnvoyGateway {
    pub(crate) async fn start(
        programs: &Programs,
        kubernetes: &Kubernetes,
        cpu: Option<usize>,
    ) -> Result<Self, ServersError> {
        let advice = "`scripts/tools envoy-gateway` builds it and prints where it is";
        let path = programs.find("envoy-gateway", "ENVOY_GATEWAY", advice)?;
        kubernetes.install_crds(&path.with_file_name("crds")).await?;
        let certificates = Certificates::make()?;
        let failed = |cause| ServersError::Prepare { path: std::env::temp_dir(), cause };
        let folder = tempfile::Builder::new().prefix("loadtest-").tempdir().map_err(failed)?;
        prepare(folder.path(), &certificates).map_err(failed)?;
        create_secrets(kubernetes, &certificates).await?;
        let at = |name: &str| folder.path().join(name);
        let (root, certs, config) = (at("root"), at("certs"), at("config.yaml"));
        let mut kubeconfig = std::ffi::OsString::from("KUBECONFIG=");
        kubeconfig.push(kubernetes.kubeconfig());
        let parent = std::process::id().to_string();
        let arguments = vec![
            OsStr::new("--user"),
            OsStr::new("--map-root-user"),
            OsStr::new("--mount"),
            OsStr::new("sh"),
            OsStr::new("-c"),
            OsStr::new(WITH_CERTIFICATES),
            OsStr::new("sh"),
            root.as_os_str(),
            certs.as_os_str(),
            // To become another user unties it.
            programs.loadtest().as_os_str(),
            OsStr::new("tied"),
            OsStr::new("--parent"),
            OsStr::new(&parent),
            OsStr::new("--"),
            OsStr::new("env"),
            &kubeconfig,
            path.as_os_str(),
            OsStr::new("server"),
            OsStr::new("--config-path"),
            config.as_os_str(),
        ];
        let unshare = PathBuf::from("unshare");
        let start = Start { name: "envoy-gateway", program: &unshare, arguments, cpu };
        let mut program = Program::start(programs, start)?;
        program.is("it is ready", is_ready).await?;
        Ok(Self { program, path, certificates, _folder: folder })
    }

    pub(super) fn address(&self) -> String {
        url(true, ADS)
    }

    pub(super) fn security(&self) -> Security {
        self.certificates.of_clients()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    pub(super) async fn versions(&self) -> BTreeMap<String, String> {
        let mut command = tokio::process::Command::new(&self.path);
        let output = command.arg("version").kill_on_drop(true).output().await.ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let version = text.and_then(|text| {
            let line =
                text.lines().find_map(|line| line.strip_prefix("ENVOY_GATEWAY_VERSION: "))?;
            Some(line.trim().to_owned())
        });
        version.map(|version| ("envoy-gateway".to_owned(), version)).into_iter().collect()
    }
}

fn prepare(folder: &Path, certificates: &Certificates) -> std::io::Result<()> {
    let certs = folder.join("certs");
    std::fs::create_dir(folder.join("root"))?;
    std::fs::create_dir(&certs)?;
    std::fs::copy(&certificates.authority, certs.join("ca.crt"))?;
    std::fs::copy(&certificates.server.certificate, certs.join("tls.crt"))?;
    std::fs::copy(&certificates.server.key, certs.join("tls.key"))?;
    // As its chart has it, but for the webhook, which adds zones to pods that do not run here.
    let config = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": { "controllerName": CONTROLLER_NAME },
        "provider": { "type": "Kubernetes", "kubernetes": {
            "shutdownManager": { "image": "none.invalid/gateway" },
            "proxyTopologyInjector": { "disabled": true },
        } },
    });
    std::fs::write(folder.join("config.yaml"), config.to_string())
}

/// As its chart makes them.
async fn create_secrets(
    kubernetes: &Kubernetes,
    certificates: &Certificates,
) -> Result<(), ServersError> {
    let read = |path: &Path| {
        let failed = |cause| ServersError::Prepare { path: path.to_owned(), cause };
        std::fs::read_to_string(path).map_err(failed)
    };
    let tls = json!({
        "ca.crt": read(&certificates.authority)?,
        "tls.crt": read(&certificates.server.certificate)?,
        "tls.key": read(&certificates.server.key)?,
    });
    let named =
        |name: &str, data: &Value| json!({ "metadata": { "name": name }, "stringData": data });
    kubernetes.create("/api/v1/namespaces", &json!({ "metadata": { "name": NAMESPACE } })).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    for name in ["envoy-gateway", "envoy", "envoy-rate-limit"] {
        kubernetes.create(&path, &named(name, &tls)).await?;
    }
    let hmac = json!({ "hmac-secret": "0123456789abcdef0123456789abcdef" });
    kubernetes.create(&path, &named("envoy-oidc-hmac", &hmac)).await?;
    Ok(())
}

async fn is_ready() -> bool {
    match READY.parse() {
        Ok(address) => super::heliograph::is_ready(address).await,
        Err(_) => false,
    }
}

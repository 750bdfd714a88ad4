//! The programs in a cluster. Their admin ports are asked as `kubectl port-forward` does: through the API server and the
//! kubelet, so that no port has to be open to anybody, and the cluster decides who may.

use super::{Connection, SourcesArgs};
use anyhow::{Context, bail};
use heliograph_translator::Access;
use k8s_openapi::api::core::v1 as core;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};

/// A translator or a distributor.
#[derive(Clone)]
pub(crate) struct Pod {
    pods: Api<core::Pod>,
    pub(crate) object: core::Pod,
}

/// As the manifests and the chart have them.
const OURS: &str =
    "app.kubernetes.io/name=heliograph,app.kubernetes.io/component in (translator, distributor)";
/// Pods that were evicted or whose node went stay in the list until somebody deletes them; others run in their place.
const NOT_ENDED: &str = "status.phase!=Failed,status.phase!=Succeeded";
/// What the admin port is called in a pod.
const PORT_NAME: &str = "admin";
const PORT: u16 = 19000;

pub(super) async fn pods(args: &SourcesArgs) -> anyhow::Result<Vec<Pod>> {
    let client = client(args).await?;
    let pods: Api<core::Pod> = Api::namespaced(client, &args.namespace);
    let ours = ListParams::default().labels(OURS).fields(NOT_ENDED);
    let found = pods.list(&ours).await.with_context(|| {
        format!("the pods of the namespace {} cannot be listed", args.namespace)
    })?;
    if found.items.is_empty() {
        bail!(
            "no pod in the namespace {} is a translator or a distributor: say which namespace it is with --namespace, or \
             name admin ports with --admin",
            args.namespace
        );
    }
    Ok(found.items.into_iter().map(|object| Pod { pods: pods.clone(), object }).collect())
}

async fn client(args: &SourcesArgs) -> anyhow::Result<Client> {
    let (file, context) = (args.kubeconfig.as_deref(), args.kube_context.as_deref());
    let access = match Access::read(file, context).await {
        Ok(access) => access,
        Err(error) if file.is_some() => return Err(error.into()),
        // In a pod there is none, and none is needed.
        Err(error) => Access::of_pod().map_err(|_| error).context(
            "there is no cluster to ask: name admin ports with --admin http://HOST:PORT, or a kubeconfig with --kubeconfig",
        )?,
    };
    access.client().context("no client for the Kubernetes API")
}

impl Pod {
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let status = self.object.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
        if phase != "Running" {
            bail!("its pod is not running: {phase}");
        }
        let port = self.port();
        let mut forwarder = self
            .pods
            .portforward(self.name(), &[port])
            .await
            .context("no way through the API server (pods/portforward)")?;
        let stream = forwarder.take_stream(port).context("no way to its port")?;
        let connection = Connection::over(stream, "localhost", "").await?;
        Ok(match forwarder.take_error(port) {
            Some(why) => connection.broken_by(why),
            None => connection,
        })
    }

    fn port(&self) -> u16 {
        let containers = self.object.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        let admin = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
        admin.and_then(|port| port.container_port.try_into().ok()).unwrap_or(PORT)
    }

    /// The newest lines of its log, of its present container or the one before that ended.
    pub(crate) async fn log(&self, lines: i64, previous: bool) -> anyhow::Result<String> {
        let params = LogParams { tail_lines: Some(lines), previous, ..LogParams::default() };
        Ok(self.pods.logs(self.name(), &params).await?)
    }
}

impl std::fmt::Debug for Pod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pod({})", self.name())
    }
}

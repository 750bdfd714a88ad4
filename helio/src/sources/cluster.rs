//! The programs in a cluster. Their admin ports are reached as `kubectl port-forward` does: through the API server and
//! the kubelet, so that no port has to be open, and the cluster's roles decide who may connect.

use super::{AdminConnection, SourcesArgs};
use anyhow::{Context, anyhow, bail};
use heliograph_translator::Access;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
/// Pods that were evicted or whose node is gone stay in the list until they are deleted; others run in their place.
const NOT_ENDED: &str = "status.phase!=Failed,status.phase!=Succeeded";
/// Of those no more are of interest than these, the newest.
const ENDED: usize = 50;
const COMPONENT: &str = "app.kubernetes.io/component";
/// The name of the admin port in a pod.
const PORT_NAME: &str = "admin";
const PORT: u16 = 19000;

/// Those that ended, if they are wanted, and the others.
pub(super) async fn pods(
    args: &SourcesArgs,
    with_ended: bool,
) -> anyhow::Result<(Vec<Pod>, Vec<Pod>)> {
    let client = client(args).await?;
    let pods: Api<core::Pod> = Api::namespaced(client, &args.namespace);
    let ours = ListParams::default().labels(OURS);
    let ours = if with_ended { ours } else { ours.fields(NOT_ENDED) };
    let found = pods.list(&ours).await.with_context(|| {
        format!("the pods of the namespace {} cannot be listed", args.namespace)
    })?;
    if found.items.is_empty() {
        bail!(
            "no pod in the namespace {} is a translator or a distributor: say which namespace it is with --namespace, or \
             set --admin http://HOST:PORT",
            args.namespace
        );
    }
    let found = found.items.into_iter().map(|object| Pod { pods: pods.clone(), object });
    let (mut ended, running): (Vec<Pod>, Vec<Pod>) = found.partition(Pod::has_ended);
    ended.sort_by(|one, other| other.created().cmp(&one.created()));
    ended.truncate(ENDED);
    ended.sort_by(|one, other| one.name().cmp(other.name()));
    Ok((ended, running))
}

async fn client(args: &SourcesArgs) -> anyhow::Result<Client> {
    let (file, context) = (args.kubeconfig.as_deref(), args.kube_context.as_deref());
    let access = match Access::read(file, context).await {
        Ok(access) => access,
        Err(error) if file.is_some() => return Err(error.into()),
        // In a pod there is none, and none is needed.
        Err(error) => Access::of_pod().map_err(|_| error).context(
            "there is no cluster to query: set --admin http://HOST:PORT or --kubeconfig",
        )?,
    };
    access.client().context("cannot create a client for the Kubernetes API")
}

impl Pod {
    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// It will never run again.
    pub(crate) fn has_ended(&self) -> bool {
        Self::is_over(&self.object)
    }

    pub(crate) fn is_over(pod: &core::Pod) -> bool {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Failed" | "Succeeded"))
    }

    fn created(&self) -> Option<&Time> {
        self.object.metadata.creation_timestamp.as_ref()
    }

    pub(super) async fn connect(&self) -> anyhow::Result<AdminConnection> {
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
            .context("port forwarding through the API server failed (pods/portforward)")?;
        let stream = forwarder.take_stream(port).context("no way to its port")?;
        let connection = AdminConnection::over(stream, "localhost", "").await?;
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

    /// The container of ours: others may have been put beside it, and their logs are not ours to read.
    fn container(&self) -> Option<&str> {
        let component = self.object.metadata.labels.as_ref().and_then(|it| it.get(COMPONENT));
        let containers = self.object.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let ours = containers.iter().find(|it| component.is_some_and(|name| *name == it.name));
        ours.or_else(|| containers.first()).map(|container| container.name.as_str())
    }

    /// The newest lines of its log, of its present container or the one before that ended.
    pub(crate) async fn log(&self, lines: i64, previous: bool) -> anyhow::Result<String> {
        let container = self.container().map(str::to_owned);
        let params =
            LogParams { container, tail_lines: Some(lines), previous, ..LogParams::default() };
        self.pods.logs(self.name(), &params).await.map_err(|error| match error {
            // The API server's own words, without the wrapping that the client has around them.
            kube::Error::Api(status) => anyhow!(status.message),
            error => error.into(),
        })
    }
}

impl std::fmt::Debug for Pod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pod({})", self.name())
    }
}

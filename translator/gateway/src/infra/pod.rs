use super::bootstrap::{BOOTSTRAP_FILE, Bootstrap, Distributors, OwnPorts, READINESS, STATS, Tls};
use super::render::Renderer;
use super::{ProxyIdentity, drain};
use crate::objects::proxy_config::{DRAIN_SECONDS, HAS_SHELL, REPLICAS};
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, DeploymentStrategy,
    RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource,
    ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, LocalObjectReference,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecretVolumeSource,
    SecurityContext, ServiceAccountTokenProjection, SleepAction, TopologySpreadConstraint, Volume,
    VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use std::collections::BTreeMap;

/// The file of the CA bundle, beside the bootstrap.
pub(super) const CA_FILE: &str = "ca.crt";

const FOLDER: &str = "/etc/heliograph";
const CA_PATH: &str = "/etc/heliograph/ca.crt";
const CERTIFICATE: &str = "/var/run/heliograph/certificate";
const TOKEN: &str = "/var/run/heliograph/token";
const TOKEN_FILE: &str = "/var/run/heliograph/token/token";
/// Kubelet renews a token when four fifths of its life are over.
const TOKEN_SECONDS: i64 = 3600;
/// After the drain: to end, and for the clocks of others.
const END_SECONDS: i64 = 15;
/// Changes with the bootstrap, which Envoy reads once: a new one is for new pods.
const BOOTSTRAP_HASH: &str = "heliograph.dev/bootstrap";

/// The files that Envoys start with.
pub(super) fn files(renderer: &Renderer<'_>) -> BTreeMap<&'static str, Value> {
    let settings = renderer.settings;
    let (certificate, key) = (format!("{CERTIFICATE}/tls.crt"), format!("{CERTIFICATE}/tls.key"));
    let shows_certificate = matches!(settings.identity, ProxyIdentity::Certificate { .. });
    let bootstrap = Bootstrap {
        fleet: &renderer.infra.fleet,
        node: None,
        distributors: Distributors {
            host: &settings.host,
            port: settings.port,
            tls: settings.ca_bundle.as_ref().map(|_| Tls {
                ca_file: CA_PATH,
                certificate: shows_certificate.then_some((&*certificate, &*key)),
            }),
            token: matches!(settings.identity, ProxyIdentity::Token { .. }).then_some(TOKEN_FILE),
            folder: FOLDER,
        },
        own: OwnPorts::All,
        memory: memory_limit(renderer.proxies.config.resources.as_ref()),
    };
    bootstrap.files()
}

pub(super) fn deployment(renderer: &Renderer<'_>, template: PodTemplateSpec) -> Deployment {
    let config = &renderer.proxies.config;
    Deployment {
        metadata: renderer.metadata(),
        spec: Some(DeploymentSpec {
            // The autoscaler sets the number.
            replicas: config.hpa.is_none().then(|| config.replicas.unwrap_or(REPLICAS)),
            selector: selector(renderer),
            template,
            // Never fewer than there should be.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

pub(super) fn daemon_set(renderer: &Renderer<'_>, template: PodTemplateSpec) -> DaemonSet {
    DaemonSet {
        metadata: renderer.metadata(),
        spec: Some(DaemonSetSpec {
            selector: selector(renderer),
            template,
            ..DaemonSetSpec::default()
        }),
        status: None,
    }
}

pub(super) fn template(
    renderer: &Renderer<'_>,
    files: &BTreeMap<&'static str, Value>,
) -> PodTemplateSpec {
    let settings = renderer.settings;
    let config = &renderer.proxies.config;
    let mut annotations = renderer.annotations();
    if let Some(bootstrap) = files.get(BOOTSTRAP_FILE) {
        let hash = blake3::hash(bootstrap.to_string().as_bytes()).to_hex();
        annotations.insert(BOOTSTRAP_HASH.to_owned(), hash[..16].to_owned());
    }
    let longest = longest_drain(renderer);
    let (volumes, mounts) = volumes(renderer).into_iter().unzip();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(renderer.labels()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(renderer.account()),
            image_pull_secrets: config.pull_secrets.as_ref().map(|names| {
                let reference = |name: &String| LocalObjectReference { name: name.clone() };
                names.iter().map(reference).collect()
            }),
            automount_service_account_token: Some(false),
            termination_grace_period_seconds: Some(longest + END_SECONDS),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: settings.user.0,
                run_as_group: settings.group.0,
                // What is mounted is readable for the group.
                fs_group: settings.group.0,
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            topology_spread_constraints: Some(
                ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
                    .map(|key| spread(renderer, key))
                    .to_vec(),
            ),
            containers: vec![container(renderer, mounts)],
            volumes: Some(volumes),
            node_selector: config.node_selector.clone(),
            tolerations: config.tolerations.clone(),
            priority_class_name: config.priority_class_name.clone(),
            ..PodSpec::default()
        }),
    }
}

fn container(renderer: &Renderer<'_>, mounts: Vec<VolumeMount>) -> Container {
    let config = &renderer.proxies.config;
    let level = serde_json::to_value(config.log_level.unwrap_or_default());
    let level = level.ok().and_then(|level| level.as_str().map(str::to_owned));
    let mut args: Vec<String> = [
        "--config-path",
        &format!("{FOLDER}/{BOOTSTRAP_FILE}"),
        "--service-node",
        "$(POD_NAME).$(POD_NAMESPACE)",
        "--service-zone",
        "$(ZONE)",
        "--log-level",
        &level.unwrap_or_default(),
        // It needs shared memory, and a pod is replaced and not restarted.
        "--disable-hot-restart",
        "--drain-time-s",
        &longest_drain(renderer).to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(concurrency) = config.concurrency {
        args.extend(["--concurrency".to_owned(), concurrency.to_string()]);
    }
    Container {
        name: "envoy".to_owned(),
        image: Some(config.image.clone().unwrap_or_else(|| renderer.settings.image.clone())),
        command: Some(vec!["envoy".to_owned()]),
        args: Some(args),
        env: Some(vec![
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            // Set where Kubernetes copies the zone to pods; otherwise it is empty, and the inventory has the zone.
            from_field("ZONE", "metadata.labels['topology.kubernetes.io/zone']"),
        ]),
        // Not those of listeners, which the Service knows by number: one more would replace every pod.
        ports: Some(vec![port("readiness", READINESS), port("stats", STATS)]),
        resources: config.resources.clone(),
        // No liveness probe: Envoy ends itself when one of its threads hangs, and a fleet that waits for a distributor
        // must not be restarted.
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/ready".to_owned()),
                port: IntOrString::Int(READINESS.into()),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(2),
            timeout_seconds: Some(2),
            failure_threshold: Some(2),
            ..Probe::default()
        }),
        lifecycle: Some(Lifecycle { pre_stop: Some(pre_stop(renderer)), ..Lifecycle::default() }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn pre_stop(renderer: &Renderer<'_>) -> LifecycleHandler {
    let longest = longest_drain(renderer);
    let drain = renderer.proxies.config.drain.as_ref();
    if drain.and_then(|drain| drain.shell).unwrap_or(HAS_SHELL) {
        let command = ["bash", "-c", &drain::script(longest)].map(str::to_owned).to_vec();
        LifecycleHandler {
            exec: Some(ExecAction { command: Some(command) }),
            ..LifecycleHandler::default()
        }
    } else {
        LifecycleHandler {
            sleep: Some(SleepAction { seconds: longest }),
            ..LifecycleHandler::default()
        }
    }
}

fn longest_drain(renderer: &Renderer<'_>) -> i64 {
    let drain = renderer.proxies.config.drain.as_ref();
    drain.and_then(|drain| drain.seconds).unwrap_or(DRAIN_SECONDS)
}

fn volumes(renderer: &Renderer<'_>) -> Vec<(Volume, VolumeMount)> {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let config = Volume {
        name: "config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: renderer.name(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![(config, mount("config", FOLDER))];
    match &renderer.settings.identity {
        ProxyIdentity::None => {}
        ProxyIdentity::Token { audience } => {
            let token = ServiceAccountTokenProjection {
                audience: Some(audience.clone()),
                expiration_seconds: Some(TOKEN_SECONDS),
                path: "token".to_owned(),
            };
            let projected = ProjectedVolumeSource {
                sources: Some(vec![VolumeProjection {
                    service_account_token: Some(token),
                    ..VolumeProjection::default()
                }]),
                ..ProjectedVolumeSource::default()
            };
            let volume = Volume {
                name: "token".to_owned(),
                projected: Some(projected),
                ..Volume::default()
            };
            volumes.push((volume, mount("token", TOKEN)));
        }
        ProxyIdentity::Certificate { secret } => {
            let volume = Volume {
                name: "certificate".to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(secret.clone()),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            };
            volumes.push((volume, mount("certificate", CERTIFICATE)));
        }
    }
    volumes
}

fn spread(renderer: &Renderer<'_>, key: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(selector(renderer)),
        ..TopologySpreadConstraint::default()
    }
}

fn selector(renderer: &Renderer<'_>) -> LabelSelector {
    LabelSelector { match_labels: Some(renderer.selector()), match_expressions: None }
}

fn from_field(name: &str, field: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: field.to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// In bytes; `None` where there is none, or it is written in a way that is not worth to be read.
fn memory_limit(resources: Option<&ResourceRequirements>) -> Option<u64> {
    let Quantity(limit) = resources?.limits.as_ref()?.get("memory")?;
    let digits = limit.find(|c: char| !c.is_ascii_digit()).unwrap_or(limit.len());
    let (number, unit) = limit.split_at(digits);
    let factor = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_memory_is_read() {
        let limit = |text: &str| {
            let limits = BTreeMap::from([("memory".to_owned(), Quantity(text.to_owned()))]);
            memory_limit(Some(&ResourceRequirements {
                limits: Some(limits),
                ..ResourceRequirements::default()
            }))
        };
        assert_eq!(limit("512Mi"), Some(512 << 20));
        assert_eq!(limit("1G"), Some(1_000_000_000));
        assert_eq!(limit("1.5Gi"), None);
        assert_eq!(limit("99999999999999999999Gi"), None);
    }

    #[test]
    fn the_authorities_are_beside_the_bootstrap() {
        assert_eq!(CA_PATH, format!("{FOLDER}/{CA_FILE}"));
        assert_eq!(TOKEN_FILE, format!("{TOKEN}/token"));
    }
}

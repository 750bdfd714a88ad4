use super::bootstrap::{BOOTSTRAP_FILE, overlay};
use super::pod::{self, CA_FILE};
use super::{Infra, Proxies};
use super::{ProxySettings, names, scaling, service};
use crate::objects::proxy_config::Workload;
use heliograph_model::FleetOwner;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kinds of objects that are made for a fleet, in the order in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    ServiceAccount,
    ConfigMap,
    Service,
    Deployment,
    DaemonSet,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
}

/// An object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub part: Part,
    pub namespace: String,
    pub name: String,
    pub object: Value,
}

/// The hash of the rendered object: otherwise a field that is no longer rendered would stay.
const RENDERED: &str = "heliograph.dev/rendered";

impl Part {
    pub const ALL: [Self; 7] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Service,
        Self::Deployment,
        Self::DaemonSet,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
    ];

    pub fn group(self) -> &'static str {
        match self {
            Self::ServiceAccount | Self::ConfigMap | Self::Service => "",
            Self::Deployment | Self::DaemonSet => "apps",
            Self::HorizontalPodAutoscaler => "autoscaling",
            Self::PodDisruptionBudget => "policy",
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Self::HorizontalPodAutoscaler => "v2",
            _ => "v1",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::Deployment => "Deployment",
            Self::DaemonSet => "DaemonSet",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }

    /// The name of this part of a fleet.
    pub fn name_for(self, owner: &FleetOwner) -> String {
        match self {
            Self::ServiceAccount => names::account_name(owner),
            _ => names::object_name(owner),
        }
    }
}

/// All objects of a fleet. `None`: leave what there is as it is.
pub fn render(
    infra: &Infra,
    settings: &ProxySettings,
) -> serde_json::Result<Option<Vec<Rendered>>> {
    // Without a port there is nothing that a Service could be made of: no listener is valid now.
    let (Some(proxies), false) = (&infra.proxies, infra.ports.is_empty()) else { return Ok(None) };
    if proxies.config.self_managed == Some(true) {
        return Ok(Some(Vec::new()));
    }
    Renderer { infra, proxies, settings }.all().map(Some)
}

/// All that the parts are made of.
pub(super) struct Renderer<'a> {
    pub(super) infra: &'a Infra,
    pub(super) proxies: &'a Proxies,
    pub(super) settings: &'a ProxySettings,
}

impl Renderer<'_> {
    fn all(&self) -> serde_json::Result<Vec<Rendered>> {
        let mut files = pod::files(self);
        if let (Some(over), Some(bootstrap)) =
            (&self.proxies.config.bootstrap, files.get_mut(BOOTSTRAP_FILE))
        {
            overlay(bootstrap, over);
        }
        let template = pod::template(self, &files);
        let metadata = self.metadata();
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(self.account()), ..metadata.clone() },
            // Envoy has no use for the API server.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        };
        let mut data: BTreeMap<String, String> = files
            .iter()
            .map(|(name, content)| ((*name).to_owned(), format!("{content:#}")))
            .collect();
        if let Some(ca_bundle) = &self.settings.ca_bundle {
            data.insert(CA_FILE.to_owned(), ca_bundle.clone());
        }
        let config =
            ConfigMap { metadata: metadata.clone(), data: Some(data), ..ConfigMap::default() };
        let mut rendered = vec![
            self.rendered(Part::ServiceAccount, &account)?,
            self.rendered(Part::ConfigMap, &config)?,
            self.rendered(Part::Service, &service::service(self, metadata))?,
        ];
        match self.workload() {
            Workload::Deployment => {
                let deployment = pod::deployment(self, template);
                rendered.push(self.rendered(Part::Deployment, &deployment)?);
            }
            Workload::DaemonSet => {
                rendered.push(self.rendered(Part::DaemonSet, &pod::daemon_set(self, template))?);
            }
        }
        if let Some(scaler) = scaling::scaler(self) {
            rendered.push(self.rendered(Part::HorizontalPodAutoscaler, &scaler)?);
        }
        if let Some(budget) = scaling::budget(self) {
            rendered.push(self.rendered(Part::PodDisruptionBudget, &budget)?);
        }
        Ok(rendered)
    }

    pub(super) fn workload(&self) -> Workload {
        self.proxies.config.kind.unwrap_or_default()
    }

    pub(super) fn name(&self) -> String {
        names::object_name(&self.proxies.owner)
    }

    pub(super) fn account(&self) -> String {
        Part::ServiceAccount.name_for(&self.proxies.owner)
    }

    /// The labels that no two fleets share.
    pub(super) fn selector(&self) -> BTreeMap<String, String> {
        names::labels(&self.proxies.owner)
    }

    /// The labels of the Gateway, and our own, which it cannot change.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.proxies.labels.clone();
        labels.retain(|name, _| !names::LABELS.contains(&name.as_str()));
        labels.extend(self.selector());
        labels
    }

    /// Of what the Gateway asks for, what its parameters allow.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = self.proxies.annotations.clone();
        annotations.retain(|name, _| self.proxies.config.allows_annotation(name));
        self.add_owner_annotation(&mut annotations);
        annotations
    }

    /// Adds the owner of an object, in place of what others wrote there.
    pub(super) fn add_owner_annotation(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.retain(|name, _| !names::ANNOTATIONS.contains(&name.as_str()));
        let (annotation, name) = names::owner_annotation(&self.proxies.owner);
        annotations.insert(annotation.to_owned(), name);
    }

    pub(super) fn metadata(&self) -> ObjectMeta {
        let owner = &self.proxies.owner;
        let is_owned = !owner.is_class() && !self.proxies.uid.is_empty();
        let name = owner.name();
        let owner = OwnerReference {
            api_version: "gateway.networking.k8s.io/v1".to_owned(),
            kind: names::kind(owner).as_str().to_owned(),
            name: name.name.to_string(),
            uid: self.proxies.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        ObjectMeta {
            name: Some(self.name()),
            namespace: Some(name.namespace.to_string()),
            labels: Some(self.labels()),
            annotations: Some(self.annotations()),
            // Objects from files have no UID, and own nothing. A class owns nothing: to replace it would delete the
            // Envoys of all its Gateways.
            owner_references: is_owned.then(|| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn rendered(&self, part: Part, object: &impl Serialize) -> serde_json::Result<Rendered> {
        let mut object = serde_json::to_value(object)?;
        let hash = blake3::hash(object.to_string().as_bytes()).to_hex();
        object["metadata"]["annotations"][RENDERED] = json!(&hash[..16]);
        let owner = &self.proxies.owner;
        let (namespace, name) = (owner.name().namespace.to_string(), part.name_for(owner));
        Ok(Rendered { part, namespace, name, object })
    }
}

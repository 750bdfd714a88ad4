use crate::objects::proxy_config::ProxyConfigSpec;
use heliograph_model::{Fleet, FleetOwner, InfraPort, TransportPort};
use heliograph_snapshot::FleetName;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The wanted infrastructure of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Infra {
    pub fleet: FleetName,
    pub ports: Vec<InfraPort>,
    /// `None` while they are unknown, as when its parameters are missing: then the running Envoys stay as they are, and
    /// continue to receive their configuration.
    #[serde(flatten)]
    pub proxies: Option<Proxies>,
}

/// How the proxies of a fleet are run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proxies {
    #[serde(skip)]
    pub owner: FleetOwner,
    /// Distinguishes this owner from an earlier one of the same name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// For everything that is made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The addresses that are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    #[serde(flatten)]
    pub config: ProxyConfigSpec,
}

impl Infra {
    pub(crate) fn new(fleet: &Fleet, proxies: Option<Proxies>) -> Self {
        let ports: BTreeSet<TransportPort> =
            fleet.listeners.iter().map(|listener| listener.port).collect();
        let ports = ports.into_iter().map(InfraPort::new).collect();
        Self { fleet: fleet.name.clone(), ports, proxies }
    }
}

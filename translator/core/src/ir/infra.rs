use super::{Fleet, FleetOwner};
use crate::objects::proxy_config::ProxyConfigSpec;
use heliograph_snapshot::FleetName;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What to run for a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Infra {
    pub fleet: FleetName,
    pub ports: Vec<InfraPort>,
    /// `None` while that cannot be told, as when its parameters are missing: what runs then stays as it is, and goes on to be
    /// given what it serves.
    #[serde(flatten)]
    pub proxies: Option<Proxies>,
}

/// How the proxies of a fleet are run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proxies {
    #[serde(skip)]
    pub owner: FleetOwner,
    /// Tells this owner from one of the same name that was there before.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InfraPort {
    /// As clients of the Gateway see it.
    pub port: u16,
    /// As the proxy binds it.
    pub bind_port: u16,
}

impl InfraPort {
    /// A proxy runs without the privilege to bind a port below 1024, so it binds another and whatever stands in
    /// front, a Service as a rule, maps the one to the other.
    pub fn new(port: u16) -> Self {
        Self { port, bind_port: if port < 1024 { port + 10_000 } else { port } }
    }
}

impl Infra {
    pub(crate) fn new(fleet: &Fleet, proxies: Option<Proxies>) -> Self {
        let ports: BTreeSet<u16> = fleet.listeners.iter().map(|listener| listener.port).collect();
        let ports = ports.into_iter().map(InfraPort::new).collect();
        Self { fleet: fleet.name.clone(), ports, proxies }
    }
}

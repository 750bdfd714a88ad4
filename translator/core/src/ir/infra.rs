use super::Fleet;
use heliograph_snapshot::FleetName;
use serde::Serialize;
use std::collections::BTreeSet;

/// What to run for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Infra {
    pub fleet: FleetName,
    pub ports: Vec<InfraPort>,
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
    pub fn of(fleet: &Fleet) -> Self {
        let ports: BTreeSet<u16> = fleet.listeners.iter().map(|listener| listener.port).collect();
        Self { fleet: fleet.name.clone(), ports: ports.into_iter().map(InfraPort::new).collect() }
    }
}

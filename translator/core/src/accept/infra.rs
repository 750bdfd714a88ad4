use crate::ir::{Infra, Proxies};
use crate::objects::gateway;
use crate::world::Reader;
use heliograph_snapshot::FleetName;

/// The one type of addresses that can be asked for.
pub(super) const IP_ADDRESS: &str = "IPAddress";

/// What is to run for a fleet.
pub(crate) fn infra(reader: &Reader<'_>, fleet: &FleetName) -> Option<Infra> {
    let served = reader.fleet(fleet)?;
    Some(Infra::new(served, proxies(reader, fleet)))
}

/// `None` for a Gateway that is refused.
fn proxies(reader: &Reader<'_>, fleet: &FleetName) -> Option<Proxies> {
    let name = reader.members(fleet).next()?;
    let config = reader.gateway(name)?.config.clone()?;
    let object = reader.object::<gateway::Gateway>(name)?;
    let infrastructure = object.spec.infrastructure.clone().unwrap_or_default();
    let addresses = object.spec.addresses.iter().flatten();
    Some(Proxies {
        gateway: name.clone(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: infrastructure.labels.unwrap_or_default(),
        annotations: infrastructure.annotations.unwrap_or_default(),
        // One without a value is any.
        addresses: addresses.filter_map(|address| address.value.clone()).collect(),
        config,
    })
}

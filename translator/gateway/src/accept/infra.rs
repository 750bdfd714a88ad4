use super::parameters;
use crate::infra::names;
use crate::infra::{Infra, Proxies};
use crate::objects::core::Service;
use crate::objects::{ObjectName, gateway};
use crate::world::Reader;
use heliograph_model::FleetOwner;
use heliograph_snapshot::FleetName;
use std::collections::BTreeMap;

/// The one type of addresses that can be asked for.
pub(super) const IP_ADDRESS: &str = "IPAddress";

/// The wanted infrastructure of a fleet.
pub(crate) fn infra(reader: &Reader<'_>, fleet: &FleetName) -> Option<Infra> {
    let served = reader.fleet(fleet)?;
    let proxies = match FleetOwner::of(fleet) {
        FleetOwner::Gateway(name) => of_gateway(reader, name),
        FleetOwner::Class(name) => of_class(reader, name),
    };
    Some(Infra::new(served, proxies))
}

/// The Service that is made for a fleet, once it is.
pub(crate) fn service<'a>(reader: &Reader<'a>, owner: &FleetOwner) -> Option<&'a Service> {
    // A Service that another program made is no evidence about the fleet, nor is that of another fleet.
    let service = reader.object::<Service>(&names::service(owner)).filter(|it| is_ours(it))?;
    annotated_owner(service, owner).is_none_or(|of| of == *owner).then_some(service)
}

/// The owner of a fleet's Service, if that is another fleet, whose name gives the same identifiers.
pub(crate) fn conflicting_owner(reader: &Reader<'_>, owner: &FleetOwner) -> Option<FleetOwner> {
    let service = reader.object::<Service>(&names::service(owner)).filter(|it| is_ours(it))?;
    annotated_owner(service, owner).filter(|of| of != owner)
}

/// `None` for a Gateway that is refused.
fn of_gateway(reader: &Reader<'_>, name: ObjectName) -> Option<Proxies> {
    let config = reader.gateway(&name)?.config.clone()?;
    let object = reader.object::<gateway::Gateway>(&name)?;
    let infrastructure = object.spec.infrastructure.clone().unwrap_or_default();
    let addresses = object.spec.addresses.iter().flatten();
    Some(Proxies {
        owner: FleetOwner::Gateway(name),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: infrastructure.labels.unwrap_or_default(),
        annotations: infrastructure.annotations.unwrap_or_default(),
        // One without a value is any.
        addresses: addresses.filter_map(|address| address.value.clone()).collect(),
        config,
    })
}

/// Only the class says how they are run: what one of its Gateways says must not replace the pods of the others.
fn of_class(reader: &Reader<'_>, name: ObjectName) -> Option<Proxies> {
    let class = reader.object::<gateway::GatewayClass>(&ObjectName::new("", &name.name))?;
    Some(Proxies {
        config: parameters::of_class(reader, class).ok()?,
        owner: FleetOwner::Class(name),
        uid: class.metadata.uid.clone().unwrap_or_default(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        addresses: Vec::new(),
    })
}

/// Whether a Gateway wants labels or annotations for what runs for it.
pub(super) fn is_labelled(object: &gateway::Gateway) -> bool {
    let infrastructure = object.spec.infrastructure.as_ref();
    infrastructure.is_some_and(|it| it.labels.is_some() || it.annotations.is_some())
}

/// The owner in the Service's annotation. `None` if it names no valid owner.
fn annotated_owner(service: &Service, owner: &FleetOwner) -> Option<FleetOwner> {
    let annotations = service.metadata.annotations.as_ref()?;
    let of = names::annotated_owner(&owner.name().namespace, annotations);
    of.filter(|of| names::service(of) == names::service(owner))
}

fn is_ours(service: &Service) -> bool {
    let (managed_by, us) = names::MANAGED_BY;
    let labels = service.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(managed_by)).is_some_and(|found| found == us)
}

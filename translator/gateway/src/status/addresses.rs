use super::reasons::gateway::programmed::{ADDRESS_NOT_ASSIGNED, ADDRESS_NOT_USABLE};
use super::reasons::{Reason, Type};
use super::{Condition, Conditions};
use crate::accept;
use crate::infra::names;
use crate::objects::core::Service;
use crate::objects::{ObjectName, gateway};
use crate::world::Reader;
use heliograph_model::FleetOwner;
use serde::Serialize;

/// An address at which a Gateway is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    pub r#type: &'static str,
    pub value: String,
}

/// The addresses of a Gateway, from its Service. If only its addresses are missing, the conditions have that reason.
pub(super) fn of(
    reader: &Reader<'_>,
    gateway: &ObjectName,
    owner: &FleetOwner,
    conditions: &mut Conditions,
) -> Vec<Address> {
    let name = names::service(owner);
    // Without a Service no addresses are known; where another program runs the Envoys, there will be none.
    let Some(service) = accept::service(reader, owner) else {
        if let Some(other) =
            accept::conflicting_owner(reader, owner).filter(|_| is_run(reader, gateway))
        {
            let why = format!("Service {name}: {}", names::name_conflict(&other));
            unprogrammed(conditions, ADDRESS_NOT_ASSIGNED, why);
        }
        return Vec::new();
    };
    let found = given(service);
    let object = reader.object::<gateway::Gateway>(gateway);
    let requested = object.iter().flat_map(|object| object.spec.addresses.iter().flatten());
    let mut requested = requested.filter_map(|address| address.value.as_deref());
    let unusable = requested.find(|wanted| !found.iter().any(|given| given.value == **wanted));
    if let Some(unusable) = unusable {
        let why = format!("addresses: {unusable} was not assigned to the Gateway's Service {name}");
        unprogrammed(conditions, ADDRESS_NOT_USABLE, why);
    } else if found.is_empty() {
        let why = format!("The Gateway's Service {name} has no address yet");
        unprogrammed(conditions, ADDRESS_NOT_ASSIGNED, why);
    }
    found
}

/// Whether Heliograph runs its Envoys.
fn is_run(reader: &Reader<'_>, gateway: &ObjectName) -> bool {
    let config = reader.gateway(gateway).and_then(|gateway| gateway.config.as_ref());
    config.is_none_or(|config| config.self_managed != Some(true))
}

fn unprogrammed(conditions: &mut Conditions, reason: &'static Reason, why: String) {
    if conditions.is_true(Type::Programmed) {
        conditions.set(Condition::new(reason, why));
    }
}

/// Those outside of the cluster, where there are to be any.
fn given(service: &Service) -> Vec<Address> {
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer") {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.into_iter().flat_map(|status| status.ingress.iter().flatten());
        return ingress
            .filter_map(|ingress| match (&ingress.ip, &ingress.hostname) {
                (Some(ip), _) => Some(Address { r#type: "IPAddress", value: ip.clone() }),
                (None, Some(name)) => Some(Address { r#type: "Hostname", value: name.clone() }),
                (None, None) => None,
            })
            .collect();
    }
    // Which nodes a NodePort is reached at is not the Gateway's to say.
    let addresses = spec.into_iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    addresses
        .filter(|address| *address != "None")
        .map(|address| Address { r#type: "IPAddress", value: address.clone() })
        .collect()
}

//! Views that differ between the clients of a fleet: ViewPolicies, and the inventory of proxies.
//!
//! A policy is accepted or rejected as a whole (`policy`). The policies of a fleet make one plan (`plan`): which clients
//! are selected, and how each resource changes for them. Each resource's part of it is a treatment (`treatment`), with
//! variants rendered, which goes into the snapshot as data; distributors only choose between variants.

mod plan;
mod policy;
mod proxy;
mod treatment;

pub(crate) use plan::{Plan, plan};
pub(crate) use policy::{AcceptedViewPolicy, Rule, ViewRules, policy};
pub(crate) use proxy::{ListedProxy, entry, proxy};
pub(crate) use treatment::{TreatmentResult, treatment};

use crate::objects::heliograph::TargetRef;
use crate::objects::{Kind, ObjectName};
use crate::world::Reader;
use heliograph_model::FleetOwner;
use heliograph_snapshot::{FleetName, Resource};
use std::sync::Arc;

/// An audience as it goes into the snapshot.
pub(crate) fn audience(reader: &Reader<'_>, fleet: &FleetName, id: &str) -> Option<Arc<Resource>> {
    let audience = reader.plan(fleet)?.audiences.get(id)?;
    Some(Arc::new(audience.resource(id)))
}

/// The fleet of the Gateway, or of all Gateways of the class, that a reference in `namespace` leads to, or why there is none.
pub(crate) fn target(
    reader: &Reader<'_>,
    namespace: &str,
    target: &TargetRef,
) -> Result<FleetName, String> {
    let name = ObjectName::new(namespace, &target.name);
    match Kind::find(&target.group, &target.kind) {
        Some(Kind::Gateway) => {
            let gateway = reader.attach_points(&name);
            let gateway = gateway.ok_or_else(|| format!("Heliograph serves no Gateway {name}"))?;
            match &gateway.owner {
                FleetOwner::Gateway(_) => Ok(gateway.fleet.clone()),
                // What is said of one Gateway would hold for the others.
                FleetOwner::Class(class) => Err(format!(
                    "targetRef: Gateway {name} shares its proxies with others: name GatewayClass {} in namespace {}",
                    class.name, class.namespace
                )),
            }
        }
        Some(Kind::GatewayClass) => {
            let fleet = FleetOwner::Class(name).fleet();
            let is_served = reader.members(&fleet).next().is_some();
            is_served.then_some(fleet).ok_or_else(|| {
                let class = &target.name;
                format!("no Gateways of class {class} share proxies in namespace {namespace}")
            })
        }
        _ => Err(format!(
            "targetRef: {} {} is neither a Gateway nor a GatewayClass",
            target.group, target.kind
        )),
    }
}

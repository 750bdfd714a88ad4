//! What some clients of a fleet see otherwise than others: ViewPolicies, and the directory of proxies.
//!
//! A policy is accepted or refused as a whole (`policy`). The policies of a fleet make one plan (`plan`): who is meant, and
//! what is done to which resource. Each resource's part of it is a treatment (`treatment`), with variants rendered, which
//! goes into the snapshot as data; distributors only choose.

mod overlay;
mod plan;
mod policy;
mod proxy;
mod treatment;

pub(crate) use plan::{Plan, plan};
pub(crate) use policy::{AcceptedPolicy, Rule, Says, policy};
pub(crate) use proxy::{ListedProxy, entry, proxy};
pub(crate) use treatment::{Treated, treatment};

use crate::objects::heliograph::TargetRef;
use crate::objects::{Kind, ObjectName};
use crate::world::Reader;
use heliograph_snapshot::{FleetName, Resource};
use std::sync::Arc;

/// An audience as it goes into the snapshot.
pub(crate) fn audience(reader: &Reader<'_>, fleet: &FleetName, id: &str) -> Option<Arc<Resource>> {
    let audience = reader.plan(fleet)?.audiences.get(id)?;
    Some(Arc::new(audience.resource(id)))
}

/// The fleet of the Gateway that a reference in `namespace` leads to, or why there is none.
fn target(reader: &Reader<'_>, namespace: &str, target: &TargetRef) -> Result<FleetName, String> {
    if (target.group.as_str(), target.kind.as_str()) != (Kind::Gateway.group(), "Gateway") {
        return Err(format!("targetRef: {} {} is not a Gateway", target.group, target.kind));
    }
    let name = ObjectName::new(namespace, &target.name);
    let doors = reader.doors(&name);
    doors
        .map(|doors| doors.fleet.clone())
        .ok_or_else(|| format!("no Gateway {name} is served here"))
}

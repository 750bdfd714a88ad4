//! Which Gateways are ours, and which of their listeners can be served.

mod certificates;
mod conflicts;
mod grants;
mod listener;

pub(crate) use certificates::key_pair;
pub(crate) use grants::is_granted;
pub(crate) use listener::AcceptedListener;

use crate::CONTROLLER_NAME;
use crate::ir;
use crate::objects::{ObjectName, gateway};
use crate::status::{Condition, Conditions};
use crate::world::Reader;
use heliograph_snapshot::FleetName;

/// A Gateway of ours: what can be served of it, and what there is to say about the rest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedGateway {
    pub(crate) ir: ir::Gateway,
    pub(crate) generation: i64,
    pub(crate) conditions: Conditions,
    /// All listeners of the Gateway, in its order.
    pub(crate) listeners: Vec<AcceptedListener>,
}

/// `None` for a Gateway of another controller, about which there is nothing to say.
pub(crate) fn gateway(reader: &Reader<'_>, name: &ObjectName) -> Option<AcceptedGateway> {
    let object = reader.object::<gateway::Gateway>(name)?;
    let class = reader
        .object::<gateway::GatewayClass>(&ObjectName::new("", &object.spec.gateway_class_name))?;
    if !is_ours(class) {
        return None;
    }
    let generation = object.metadata.generation.unwrap_or_default();
    let refused = refusal(class, object);

    let mut listeners: Vec<AcceptedListener> = object
        .spec
        .listeners
        .iter()
        .map(|listener| listener::accept(reader, name, listener))
        .collect();
    conflicts::mark(&mut listeners);

    let served = listeners.iter().filter(|listener| refused.is_none() && listener.is_served());
    let ir = ir::Gateway {
        fleet: FleetName::new(&name.namespace, &name.name),
        listeners: served.filter_map(|listener| listener.ir.clone()).collect(),
    };
    let conditions = conditions(refused, &ir, &listeners);
    Some(AcceptedGateway { ir, generation, conditions, listeners })
}

/// A GatewayClass names the controller that its Gateways belong to.
pub(crate) fn is_ours(class: &gateway::GatewayClass) -> bool {
    class.spec.controller_name == CONTROLLER_NAME
}

/// Why a GatewayClass of ours cannot be used.
pub(crate) fn class_refusal(class: &gateway::GatewayClass) -> Option<Condition> {
    let parameters = class.spec.parameters_ref.as_ref()?;
    Some(Condition::no(
        "Accepted",
        "InvalidParameters",
        format!("parametersRef: {} {} is not supported", parameters.kind, parameters.name),
    ))
}

/// Why a Gateway of ours is refused as a whole.
fn refusal(class: &gateway::GatewayClass, object: &gateway::Gateway) -> Option<Condition> {
    if let Some(refused) = class_refusal(class) {
        let message =
            format!("GatewayClass {}: {}", object.spec.gateway_class_name, refused.message);
        return Some(Condition::no("Accepted", "InvalidParameters", message));
    }
    let infrastructure = object.spec.infrastructure.as_ref();
    if let Some(parameters) = infrastructure.and_then(|infra| infra.parameters_ref.as_ref()) {
        let message = format!(
            "infrastructure.parametersRef: {} {} is not supported",
            parameters.kind, parameters.name
        );
        return Some(Condition::no("Accepted", "InvalidParameters", message));
    }
    if let Some(address) = object.spec.addresses.iter().flatten().next() {
        let kind = address.r#type.as_deref().unwrap_or("IPAddress");
        let message = format!("addresses: {kind} cannot be requested");
        return Some(Condition::no("Accepted", "UnsupportedAddress", message));
    }
    None
}

fn conditions(
    refused: Option<Condition>,
    ir: &ir::Gateway,
    listeners: &[AcceptedListener],
) -> Conditions {
    if let Some(refused) = refused {
        let programmed = Condition::no("Programmed", "Invalid", refused.message.clone());
        return Conditions::from([refused, programmed]);
    }
    let invalid: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.is_served())
        .map(|listener| &*listener.name)
        .collect();
    let accepted = match (invalid.is_empty(), ir.listeners.is_empty()) {
        (true, false) => Condition::yes("Accepted", "Accepted", "The Gateway is valid"),
        (false, false) => Condition::yes(
            "Accepted",
            "ListenersNotValid",
            format!("Not served: listener {}", invalid.join(", ")),
        ),
        (_, true) => Condition::no("Accepted", "ListenersNotValid", "No listener can be served"),
    };
    let programmed = match ir.listeners.is_empty() {
        false => Condition::yes(
            "Programmed",
            "Programmed",
            "The configuration is published to the proxies",
        ),
        true => Condition::no("Programmed", "Invalid", "There is nothing to serve"),
    };
    Conditions::from([accepted, programmed])
}

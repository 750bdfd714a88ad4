use super::listener::{self, AcceptedListener};
use super::parameters;
use super::sets::{self, AcceptedSet};
use super::{conflicts, infra, is_ours, tls};
use crate::objects::{Kind, ObjectKey, ObjectName, gateway};
use crate::status::Condition;
use crate::status::reasons::Reason;
use crate::status::reasons::gateway::accepted;
use crate::world::Reader;
use heliograph_model::{FleetOwner, ListenerOwnerKind};

/// A Gateway of ours, before conflicts with others are decided.
pub(super) struct Candidate<'a> {
    pub(super) key: ObjectKey,
    pub(super) object: &'a gateway::Gateway,
    pub(super) class: &'a gateway::GatewayClass,
    pub(super) owner: FleetOwner,
    /// Why nothing of it is served.
    pub(super) refused: Option<Condition>,
    pub(super) listeners: Vec<AcceptedListener>,
    pub(super) sets: Vec<AcceptedSet>,
}

/// The owner of the fleet that serves a Gateway. `None` for one of another controller.
pub(super) fn owner(reader: &Reader<'_>, name: &ObjectName) -> Option<FleetOwner> {
    let (_, class) = find(reader, name)?;
    Some(parameters::owner(reader, class, name))
}

impl<'a> Candidate<'a> {
    /// `None` for a Gateway of another controller.
    pub(super) fn of(reader: &Reader<'a>, name: &ObjectName) -> Option<Self> {
        let (object, class) = find(reader, name)?;
        let spec = &object.spec;
        let (key, owner) = (name.clone().of(Kind::Gateway), parameters::owner(reader, class, name));
        let listeners_of = name.clone().of(ListenerOwnerKind::Gateway);
        let accept = |given| listener::accept(reader, &listeners_of, given, &owner);
        let mut listeners: Vec<AcceptedListener> = spec.listeners.iter().map(accept).collect();
        conflicts::mark(&mut listeners, std::iter::empty());
        tls::verify_clients(reader, &key, spec.tls.as_ref(), &mut listeners);
        let refused = refusal(spec, &owner);
        if let Some(refused) = &refused {
            for listener in &mut listeners {
                listener.withhold(&refused.message);
            }
        }
        let sets = sets::accept(reader, &key, spec, &owner, refused.as_ref(), &listeners);
        Some(Self { key, object, class, owner, refused, listeners, sets })
    }
}

fn find<'a>(
    reader: &Reader<'a>,
    name: &ObjectName,
) -> Option<(&'a gateway::Gateway, &'a gateway::GatewayClass)> {
    let object = reader.object::<gateway::Gateway>(name)?;
    let class = ObjectName::new("", &object.spec.gateway_class_name);
    let class = reader.object::<gateway::GatewayClass>(&class)?;
    is_ours(class).then_some((object, class))
}

/// Why a Gateway of ours is refused as a whole.
fn refusal(spec: &gateway::GatewaySpec, owner: &FleetOwner) -> Option<Condition> {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::GatewaySpec {
        addresses,
        // See `sets`.
        allowed_listeners: _,
        default_scope,
        gateway_class_name: _,
        // Read by `parameters` and `infra`.
        infrastructure: _,
        listeners: _,
        // Its listeners and conditions say what is wrong with it, but for what is said here.
        tls,
    } = spec;
    let refused = |reason: &'static Reason, message: String| Some(Condition::new(reason, message));
    for address in addresses.iter().flatten() {
        let kind = address.r#type.as_deref().unwrap_or(infra::IP_ADDRESS);
        if kind != infra::IP_ADDRESS {
            return refused(
                accepted::UNSUPPORTED_ADDRESS,
                format!("addresses: {kind} cannot be requested"),
            );
        }
    }
    if default_scope.is_some() {
        return refused(accepted::UNSUPPORTED_VALUE, "defaultScope is not supported".to_owned());
    }
    // Backends are shown the same by all routes of a fleet.
    if owner.is_class() && tls.as_ref().is_some_and(|tls| tls.backend.is_some()) {
        return refused(
            accepted::UNSUPPORTED_VALUE,
            "tls.backend is not supported in a class that merges its Gateways".to_owned(),
        );
    }
    None
}

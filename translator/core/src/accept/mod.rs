//! Which Gateways are ours, and which of their listeners can be served.

pub(crate) mod authorities;
mod certificates;
mod conflicts;
mod grants;
mod infra;
mod listener;
mod namespaces;
mod parameters;
mod sets;
mod tls;

pub(crate) use certificates::key_pair;
pub(crate) use grants::is_granted;
pub(crate) use infra::infra;
pub(crate) use listener::{AcceptedListener, Door, NamespaceRule};
pub(crate) use namespaces::allows;
pub(crate) use parameters::class_refusal;
pub(crate) use sets::{AcceptedSet, gateway_of};

use crate::CONTROLLER_NAME;
use crate::ir;
use crate::objects::proxy_config::ProxyConfigSpec;
use crate::objects::{Kind, ObjectName, gateway};
use crate::status::reasons::Reason;
use crate::status::reasons::gateway::{
    accepted, insecure_frontend_validation_mode, programmed, resolved_refs,
};
use crate::status::{Condition, Conditions};
use crate::world::Reader;
use heliograph_snapshot::FleetName;

/// A Gateway of ours, and all there is to say about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedGateway {
    pub(crate) generation: i64,
    pub(crate) conditions: Conditions,
    /// All listeners of the Gateway, in its order.
    pub(crate) listeners: Vec<AcceptedListener>,
    /// What others add, in order of precedence.
    pub(crate) sets: Vec<AcceptedSet>,
    pub(crate) doors: Doors,
    /// How its proxies are run; `None` for a Gateway that is refused, or whose parameters are.
    pub(crate) config: Option<ProxyConfigSpec>,
}

/// What routes and fleets see of a Gateway: not its conditions, so that those are no concern of theirs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doors {
    /// Whose proxies serve it.
    pub(crate) fleet: FleetName,
    pub(crate) doors: Vec<Door>,
    /// The Secret with the certificate that backends are shown.
    client_certificate: Option<ObjectName>,
}

/// `None` for a Gateway of another controller, about which there is nothing to say.
pub(crate) fn gateway(reader: &Reader<'_>, name: &ObjectName) -> Option<AcceptedGateway> {
    let object = reader.object::<gateway::Gateway>(name)?;
    let class = reader
        .object::<gateway::GatewayClass>(&ObjectName::new("", &object.spec.gateway_class_name))?;
    if !is_ours(class) {
        return None;
    }
    let owner = name.clone().of(Kind::Gateway);
    let mut listeners: Vec<AcceptedListener> = object
        .spec
        .listeners
        .iter()
        .map(|listener| listener::accept(reader, &owner, listener))
        .collect();
    conflicts::mark(&mut listeners);
    tls::verify_clients(reader, &owner, object.spec.tls.as_ref(), &mut listeners);
    let certificate = tls::client_certificate(reader, &owner, object.spec.tls.as_ref());

    let refused = refusal(&object.spec);
    if let Some(refused) = &refused {
        for listener in &mut listeners {
            listener.withhold(&refused.message);
        }
    }
    let mut sets = sets::accept(reader, &owner, &object.spec, refused.as_ref(), &listeners);
    let (config, refused) = match (refused, parameters::of_gateway(reader, class, object)) {
        (None, Ok(config)) => (Some(config), None),
        // What runs goes on as it is, and so do the listeners: a ProxyConfig that is gone for a moment must not take the
        // traffic of all Gateways of its class with it.
        (None, Err(refused)) => {
            sets.iter_mut().for_each(|set| set.disown(&refused.message));
            (None, Some(refused))
        }
        (Some(refused), _) => (None, Some(refused)),
    };
    let doors = Doors {
        fleet: FleetName::new(&name.namespace, &name.name),
        doors: listeners
            .iter()
            .chain(sets.iter().flat_map(|set| &set.listeners))
            .map(AcceptedListener::door)
            .collect(),
        client_certificate: certificate.clone().and_then(Result::ok),
    };
    let mut conditions = conditions(refused, &listeners, &sets);
    if let Some(certificate) = certificate {
        let resolved =
            || Condition::new(resolved_refs::RESOLVED_REFS, "All references are resolved");
        conditions.set(certificate.map_or_else(|unresolved| unresolved, |_| resolved()));
    }
    if tls::has_insecure_fallback(object.spec.tls.as_ref()) {
        conditions.set(Condition::new(
            insecure_frontend_validation_mode::CONFIGURATION_CHANGED,
            "Clients without a valid certificate are served too",
        ));
    }
    Some(AcceptedGateway {
        generation: object.metadata.generation.unwrap_or_default(),
        conditions,
        listeners,
        sets,
        doors,
        config,
    })
}

/// What the proxies of a fleet serve, of all its Gateways.
pub(crate) fn fleet(reader: &Reader<'_>, name: &FleetName) -> ir::Fleet {
    let members: Vec<&Doors> =
        reader.members(name).filter_map(|gateway| reader.doors(gateway)).collect();
    let doors = members.iter().flat_map(|doors| &doors.doors);
    ir::Fleet {
        name: name.clone(),
        client_certificate: members.iter().find_map(|doors| doors.client_certificate.clone()),
        listeners: doors
            .filter(|door| door.served)
            .filter_map(|door| door.listener.clone())
            .collect(),
    }
}

/// A GatewayClass names the controller that its Gateways belong to.
pub(crate) fn is_ours(class: &gateway::GatewayClass) -> bool {
    class.spec.controller_name == CONTROLLER_NAME
}

/// Why a Gateway of ours is refused as a whole.
fn refusal(spec: &gateway::GatewaySpec) -> Option<Condition> {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::GatewaySpec {
        addresses,
        // See `sets`.
        allowed_listeners: _,
        default_scope,
        gateway_class_name: _,
        // Looked at by `parameters` and `infra`.
        infrastructure: _,
        listeners: _,
        // Its listeners and conditions say what is wrong with it.
        tls: _,
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
    None
}

fn conditions(
    refused: Option<Condition>,
    listeners: &[AcceptedListener],
    sets: &[AcceptedSet],
) -> Conditions {
    if let Some(refused) = refused {
        let programmed = Condition::new(programmed::NOT_SERVED, refused.message.clone());
        return Conditions::from([refused, programmed]);
    }
    let mut all = listeners.iter().chain(sets.iter().flat_map(|set| &set.listeners));
    let served = all.any(AcceptedListener::is_served);
    let invalid: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.is_served())
        .map(|listener| &*listener.id.name)
        .collect();
    if !served {
        return Conditions::from([
            Condition::new(accepted::NO_LISTENER_VALID, "No listener can be served"),
            Condition::new(programmed::NOT_SERVED, "There is nothing to serve"),
        ]);
    }
    let accepted = match invalid.as_slice() {
        [] => Condition::new(accepted::ACCEPTED, "The Gateway is valid"),
        invalid => {
            let message = format!("Not served: listener {}", invalid.join(", "));
            Condition::new(accepted::SOME_LISTENERS_NOT_VALID, message)
        }
    };
    let programmed =
        Condition::new(programmed::PROGRAMMED, "The proxies are given this configuration");
    Conditions::from([accepted, programmed])
}

//! Which Gateways are ours, and which of their listeners can be served.

pub(crate) mod ca;
mod candidate;
mod certificates;
mod conflicts;
mod grants;
mod infra;
mod listener;
mod merged;
mod namespaces;
mod parameters;
mod sets;
mod tls;

pub(crate) use certificates::key_pair;
pub(crate) use grants::{granted, granting, is_granted};
pub(crate) use infra::{conflicting_owner, infra, service};
pub(crate) use listener::{AcceptedListener, AttachPoint, NamespaceRule};
pub(crate) use merged::{
    Arbitration, ListenerRequests, LostListeners, arbitrate, listener_requests,
};
pub(crate) use namespaces::allows;
pub(crate) use parameters::class_refusal;
pub(crate) use sets::{AcceptedSet, gateway_of};

use crate::CONTROLLER_NAME;
use crate::objects::proxy_config::ProxyConfigSpec;
use crate::objects::{ObjectName, gateway};
use crate::status::reasons::gateway::{
    accepted, insecure_frontend_validation_mode, programmed, resolved_refs,
};
use crate::status::{Condition, Conditions};
use crate::world::{InFleet, Reader};
use candidate::Candidate;
use heliograph_model::{self as model, FleetOwner, HttpSettings, Port, SecretId, TransportPort};
use heliograph_snapshot::{Dialect, FleetName};

/// A Gateway of ours, and all there is to say about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedGateway {
    pub(crate) generation: i64,
    pub(crate) conditions: Conditions,
    /// All listeners of the Gateway, in its order.
    pub(crate) listeners: Vec<AcceptedListener>,
    /// What others add, in order of precedence.
    pub(crate) sets: Vec<AcceptedSet>,
    pub(crate) attach_points: AttachPoints,
    /// How its proxies are run; `None` for a Gateway that is refused, or whose parameters are.
    pub(crate) config: Option<ProxyConfigSpec>,
}

/// The part of a Gateway that routes and fleets read: its listeners without its conditions, so that a changed condition
/// computes no route again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttachPoints {
    /// Whose proxies serve it.
    pub(crate) owner: FleetOwner,
    pub(crate) fleet: FleetName,
    pub(crate) points: Vec<AttachPoint>,
    /// The Secret with the certificate that backends are shown.
    client_certificate: Option<SecretId>,
    /// What its proxies accept of clients.
    http: HttpSettings,
}

/// `None` for a Gateway of another controller, about which there is nothing to say.
pub(crate) fn gateway(reader: &Reader<'_>, name: &ObjectName) -> Option<AcceptedGateway> {
    let mut candidate = Candidate::of(reader, name)?;
    if candidate.owner.is_class()
        && let Some(lost) = reader.lost_listeners(&candidate.owner.fleet(), name)
    {
        candidate.mark_lost(lost);
    }
    let Candidate { key, object, class, owner, refused, listeners, mut sets } = candidate;
    let certificate = match owner {
        FleetOwner::Gateway(_) => tls::client_certificate(reader, &key, object.spec.tls.as_ref()),
        // Others' routes would show it.
        FleetOwner::Class(_) => None,
    };
    let of_gateway = parameters::of_gateway(reader, class, object);
    // Where the Gateway's parameters are missing, its class's hold.
    let http =
        of_gateway.as_ref().ok().cloned().or_else(|| parameters::of_class(reader, class).ok());
    let http = http.and_then(|config| config.http).unwrap_or_default().settings();
    let (config, refused) = match (refused, of_gateway) {
        (None, Ok(config)) => (Some(config), None),
        // What runs goes on as it is, and so do the listeners: a ProxyConfig that is gone for a moment must not take the
        // traffic of all Gateways of its class with it.
        (None, Err(refused)) => {
            sets.iter_mut().for_each(|set| set.reject_with_parent(&refused.message));
            (None, Some(refused))
        }
        (Some(refused), _) => (None, Some(refused)),
    };
    let unheard = match owner.is_class() && infra::is_labelled(object) {
        true => {
            "; its class merges its Gateways, so labels and annotations of its infrastructure are ignored"
        }
        false => "",
    };
    let mut conditions = conditions(refused, &listeners, &sets, unheard);
    if let Some(certificate) = &certificate {
        let resolved = Condition::new(resolved_refs::RESOLVED_REFS, "All references are resolved");
        conditions.set(certificate.as_ref().err().cloned().unwrap_or(resolved));
    }
    if tls::has_insecure_fallback(object.spec.tls.as_ref()) {
        conditions.set(Condition::new(
            insecure_frontend_validation_mode::CONFIGURATION_CHANGED,
            "Clients without a valid certificate are served too",
        ));
    }
    let all = listeners.iter().chain(sets.iter().flat_map(|set| &set.listeners));
    let attach_points = AttachPoints {
        fleet: owner.fleet(),
        owner,
        points: all.map(AcceptedListener::attach_point).collect(),
        client_certificate: certificate.and_then(Result::ok).map(SecretId),
        http,
    };
    Some(AcceptedGateway {
        generation: object.metadata.generation.unwrap_or_default(),
        conditions,
        listeners,
        sets,
        attach_points,
        config,
    })
}

/// Everything that the proxies of a fleet serve, from all its Gateways.
pub(crate) fn fleet(reader: &Reader<'_>, name: &FleetName) -> model::Fleet {
    let members: Vec<&AttachPoints> =
        reader.members(name).filter_map(|gateway| reader.attach_points(gateway)).collect();
    let points = members.iter().flat_map(|gateway| &gateway.points);
    model::Fleet {
        name: name.clone(),
        // No parameter names another.
        dialect: Dialect::Envoy,
        client_certificate: members.iter().find_map(|gateway| gateway.client_certificate.clone()),
        // Those of Gateways that share their proxies are all of their class.
        http: members.first().map(|gateway| gateway.http.clone()).unwrap_or_default(),
        listeners: points
            .filter(|point| point.served)
            .filter_map(|point| point.listener.clone())
            .collect(),
    }
}

/// A port that the proxies of a fleet bind, if they do.
pub(crate) fn port(reader: &Reader<'_>, fleet: &FleetName, port: TransportPort) -> Option<Port> {
    let ca_bundle = |listener: &model::Listener| {
        let validation = listener.client_validation.as_ref()?;
        Some(ca::pem(reader, &validation.authorities))
    };
    let route = |listener: &model::Listener| {
        let forwarding = reader.forwarding(&InFleet::new(fleet, listener.id.clone()))?;
        forwarding.route.as_ref().map(|(_, route)| route.clone())
    };
    Port::of(reader.fleet(fleet)?, port, ca_bundle, route)
}

/// A GatewayClass names the controller that its Gateways belong to.
pub(crate) fn is_ours(class: &gateway::GatewayClass) -> bool {
    class.spec.controller_name == CONTROLLER_NAME
}

fn conditions(
    refused: Option<Condition>,
    listeners: &[AcceptedListener],
    sets: &[AcceptedSet],
    unheard: &str,
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
        [] => Condition::new(accepted::ACCEPTED, format!("The Gateway is valid{unheard}")),
        invalid => {
            let message = format!("Not served: listener {}{unheard}", invalid.join(", "));
            Condition::new(accepted::SOME_LISTENERS_NOT_VALID, message)
        }
    };
    let programmed = Condition::new(programmed::PROGRAMMED, "Proxies receive this configuration");
    Conditions::from([accepted, programmed])
}

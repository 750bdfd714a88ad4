use super::certificates::{self, Certificate};
use crate::infra::bootstrap::OWN_PORTS;
use crate::objects::{Kind, gateway, owner_object};
use crate::routes;
use crate::status::reasons::listener::{
    accepted as reasons, conflicted, programmed, resolved_refs,
};
use crate::status::reasons::{Reason, Type};
use crate::status::{Condition, Conditions};
use crate::world::Reader;
use heliograph_model::{
    FleetOwner, Hostname, Listener, ListenerId, ListenerOwner, Protocol, SecretId, Transport,
    TransportPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A listener as its Gateway has it, valid or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedListener {
    pub(crate) id: ListenerId,
    /// The route kinds that are both allowed and understood.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) conditions: Conditions,
    pub(super) port: i32,
    /// As it is written, understood or not.
    pub(super) protocol: String,
    pub(super) transport: Transport,
    namespaces: NamespaceRule,
    /// The listener as it would be served; `None` if it is not valid enough to know.
    pub(super) listener: Option<Listener>,
}

/// A listener as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttachPoint {
    pub(crate) id: ListenerId,
    pub(crate) port: i32,
    /// Which namespaces' routes may attach.
    pub(crate) namespaces: NamespaceRule,
    /// Which kinds of routes may attach.
    pub(crate) kinds: Vec<Kind>,
    /// `None`: no route may attach.
    pub(crate) listener: Option<Listener>,
    /// Whether proxies receive it. Routes may attach also where a certificate is missing, so that they are counted.
    pub(crate) served: bool,
}

/// How another listener is in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Proxies can bind one of them only.
    Port,
    Hostname,
    Protocol,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NamespaceRule {
    All,
    Same,
    Selector(LabelSelector),
    Nobody,
}

impl AcceptedListener {
    pub(super) fn is_served(&self) -> bool {
        self.is_accepted() && self.conditions.is_true(Type::Programmed)
    }

    pub(super) fn attach_point(&self) -> AttachPoint {
        AttachPoint {
            id: self.id.clone(),
            port: self.port,
            namespaces: self.namespaces.clone(),
            kinds: self.kinds.clone(),
            listener: self.listener.clone().filter(|_| self.is_accepted()),
            served: self.is_served(),
        }
    }

    /// Another listener is in its way.
    pub(super) fn conflicts(&mut self, conflict: Conflict, message: &str) {
        let reasons = match conflict {
            Conflict::Port => return self.refuse(reasons::PORT_UNAVAILABLE, message),
            Conflict::Hostname => [
                reasons::HOSTNAME_CONFLICT,
                programmed::HOSTNAME_CONFLICT,
                conflicted::HOSTNAME_CONFLICT,
            ],
            Conflict::Protocol => [
                reasons::PROTOCOL_CONFLICT,
                programmed::PROTOCOL_CONFLICT,
                conflicted::PROTOCOL_CONFLICT,
            ],
        };
        for reason in reasons {
            self.conditions.set(Condition::new(reason, message));
        }
    }

    pub(super) fn refuse(&mut self, reason: &'static Reason, message: &str) {
        self.conditions.set(Condition::new(reason, message));
        self.withhold(message);
    }

    /// Valid or not, it is not served.
    pub(super) fn withhold(&mut self, message: &str) {
        self.conditions.set(Condition::new(programmed::NOT_SERVED, message));
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.listener.is_some() && self.conditions.is_true(Type::Accepted)
    }
}

/// The ports that proxies bind for those below 1024: see [`InfraPort`](heliograph_model::InfraPort).
const FOR_LOW_PORTS: RangeInclusive<u16> = 10_001..=11_023;

pub(super) fn accept(
    reader: &Reader<'_>,
    owner: &ListenerOwner,
    given: &gateway::Listener,
    proxies: &FleetOwner,
) -> AcceptedListener {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::Listener { allowed_routes: _, hostname, name, port, protocol: _, tls } = given;
    let id = ListenerId::new(owner.clone(), name);
    let (kinds, foreign_kinds) = kinds(given);
    let mut accepted = AcceptedListener {
        id: id.clone(),
        kinds,
        conditions: Conditions::from([
            Condition::new(reasons::ACCEPTED, "The listener is valid"),
            Condition::new(programmed::PROGRAMMED, "Proxies receive this listener"),
            Condition::new(resolved_refs::RESOLVED_REFS, "All references are resolved"),
        ]),
        port: *port,
        protocol: given.protocol.clone(),
        transport: transport(&given.protocol),
        namespaces: namespaces(given),
        listener: None,
    };
    if let Some(kind) = foreign_kinds.first() {
        let message =
            format!("allowedRoutes: {kind} cannot attach to a listener for {}", given.protocol);
        accepted.conditions.set(Condition::new(resolved_refs::INVALID_ROUTE_KINDS, &*message));
        if accepted.kinds.is_empty() {
            accepted.withhold(&message);
        }
    }
    let Some(protocol) = protocol(&given.protocol) else {
        accepted
            .refuse(reasons::UNSUPPORTED_PROTOCOL, &format!("{} is not supported", given.protocol));
        return accepted;
    };
    let Some(port) = u16::try_from(*port).ok().filter(|port| *port > 0) else {
        accepted.refuse(reasons::PORT_UNAVAILABLE, &format!("{port} is not a port"));
        return accepted;
    };
    if OWN_PORTS.contains(&port) {
        accepted.refuse(
            reasons::PORT_UNAVAILABLE,
            &format!("{port} is reserved for the proxies themselves"),
        );
        return accepted;
    }
    // One Gateway at 10443 would keep all others from 443.
    if proxies.is_class() && FOR_LOW_PORTS.contains(&port) {
        let message = format!(
            "{port} is reserved: proxies bind it for a port below 1024, which another Gateway of the class may use"
        );
        accepted.refuse(reasons::PORT_UNAVAILABLE, &message);
        return accepted;
    }
    if let Some(field) = needless(protocol, given) {
        let message = format!("{field}: not allowed on a listener for {}", given.protocol);
        accepted.refuse(reasons::UNSUPPORTED_VALUE, &message);
        return accepted;
    }
    let hostname = match Hostname::parse(hostname.as_deref()) {
        Ok(hostname) => hostname,
        Err(error) => {
            accepted.refuse(reasons::UNSUPPORTED_VALUE, &format!("hostname: {error}"));
            return accepted;
        }
    };
    if let Some(option) = tls.iter().flat_map(|tls| &tls.options).flatten().next() {
        accepted.refuse(
            reasons::UNSUPPORTED_VALUE,
            &format!("tls.options: {} is not supported", option.0),
        );
    }
    let certificates = match protocol {
        Protocol::Http | Protocol::Tcp => Vec::new(),
        Protocol::Https => {
            let certificates = certificates::resolve(reader, &owner_object(owner), tls.as_ref());
            report(&certificates, &mut accepted);
            certificates.into_iter().filter_map(Result::ok).map(SecretId).collect()
        }
    };
    let port = TransportPort { number: port, transport: protocol.transport() };
    accepted.listener =
        Some(Listener { id, port, protocol, hostname, certificates, client_validation: None });
    accepted
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "HTTP" => Some(Protocol::Http),
        "HTTPS" => Some(Protocol::Https),
        "TCP" => Some(Protocol::Tcp),
        _ => None,
    }
}

/// The transport of a protocol, supported or not.
fn transport(name: &str) -> Transport {
    match protocol(name) {
        Some(protocol) => protocol.transport(),
        None if name == Transport::Udp.as_str() => Transport::Udp,
        None => Transport::Tcp,
    }
}

/// A field that means nothing for the protocol: to ignore what it asks for would open a listener to more than it should be. The
/// API refuses it, and files may have it.
fn needless(protocol: Protocol, given: &gateway::Listener) -> Option<&'static str> {
    match protocol {
        Protocol::Http | Protocol::Https => None,
        Protocol::Tcp if given.tls.is_some() => Some("tls"),
        Protocol::Tcp => given.hostname.as_ref().filter(|it| !it.is_empty()).map(|_| "hostname"),
    }
}

/// The kinds of routes that may attach, and the names of those that were asked for and cannot.
fn kinds(listener: &gateway::Listener) -> (Vec<Kind>, Vec<String>) {
    let possible = protocol(&listener.protocol).map(routes::kinds_for).unwrap_or_default();
    let asked = listener.allowed_routes.as_ref().and_then(|allowed| allowed.kinds.as_deref());
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return (possible, Vec::new());
    };
    let mut kinds = Vec::new();
    let mut foreign = Vec::new();
    for kind in asked {
        let group = kind.group.as_deref().unwrap_or(gateway::GROUP);
        match Kind::find(group, &kind.kind).filter(|kind| possible.contains(kind)) {
            Some(kind) => kinds.push(kind),
            None => foreign.push(kind.kind.clone()),
        }
    }
    (kinds, foreign)
}

fn namespaces(listener: &gateway::Listener) -> NamespaceRule {
    let allowed = listener.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    match allowed.and_then(|namespaces| namespaces.from.as_ref()) {
        None | Some(gateway::NamespacesFrom::Same) => NamespaceRule::Same,
        Some(gateway::NamespacesFrom::All) => NamespaceRule::All,
        Some(gateway::NamespacesFrom::Selector) => {
            // Kubernetes: an empty selector selects all, and none selects nothing.
            match allowed.and_then(|namespaces| namespaces.selector.as_ref()) {
                Some(gateway::NamespaceSelector { match_expressions, match_labels }) => {
                    let expressions = match_expressions.iter().flatten();
                    let expressions = expressions.map(|it| (&it.key, &it.operator, &it.values));
                    NamespaceRule::Selector(selector_of(match_labels.clone(), expressions))
                }
                None => NamespaceRule::Nobody,
            }
        }
    }
}

/// The generated types of selectors differ in name alone.
pub(super) fn selector_of<'a>(
    match_labels: Option<BTreeMap<String, String>>,
    expressions: impl Iterator<Item = (&'a String, &'a String, &'a Option<Vec<String>>)>,
) -> LabelSelector {
    LabelSelector {
        match_labels,
        match_expressions: Some(
            expressions
                .map(|(key, operator, values)| LabelSelectorRequirement {
                    key: key.clone(),
                    operator: operator.clone(),
                    values: values.clone(),
                })
                .collect(),
        ),
    }
}

/// Reports bad certificates among good ones and leaves them out; without a good one the listener is not served.
fn report(certificates: &[Certificate], listener: &mut AcceptedListener) {
    let mut faults = certificates.iter().filter_map(|certificate| certificate.as_ref().err());
    let Some(fault) = faults.next() else { return };
    listener.conditions.set(fault.clone());
    if !certificates.iter().any(Result::is_ok) {
        listener.withhold(&fault.message);
    }
}

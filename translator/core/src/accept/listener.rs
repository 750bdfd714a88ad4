use super::certificates::{self, Certificate};
use crate::ir::{Hostname, Listener, NamespaceRule, Protocol};
use crate::objects::{Kind, ObjectName, gateway};
use crate::routes;
use crate::status::{Condition, Conditions};
use crate::world::Reader;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::sync::Arc;

/// A listener as its Gateway has it, valid or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedListener {
    pub(crate) name: Arc<str>,
    /// What it would serve; `None` if that cannot be told.
    pub(crate) ir: Option<Listener>,
    /// The route kinds that are both allowed and understood.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) conditions: Conditions,
}

impl AcceptedListener {
    /// Whether routes may attach: also where a certificate is missing, so that they are counted.
    pub(crate) fn is_accepted(&self) -> bool {
        self.ir.is_some() && self.conditions.is_true("Accepted")
    }

    /// Whether proxies are told about it.
    pub(crate) fn is_served(&self) -> bool {
        self.is_accepted() && self.conditions.is_true("Programmed")
    }

    pub(super) fn refuse(&mut self, reason: &'static str, message: &str) {
        self.conditions.set(Condition::no("Accepted", reason, message));
        self.conditions.set(Condition::no("Programmed", "Invalid", message));
    }
}

pub(super) fn accept(
    reader: &Reader<'_>,
    gateway: &ObjectName,
    listener: &gateway::Listener,
) -> AcceptedListener {
    let name: Arc<str> = listener.name.as_str().into();
    let (kinds, foreign_kinds) = kinds(listener);
    let mut conditions = Conditions::from([
        Condition::yes("Accepted", "Accepted", "The listener is valid"),
        Condition::yes("Programmed", "Programmed", "The listener is published to the proxies"),
        Condition::yes("ResolvedRefs", "ResolvedRefs", "All references are resolved"),
    ]);
    if let Some(kind) = foreign_kinds.first() {
        let message =
            format!("allowedRoutes: {kind} cannot attach to a listener for {}", listener.protocol);
        conditions.set(Condition::no("ResolvedRefs", "InvalidRouteKinds", &*message));
        if kinds.is_empty() {
            conditions.set(Condition::no("Programmed", "Invalid", message));
        }
    }
    let mut accepted = AcceptedListener { name: name.clone(), ir: None, kinds, conditions };

    let Some(protocol) = protocol(&listener.protocol) else {
        accepted.refuse("UnsupportedProtocol", &format!("{} is not supported", listener.protocol));
        return accepted;
    };
    let Some(port) = u16::try_from(listener.port).ok().filter(|port| *port > 0) else {
        accepted.refuse("PortUnavailable", &format!("{} is not a port", listener.port));
        return accepted;
    };
    let hostname = match Hostname::parse(listener.hostname.as_deref()) {
        Ok(hostname) => hostname,
        Err(error) => {
            accepted.refuse("UnsupportedValue", &format!("hostname: {error}"));
            return accepted;
        }
    };
    let certificates = match protocol {
        Protocol::Http => Vec::new(),
        Protocol::Https => {
            let certificates = certificates::resolve(reader, gateway, listener);
            report(&certificates, &mut accepted.conditions);
            certificates.into_iter().filter_map(|certificate| certificate.ok()).collect()
        }
    };
    accepted.ir = Some(Listener {
        name,
        port,
        protocol,
        hostname,
        certificates,
        namespaces: namespaces(listener),
        kinds: accepted.kinds.clone(),
    });
    accepted
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "HTTP" => Some(Protocol::Http),
        "HTTPS" => Some(Protocol::Https),
        _ => None,
    }
}

/// The kinds of routes that may attach, and the names of those that were asked for and cannot.
fn kinds(listener: &gateway::Listener) -> (Vec<Kind>, Vec<String>) {
    let possible = protocol(&listener.protocol).map_or(&[][..], |_| routes::KINDS);
    let asked = listener.allowed_routes.as_ref().and_then(|allowed| allowed.kinds.as_deref());
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return (possible.to_vec(), Vec::new());
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
            let selector = allowed.and_then(|namespaces| namespaces.selector.as_ref());
            NamespaceRule::Selector(selector.map(selector_of).unwrap_or_default())
        }
    }
}

fn selector_of(selector: &gateway::NamespaceSelector) -> LabelSelector {
    let expressions = selector.match_expressions.iter().flatten();
    LabelSelector {
        match_labels: selector.match_labels.clone(),
        match_expressions: Some(
            expressions
                .map(|expression| LabelSelectorRequirement {
                    key: expression.key.clone(),
                    operator: expression.operator.clone(),
                    values: expression.values.clone(),
                })
                .collect(),
        ),
    }
}

/// One bad certificate among good ones is told and left out; without a good one the listener is not served.
fn report(certificates: &[Certificate], conditions: &mut Conditions) {
    let faults = certificates.iter().filter_map(|certificate| certificate.as_ref().err());
    if let Some(fault) = faults.into_iter().next() {
        conditions.set(fault.clone());
    }
    if !certificates.iter().any(Result::is_ok) {
        let message = conditions.message("ResolvedRefs").unwrap_or_default().to_owned();
        conditions.set(Condition::no("Programmed", "Invalid", message));
    }
}

//! ListenerSets: listeners that others add to a Gateway.

use super::listener::{self, AcceptedListener, NamespaceRule, selector_of};
use super::{allows, conflicts, tls};
use crate::objects::created;
use crate::objects::gateway::{self, GatewaySpec, ListenerSet, ListenersFrom, SetListener};
use crate::objects::{ObjectKey, ObjectName, listener_set};
use crate::status::reasons::listener_set::{accepted, programmed};
use crate::status::reasons::{Reason, Type};
use crate::status::{Condition, Conditions};
use crate::world::Reader;
use heliograph_model::{FleetOwner, ListenerOwnerKind, Seniority};

/// A ListenerSet of a Gateway of ours, and all there is to say about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedSet {
    pub(crate) name: ObjectName,
    pub(crate) generation: i64,
    /// In seconds of Unix time.
    pub(super) created: i64,
    pub(crate) conditions: Conditions,
    /// None of a set that is not allowed.
    pub(crate) listeners: Vec<AcceptedListener>,
}

/// Why a set is not accepted, and so not programmed.
type Refusal = (&'static Reason, &'static Reason);

const NOT_ALLOWED: Refusal = (accepted::NOT_ALLOWED, programmed::NOT_ALLOWED);
const PARENT_NOT_ACCEPTED: Refusal =
    (accepted::PARENT_NOT_ACCEPTED, programmed::PARENT_NOT_ACCEPTED);
const NO_LISTENER_VALID: Refusal = (accepted::NO_LISTENER_VALID, programmed::NO_LISTENER_VALID);

/// The Gateway that a ListenerSet adds to, whether or not that allows it.
pub(crate) fn gateway_of(reader: &Reader<'_>, set: &ObjectName) -> Option<ObjectName> {
    listener_set::parent(reader.object::<ListenerSet>(set)?).map(|gateway| gateway.name)
}

/// The sets of a Gateway, in order of precedence: each gives way to the Gateway's own listeners and to older sets.
pub(super) fn accept(
    reader: &Reader<'_>,
    gateway: &ObjectKey,
    spec: &GatewaySpec,
    proxies: &FleetOwner,
    refused: Option<&Condition>,
    own: &[AcceptedListener],
) -> Vec<AcceptedSet> {
    let mut objects: Vec<&ListenerSet> = reader.children(gateway).collect();
    objects.sort_by_cached_key(|set| Seniority::new(created(&set.metadata), name_of(set)));
    let rule = rule(spec);
    let mut sets: Vec<AcceptedSet> = Vec::new();
    for object in objects {
        let name = name_of(object);
        let mut set = AcceptedSet {
            generation: object.metadata.generation.unwrap_or_default(),
            created: created(&object.metadata),
            conditions: Conditions::default(),
            listeners: Vec::new(),
            name,
        };
        let home = &gateway.name.namespace;
        if !allows(reader, &rule, home, &set.name.namespace) {
            set.refuse(NOT_ALLOWED, "The Gateway does not allow ListenerSets from this namespace");
        } else if let Some(refused) = refused {
            set.refuse(PARENT_NOT_ACCEPTED, &refused.message);
        } else {
            let owner = set.name.clone().of(ListenerOwnerKind::ListenerSet);
            let given = object.spec.listeners.iter().map(as_listener);
            let accept = |given| listener::accept(reader, &owner, &given, proxies);
            set.listeners = given.map(accept).collect();
            let before = sets.iter().flat_map(|set| &set.listeners);
            conflicts::mark(&mut set.listeners, own.iter().chain(before));
            tls::verify_clients(reader, gateway, spec.tls.as_ref(), &mut set.listeners);
            set.set_conditions();
        }
        sets.push(set);
    }
    sets
}

impl AcceptedSet {
    pub(crate) fn is_accepted(&self) -> bool {
        self.conditions.is_true(Type::Accepted)
    }

    /// Rejects it because its Gateway is not accepted. Its listeners stay as they are.
    pub(super) fn reject_with_parent(&mut self, message: &str) {
        if self.is_accepted() {
            self.refuse(PARENT_NOT_ACCEPTED, message);
        }
    }

    fn refuse(&mut self, (accepted, programmed): Refusal, message: &str) {
        self.conditions = Conditions::from([
            Condition::new(accepted, message),
            Condition::new(programmed, message),
        ]);
    }

    /// Sets its conditions from those of its listeners.
    pub(super) fn set_conditions(&mut self) {
        let invalid: Vec<&str> = self
            .listeners
            .iter()
            .filter(|listener| !listener.is_served())
            .map(|listener| &*listener.id.name)
            .collect();
        if invalid.len() == self.listeners.len() {
            return self.refuse(NO_LISTENER_VALID, "No listener can be served");
        }
        let accepted = match invalid.as_slice() {
            [] => Condition::new(accepted::ACCEPTED, "The ListenerSet is valid"),
            invalid => {
                let message = format!("Not served: listener {}", invalid.join(", "));
                Condition::new(accepted::SOME_LISTENERS_NOT_VALID, message)
            }
        };
        let message = "Proxies receive this configuration";
        let programmed = Condition::new(programmed::PROGRAMMED, message);
        self.conditions = Conditions::from([accepted, programmed]);
    }
}

/// Gateway API: no ListenerSet may add listeners unless the Gateway allows it.
fn rule(spec: &GatewaySpec) -> NamespaceRule {
    let allowed = spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    match allowed.and_then(|namespaces| namespaces.from.as_ref()) {
        None | Some(ListenersFrom::None) => NamespaceRule::Nobody,
        Some(ListenersFrom::Same) => NamespaceRule::Same,
        Some(ListenersFrom::All) => NamespaceRule::All,
        Some(ListenersFrom::Selector) => {
            match allowed.and_then(|namespaces| namespaces.selector.as_ref()) {
                None => NamespaceRule::Nobody,
                Some(gateway::ListenersSelector { match_expressions, match_labels }) => {
                    let expressions = match_expressions.iter().flatten();
                    let expressions = expressions.map(|it| (&it.key, &it.operator, &it.values));
                    NamespaceRule::Selector(selector_of(match_labels.clone(), expressions))
                }
            }
        }
    }
}

fn name_of(set: &ListenerSet) -> ObjectName {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    ObjectName::new(&part(&set.metadata.namespace), &part(&set.metadata.name))
}

/// The generated types of listeners differ in name alone.
fn as_listener(listener: &SetListener) -> gateway::Listener {
    let SetListener { allowed_routes, hostname, name, port, protocol, tls } = listener;
    gateway::Listener {
        allowed_routes: allowed_routes.as_ref().and_then(same_shape),
        hostname: hostname.clone(),
        name: name.clone(),
        port: *port,
        protocol: protocol.clone(),
        tls: tls.as_ref().and_then(same_shape),
    }
}

fn same_shape<T: serde::de::DeserializeOwned>(from: &impl serde::Serialize) -> Option<T> {
    serde_json::to_value(from).and_then(serde_json::from_value).ok()
}

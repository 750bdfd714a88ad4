//! The `status` of each object, as the Kubernetes API has it, except for transition times, which the writer adds.

mod addresses;
mod closed;
mod condition;
mod features;
mod policy;
pub mod reasons;
mod view_policy;

pub use addresses::Address;
pub use condition::{Condition, Conditions};
pub use features::SUPPORTED_FEATURES;
pub use policy::{AncestorStatus, PolicyStatus};
pub use view_policy::ViewPolicyStatus;

use crate::CONTROLLER_NAME;
use crate::accept::{self, AcceptedListener};
use crate::attach::Parent;
use crate::left_out;
use crate::merge;
use crate::objects::heliograph::Proxy;
use crate::objects::{Kind, ObjectKey, ObjectName, gateway, policy_id, route_id};
use crate::views;
use crate::world::Reader;
use heliograph_model::Route;
use heliograph_snapshot::FleetName;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Status {
    GatewayClass(GatewayClassStatus),
    Gateway(GatewayStatus),
    ListenerSet(ListenerSetStatus),
    Route(RouteStatus),
    ViewPolicy(ViewPolicyStatus),
    Policy(PolicyStatus),
    /// Why this translator ignores the object. Not written to Kubernetes, where the object may be another controller's.
    Ignored(Ignored),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    pub ignored: String,
    /// Another controller has it. Otherwise what would say whose it is may only be missing.
    #[serde(skip)]
    pub elsewhere: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassStatus {
    pub conditions: Conditions,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// Whose proxies serve it.
    #[serde(skip)]
    pub fleet: FleetName,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    pub conditions: Conditions,
    pub listeners: Vec<ListenerStatus>,
    /// How many ListenerSets are accepted.
    #[serde(skip_serializing_if = "is_zero")]
    pub attached_listener_sets: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetStatus {
    /// Whose proxies serve it.
    #[serde(skip)]
    pub fleet: FleetName,
    pub conditions: Conditions,
    pub listeners: Vec<ListenerStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    pub name: String,
    pub attached_routes: usize,
    pub supported_kinds: Vec<RouteGroupKind>,
    pub conditions: Conditions,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteGroupKind {
    pub group: &'static str,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// Only the parents that are ours; others' entries are theirs.
    pub parents: Vec<ParentStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentStatus {
    /// Whose proxies serve the parent.
    #[serde(skip)]
    pub fleet: FleetName,
    pub parent_ref: gateway::ParentRef,
    pub controller_name: &'static str,
    pub conditions: Conditions,
}

/// Something that is wrong with an object, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub object: ObjectKey,
    /// The listener or parent within the object, if one is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    pub condition: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// `None` where there is nothing to say.
pub(crate) fn of(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    match key.kind {
        Kind::GatewayClass => class(reader, key).map(Status::GatewayClass),
        Kind::Gateway => {
            gateway(reader, key).map(Status::Gateway).or_else(|| stray_gateway(reader, key))
        }
        Kind::ListenerSet => {
            listener_set(reader, key).map(Status::ListenerSet).or_else(|| stray_set(reader, key))
        }
        Kind::ViewPolicy => view_policy::status(reader, key).map(Status::ViewPolicy),
        Kind::Proxy => stray_proxy(reader, key),
        kind if kind.is_route() => {
            route(reader, key).map(Status::Route).or_else(|| stray_route(reader, key))
        }
        _ => policy::of(reader, &policy_id(key)?),
    }
}

impl Status {
    /// The listeners of a Gateway, or of a ListenerSet, and the fleet that serves them.
    pub fn listeners(&self) -> Option<(&FleetName, &[ListenerStatus])> {
        match self {
            Self::Gateway(status) => Some((&status.fleet, &status.listeners)),
            Self::ListenerSet(status) => Some((&status.fleet, &status.listeners)),
            _ => None,
        }
    }

    /// The generation of the object that this was computed from. `None` where nothing is written to Kubernetes.
    pub fn generation(&self) -> Option<i64> {
        let conditions = match self {
            Self::Ignored(_) => return None,
            Self::GatewayClass(status) => &status.conditions,
            Self::ViewPolicy(status) => &status.conditions,
            Self::Gateway(status) => &status.conditions,
            Self::ListenerSet(status) => &status.conditions,
            Self::Route(status) => &status.parents.first()?.conditions,
            Self::Policy(status) => &status.ancestors.first()?.conditions,
        };
        conditions.iter().next().map(|condition| condition.observed_generation)
    }

    pub fn problems(&self, object: &ObjectKey) -> Vec<Problem> {
        if let Self::Ignored(Ignored { ignored, elsewhere: _ }) = self {
            return vec![Problem {
                object: object.clone(),
                part: None,
                condition: "Ignored",
                reason: "NotManaged",
                message: ignored.clone(),
            }];
        }
        let parts: Vec<(Option<String>, &Conditions)> = match self {
            Self::Ignored(_) => Vec::new(),
            Self::GatewayClass(status) => vec![(None, &status.conditions)],
            Self::ViewPolicy(status) => vec![(None, &status.conditions)],
            Self::Gateway(GatewayStatus { conditions, listeners, .. })
            | Self::ListenerSet(ListenerSetStatus { conditions, listeners, .. }) => {
                let own = [(None, conditions)];
                let listeners = listeners.iter().map(|listener| {
                    (Some(format!("listener {}", listener.name)), &listener.conditions)
                });
                own.into_iter().chain(listeners).collect()
            }
            Self::Policy(PolicyStatus { ancestors, conditions }) => {
                let ancestors = ancestors.iter().map(|ancestor| {
                    let reference = &ancestor.ancestor_ref;
                    let kind = reference.kind.as_deref().unwrap_or_default();
                    (Some(format!("{kind} {}", reference.name)), &ancestor.conditions)
                });
                ancestors.chain([(None, conditions)]).collect()
            }
            Self::Route(status) => {
                let parents = status.parents.iter().map(|parent| {
                    (Some(format!("parent {}", parent.parent_ref.name)), &parent.conditions)
                });
                parents.collect()
            }
        };
        parts
            .into_iter()
            .flat_map(|(part, conditions)| {
                conditions.problems().map(move |condition| Problem {
                    object: object.clone(),
                    part: part.clone(),
                    condition: condition.reason.r#type().as_str(),
                    reason: condition.reason.as_str(),
                    message: condition.message.clone(),
                })
            })
            .collect()
    }
}

fn class(reader: &Reader<'_>, key: &ObjectKey) -> Option<GatewayClassStatus> {
    let class = reader.object::<gateway::GatewayClass>(&key.name)?;
    if !accept::is_ours(class) {
        return None;
    }
    let accepted = accept::class_refusal(reader, class).unwrap_or_else(|| {
        Condition::new(reasons::gateway_class::accepted::ACCEPTED, "The GatewayClass is valid")
    });
    let generation = class.metadata.generation.unwrap_or_default();
    Some(GatewayClassStatus { conditions: Conditions::from([accepted]).observed(generation) })
}

fn gateway(reader: &Reader<'_>, key: &ObjectKey) -> Option<GatewayStatus> {
    let gateway = reader.gateway(&key.name)?;
    let mut conditions = gateway.conditions.clone();
    Some(GatewayStatus {
        fleet: gateway.attach_points.fleet.clone(),
        addresses: addresses::of(reader, &key.name, &gateway.attach_points.owner, &mut conditions),
        conditions: conditions.observed(gateway.generation),
        listeners: listeners(reader, &gateway.listeners, gateway.generation),
        attached_listener_sets: gateway.sets.iter().filter(|set| set.is_accepted()).count(),
    })
}

fn listener_set(reader: &Reader<'_>, key: &ObjectKey) -> Option<ListenerSetStatus> {
    let gateway = reader.gateway(&accept::gateway_of(reader, &key.name)?)?;
    let set = gateway.sets.iter().find(|set| set.name == key.name)?;
    Some(ListenerSetStatus {
        fleet: gateway.attach_points.fleet.clone(),
        conditions: set.conditions.clone().observed(set.generation),
        listeners: listeners(reader, &set.listeners, set.generation),
    })
}

fn listeners(
    reader: &Reader<'_>,
    listeners: &[AcceptedListener],
    generation: i64,
) -> Vec<ListenerStatus> {
    let kind = |kind: &Kind| RouteGroupKind { group: kind.group(), kind: kind.as_str() };
    let status = |listener: &AcceptedListener| ListenerStatus {
        name: listener.id.name.to_string(),
        attached_routes: reader.attached_routes(&listener.id),
        supported_kinds: listener.kinds.iter().map(kind).collect(),
        conditions: listener.conditions.clone().observed(generation),
    };
    listeners.iter().map(status).collect()
}

/// A set for a Gateway that is not ours, or that is not there.
fn stray_set(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let parent = accept::gateway_of(reader, &key.name);
    ignored(match parent {
        Some(gateway) => format!("Heliograph serves no Gateway {gateway}"),
        None => "its parentRef names no Gateway".to_owned(),
    })
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn route(reader: &Reader<'_>, key: &ObjectKey) -> Option<RouteStatus> {
    let id = route_id(key)?;
    let rules = reader.rules(&id)?;
    let attachment = reader.attachment(&id)?;
    let parent = |parent: &Parent| ParentStatus {
        fleet: parent.fleet.clone(),
        parent_ref: parent.reference.clone(),
        controller_name: CONTROLLER_NAME,
        conditions: {
            let conditions = [parent.accepted.clone(), rules.resolved.clone()];
            let mut conditions = Conditions::from(conditions);
            if let Some(programmed) = &parent.programmed {
                conditions.set(programmed.clone());
            }
            let older = match &rules.route {
                Some(Route::Tcp(_)) => merge::older_route(reader, &id, parent),
                Some(Route::Http(_)) | None => None,
            };
            if let Some(older) = older {
                conditions.set(older);
            }
            if let Some(closed) = closed::condition(reader, &id, rules, parent) {
                conditions.set(closed);
            }
            if let Some(left_out) = left_out::condition(reader, &parent.fleet, key) {
                conditions.set(left_out);
            }
            conditions.observed(rules.generation)
        },
    };
    let parents: Vec<ParentStatus> = attachment.parents.iter().map(parent).collect();
    (!parents.is_empty()).then_some(RouteStatus { parents })
}

/// A Gateway that is not ours: most often its class is misspelt.
fn stray_gateway(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let class = &reader.object::<gateway::Gateway>(&key.name)?.spec.gateway_class_name;
    let found = reader.object::<gateway::GatewayClass>(&ObjectName::new("", class));
    let ignored = match found {
        None => format!("its GatewayClass {class} does not exist"),
        Some(found) => format!(
            "its GatewayClass {class} is of the controller {}, not {CONTROLLER_NAME}",
            found.spec.controller_name
        ),
    };
    Some(Status::Ignored(Ignored { ignored, elsewhere: found.is_some() }))
}

/// A route without a parent of ours.
fn stray_route(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let rules = reader.rules(&route_id(key)?)?;
    ignored(match rules.parents.first() {
        None => "it has no parentRefs".to_owned(),
        Some(parent) => {
            let namespace = parent.namespace.as_deref().unwrap_or(&key.name.namespace);
            let kind = parent.kind.as_deref().unwrap_or(Kind::Gateway.as_str());
            format!("Heliograph serves no {kind} {namespace}/{}", parent.name)
        }
    })
}

/// A proxy of a Gateway that is not ours.
fn stray_proxy(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let target = &reader.object::<Proxy>(&key.name)?.spec.target_ref;
    ignored(views::target(reader, &key.name.namespace, target).err()?)
}

fn ignored(reason: String) -> Option<Status> {
    Some(Status::Ignored(Ignored { ignored: reason, elsewhere: false }))
}

//! What there is to say about each object: its `status`, as the Kubernetes API has it, but for the times of transition,
//! which are the writer's.

mod addresses;
mod condition;
mod view_policy;

pub use addresses::Address;
pub use condition::{Condition, Conditions};
pub use view_policy::ViewPolicyStatus;

use crate::CONTROLLER_NAME;
use crate::accept::{self, AcceptedListener};
use crate::attach::Parent;
use crate::objects::heliograph::Proxy;
use crate::objects::{Kind, ObjectKey, ObjectName, gateway};
use crate::world::Reader;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Status {
    GatewayClass(GatewayClassStatus),
    Gateway(GatewayStatus),
    Route(RouteStatus),
    ViewPolicy(ViewPolicyStatus),
    /// Not for Kubernetes, where the object may be another controller's: nobody here takes it, and why.
    Ignored(Ignored),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    pub ignored: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassStatus {
    pub conditions: Conditions,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
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
        Kind::ViewPolicy => view_policy::status(reader, key).map(Status::ViewPolicy),
        Kind::Proxy => stray_proxy(reader, key),
        kind if kind.is_route() => {
            route(reader, key).map(Status::Route).or_else(|| stray_route(reader, key))
        }
        _ => None,
    }
}

impl Status {
    pub fn problems(&self, object: &ObjectKey) -> Vec<Problem> {
        if let Self::Ignored(Ignored { ignored }) = self {
            return vec![Problem {
                object: object.clone(),
                part: None,
                condition: "Ignored",
                reason: "NobodyTakesIt",
                message: ignored.clone(),
            }];
        }
        let parts: Vec<(Option<String>, &Conditions)> = match self {
            Self::Ignored(_) => Vec::new(),
            Self::GatewayClass(status) => vec![(None, &status.conditions)],
            Self::ViewPolicy(status) => vec![(None, &status.conditions)],
            Self::Gateway(status) => {
                let own = [(None, &status.conditions)];
                let listeners = status.listeners.iter().map(|listener| {
                    (Some(format!("listener {}", listener.name)), &listener.conditions)
                });
                own.into_iter().chain(listeners).collect()
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
                    condition: condition.r#type,
                    reason: condition.reason,
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
    let accepted = accept::class_refusal(reader, class)
        .unwrap_or_else(|| Condition::yes("Accepted", "Accepted", "The GatewayClass is valid"));
    let generation = class.metadata.generation.unwrap_or_default();
    Some(GatewayClassStatus { conditions: Conditions::from([accepted]).observed(generation) })
}

fn gateway(reader: &Reader<'_>, key: &ObjectKey) -> Option<GatewayStatus> {
    let gateway = reader.gateway(&key.name)?;
    let listener = |listener: &AcceptedListener| ListenerStatus {
        name: listener.id.name.to_string(),
        attached_routes: reader.attached_routes(&listener.id),
        supported_kinds: listener
            .kinds
            .iter()
            .map(|kind| RouteGroupKind { group: kind.group(), kind: kind.as_str() })
            .collect(),
        conditions: listener.conditions.clone().observed(gateway.generation),
    };
    let mut conditions = gateway.conditions.clone();
    Some(GatewayStatus {
        addresses: addresses::of(reader, &key.name, &mut conditions),
        conditions: conditions.observed(gateway.generation),
        listeners: gateway.listeners.iter().map(listener).collect(),
    })
}

fn route(reader: &Reader<'_>, key: &ObjectKey) -> Option<RouteStatus> {
    let rules = reader.rules(key)?;
    let attachment = reader.attachment(key)?;
    let parent = |parent: &Parent| ParentStatus {
        parent_ref: parent.reference.clone(),
        controller_name: CONTROLLER_NAME,
        conditions: Conditions::from([parent.accepted.clone(), rules.resolved.clone()])
            .observed(rules.generation),
    };
    let parents: Vec<ParentStatus> = attachment.parents.iter().map(parent).collect();
    (!parents.is_empty()).then_some(RouteStatus { parents })
}

/// A Gateway that is not ours: most often its class is misspelt.
fn stray_gateway(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let class = &reader.object::<gateway::Gateway>(&key.name)?.spec.gateway_class_name;
    let found = reader.object::<gateway::GatewayClass>(&ObjectName::new("", class));
    ignored(match found {
        None => format!("its GatewayClass {class} does not exist"),
        Some(found) => format!(
            "its GatewayClass {class} is of the controller {}, not {CONTROLLER_NAME}",
            found.spec.controller_name
        ),
    })
}

/// A route whose parents are nobody's here.
fn stray_route(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let rules = reader.rules(key)?;
    ignored(match rules.parents.first() {
        None => "it has no parentRefs".to_owned(),
        Some(parent) => {
            let namespace = parent.namespace.as_deref().unwrap_or(&key.name.namespace);
            let kind = parent.kind.as_deref().unwrap_or(Kind::Gateway.as_str());
            format!("no {kind} {namespace}/{} takes routes here", parent.name)
        }
    })
}

/// A proxy of a Gateway that is not ours.
fn stray_proxy(reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
    let target = &reader.object::<Proxy>(&key.name)?.spec.target_ref;
    match reader.proxy(&key.name) {
        Some(_) => None,
        None => ignored(format!(
            "no {} {}/{} is served here",
            target.kind, key.name.namespace, target.name
        )),
    }
}

fn ignored(reason: String) -> Option<Status> {
    Some(Status::Ignored(Ignored { ignored: reason }))
}

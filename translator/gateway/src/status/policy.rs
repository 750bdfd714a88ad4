//! The status of policies of any kind: an entry for each Gateway that they concern.

use super::reasons::policy::accepted::NO_TARGETS;
use super::{Condition, Conditions, Status, ignored};
use crate::CONTROLLER_NAME;
use crate::accept;
use crate::attach::Parent;
use crate::backends;
use crate::objects::gateway::{Gateway, ListenerSet, ParentRef};
use crate::objects::{owner_object, upstream_object};
use crate::policies::{self, AcceptedPolicy, PolicyReasons};
use crate::world::Reader;
use heliograph_model::{
    ListenerOwner, ListenerOwnerKind, NamedKind, PolicyId, PolicyKind, PolicyScope, PolicyTarget,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of policies that change what others do: said once for each Gateway that is concerned.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Only those that are ours; others' entries are theirs.
    pub ancestors: Vec<AncestorStatus>,
    /// What is wrong with a policy that concerns no Gateway of ours. Kubernetes has no place for it.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorStatus {
    pub ancestor_ref: ParentRef,
    pub controller_name: &'static str,
    pub conditions: Conditions,
}

/// The API's bound.
const MOST_ANCESTORS: usize = 16;

/// A Gateway or a ListenerSet that a policy concerns, or a listener of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ancestor {
    owner: ListenerOwner,
    section: Option<Arc<str>>,
}

/// Why a policy is not in force at a target, whatever it asks for. The first is said where several are true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttachFailure {
    Conflict(String),
    NotFound(String),
}

pub(super) fn of(reader: &Reader<'_>, id: &PolicyId) -> Option<Status> {
    let policy = reader.accepted_policy(id)?;
    let mut ancestors: BTreeMap<Ancestor, Option<AttachFailure>> = BTreeMap::new();
    let mut of_others = None;
    for target in &policy.targets {
        let failure = failure(reader, policy, target);
        let concerned = concerned(reader, target);
        if concerned.is_empty() {
            of_others = first(of_others, failure.clone());
        }
        for ancestor in concerned {
            let known = ancestors.entry(ancestor).or_default();
            *known = first(known.take(), failure.clone());
        }
    }
    if ancestors.is_empty() {
        return unattached(policy, of_others);
    }
    let status = |(ancestor, failure): (Ancestor, Option<AttachFailure>)| {
        let accepted = accepted(policy, first(failure, of_others.clone()));
        let mut conditions = Conditions::from([accepted]);
        policy.resolved.iter().for_each(|resolved| conditions.set(resolved.clone()));
        AncestorStatus {
            ancestor_ref: ancestor.reference(),
            controller_name: CONTROLLER_NAME,
            conditions: conditions.observed(policy.generation),
        }
    };
    let mut ancestors: Vec<AncestorStatus> = ancestors.into_iter().map(status).collect();
    if ancestors.len() > MOST_ANCESTORS {
        // What is wrong comes first.
        ancestors.sort_by_key(|ancestor| ancestor.conditions.problems().next().is_none());
        ancestors.truncate(MOST_ANCESTORS);
    }
    Some(Status::Policy(PolicyStatus { ancestors, conditions: Conditions::default() }))
}

fn first(one: Option<AttachFailure>, other: Option<AttachFailure>) -> Option<AttachFailure> {
    one.into_iter().chain(other).min()
}

fn accepted(policy: &AcceptedPolicy, failure: Option<AttachFailure>) -> Condition {
    let reasons = PolicyReasons::of(policy.id().kind);
    match (&policy.sections, failure) {
        // It has no effect anywhere.
        (Err(rejection), _) if !policy.counts() => rejection.condition(),
        (_, Some(AttachFailure::Conflict(why))) => Condition::new(reasons.conflicted, why),
        (_, Some(AttachFailure::NotFound(why))) => Condition::new(reasons.target_not_found, why),
        (Err(rejection), None) => rejection.condition(),
        (Ok(_), None) => Condition::new(reasons.accepted, "The policy is valid"),
    }
}

/// Of a policy that concerns no Gateway of ours.
fn unattached(policy: &AcceptedPolicy, failure: Option<AttachFailure>) -> Option<Status> {
    let is_backend_tls = policy.id().kind == PolicyKind::BackendTls;
    let condition = match (&policy.sections, failure) {
        (Err(_), failure) => accepted(policy, failure),
        // A Service that no route refers to, or that does not exist, needs no status.
        (Ok(_), _) if is_backend_tls => {
            return ignored(
                "no route of a Gateway that Heliograph serves leads to its targets".to_owned(),
            );
        }
        (Ok(_), failure @ Some(_)) => accepted(policy, failure),
        (Ok(_), None) if policy.targets.is_empty() => {
            Condition::new(NO_TARGETS, "No object matches its targetSelectors")
        }
        (Ok(_), None) => {
            return ignored("its targets belong to no Gateway that Heliograph serves".to_owned());
        }
    };
    let conditions = Conditions::from([condition]).observed(policy.generation);
    Some(Status::Policy(PolicyStatus { ancestors: Vec::new(), conditions }))
}

fn failure(
    reader: &Reader<'_>,
    policy: &AcceptedPolicy,
    target: &PolicyTarget,
) -> Option<AttachFailure> {
    if let Some(other) = policies::conflicting_policy(reader, policy, target) {
        let PolicyId { kind, name } = other.id();
        let name = match name.namespace == policy.id().name.namespace {
            true => name.name.to_string(),
            false => name.to_string(),
        };
        let why = format!("{} {name} has the same target and is older", kind.as_str());
        return Some(AttachFailure::Conflict(why));
    }
    missing(reader, target).map(AttachFailure::NotFound)
}

/// Names the missing part of a target.
fn missing(reader: &Reader<'_>, target: &PolicyTarget) -> Option<String> {
    let section = target.section.as_deref();
    match &target.scope {
        PolicyScope::Owner(owner) => missing_listener(reader, owner, None),
        PolicyScope::Listener(id) => missing_listener(reader, &id.owner, Some(&id.name)),
        PolicyScope::Route(route) => match reader.rules(route) {
            None => Some(format!("{route} does not exist")),
            Some(rules) => {
                let name = section.filter(|name| !rules.has_rule(name))?;
                Some(format!("{route} has no rule with the name {name}"))
            }
        },
        PolicyScope::Upstream(object) => backends::missing(reader, object, section),
    }
}

fn missing_listener(
    reader: &Reader<'_>,
    owner: &ListenerOwner,
    name: Option<&str>,
) -> Option<String> {
    let names: Option<Vec<&String>> = match owner.kind {
        ListenerOwnerKind::Gateway => reader
            .object::<Gateway>(&owner.name)
            .map(|gateway| gateway.spec.listeners.iter().map(|it| &it.name).collect()),
        ListenerOwnerKind::ListenerSet => reader
            .object::<ListenerSet>(&owner.name)
            .map(|set| set.spec.listeners.iter().map(|it| &it.name).collect()),
    };
    let Some(names) = names else { return Some(format!("{owner} does not exist")) };
    let name = name.filter(|name| !names.iter().any(|listener| listener == name))?;
    Some(format!("{owner} has no listener with the name {name}"))
}

/// The Gateways of ours, ListenerSets and listeners that a policy concerns by this target.
fn concerned(reader: &Reader<'_>, target: &PolicyTarget) -> Vec<Ancestor> {
    let ancestor = |owner: ListenerOwner, section: Option<&str>| Ancestor {
        owner,
        section: section.map(Into::into),
    };
    match &target.scope {
        PolicyScope::Owner(owner) if is_ours(reader, owner) => vec![ancestor(owner.clone(), None)],
        PolicyScope::Listener(id) if is_ours(reader, &id.owner) => {
            vec![ancestor(id.owner.clone(), Some(&id.name))]
        }
        PolicyScope::Owner(_) | PolicyScope::Listener(_) => Vec::new(),
        PolicyScope::Route(route) => {
            let parents = reader.attachment(route).into_iter().flat_map(|it| &it.parents);
            let section = |parent: &Parent| parent.reference.section_name.clone();
            parents.map(|it| ancestor(it.owner(route), section(it).as_deref())).collect()
        }
        PolicyScope::Upstream(object) => {
            let gateways = reader.referring_gateways(&upstream_object(object));
            gateways.map(|it| ancestor(it.clone().of(ListenerOwnerKind::Gateway), None)).collect()
        }
    }
}

/// Whether it is a Gateway of ours, or a set that adds to one.
fn is_ours(reader: &Reader<'_>, owner: &ListenerOwner) -> bool {
    let gateway = match owner.kind {
        ListenerOwnerKind::Gateway => Some(owner.name.clone()),
        ListenerOwnerKind::ListenerSet => accept::gateway_of(reader, &owner.name),
    };
    gateway.is_some_and(|gateway| reader.attach_points_of(&gateway, owner).is_some())
}

impl Ancestor {
    fn reference(&self) -> ParentRef {
        let object = owner_object(&self.owner);
        ParentRef {
            group: Some(object.kind.group().to_owned()),
            kind: Some(object.kind.as_str().to_owned()),
            name: object.name.name.to_string(),
            namespace: Some(object.name.namespace.to_string()),
            section_name: self.section.as_deref().map(str::to_owned),
            port: None,
        }
    }
}

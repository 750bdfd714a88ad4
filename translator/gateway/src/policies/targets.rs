//! The targets of a policy: objects that it names, and objects that it selects by their labels.

use super::{Policy, Rejection};
use crate::objects::gateway::GROUP;
use crate::objects::policy::{PolicyObject, PolicyTargetRef, TargetSelector};
use crate::objects::{Kind, Object, ObjectKey, ObjectName};
use crate::world::Reader;
use heliograph_model::{
    ListenerId, ListenerOwnerKind, PolicyId, PolicyScope, PolicyTarget, RouteKind, UpstreamKind,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Selector, SelectorExt};
use std::collections::{BTreeMap, BTreeSet};

/// What policies can target, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    ListenerOwner(ListenerOwnerKind),
    Route(RouteKind),
    Upstream(UpstreamKind),
}

/// The targets of a policy, in order, each once; and the first that cannot be one. The others are its targets all the same.
pub(super) fn resolve<S: Policy>(
    reader: &Reader<'_>,
    id: &PolicyId,
    policy: &PolicyObject<S>,
) -> (Vec<PolicyTarget>, Option<Rejection>) {
    let mut targets = BTreeSet::new();
    let mut rejection = None;
    let mut reject = |field: &str, what: &str, value: &str| {
        let field = format!("{field}.{what}");
        rejection.get_or_insert_with(|| {
            Rejection::invalid(id.kind, &field, format!("{value} is not supported"))
        });
    };
    let supported = |group: &str, kind: &str| {
        let kind = Kind::find(group, kind).and_then(TargetKind::of);
        kind.filter(|kind| S::can_target(*kind))
    };
    let home = &*id.name.namespace;
    for reference in &policy.targets {
        let PolicyTargetRef { field, group, kind, name, section_name } = reference;
        match supported(group, kind) {
            Some(kind) => {
                let name = ObjectName::new(home, name);
                targets.insert(kind.target(name, section_name.as_deref()));
            }
            None if S::IGNORES_OTHER_TARGETS => {}
            None => reject(field, "kind", kind),
        }
    }
    for selector in &policy.selectors {
        let TargetSelector { field, group, kind, namespaces, match_labels, match_expressions } =
            selector;
        if let Some(namespaces) = namespaces.as_ref().filter(|it| it.from != "Same") {
            reject(field, "namespaces.from", &namespaces.from);
        }
        let known = |it: &&LabelSelectorRequirement| OPERATORS.contains(&it.operator.as_str());
        let (expressions, unknown): (Vec<_>, Vec<_>) = match_expressions.iter().partition(known);
        if let Some(unknown) = unknown.first() {
            reject(field, "matchExpressions", &unknown.operator);
        }
        let Some(kind) = supported(group.as_deref().unwrap_or(GROUP), kind) else {
            reject(field, "kind", kind);
            continue;
        };
        let selected = select(reader, kind.into(), home, match_labels, &expressions);
        targets.extend(selected.into_iter().map(|object| kind.target(object.name, None)));
    }
    (targets.into_iter().collect(), rejection)
}

/// Of Kubernetes' selectors. An expression with another one selects everything: a policy that protects is rejected with
/// it, and closes too much rather than too little.
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

impl TargetKind {
    /// `None`: no policy can target objects of this kind.
    fn of(kind: Kind) -> Option<Self> {
        let owner = kind.listener_owner_kind().map(Self::ListenerOwner);
        let route = || kind.route_kind().map(Self::Route);
        let upstream = || kind.upstream_kind().map(Self::Upstream);
        owner.or_else(route).or_else(upstream)
    }

    fn target(self, name: ObjectName, section: Option<&str>) -> PolicyTarget {
        let scope = match self {
            Self::ListenerOwner(kind) => {
                let owner = name.of(kind);
                return PolicyTarget::all(match section {
                    Some(section) => PolicyScope::Listener(ListenerId::new(owner, section)),
                    None => PolicyScope::Owner(owner),
                });
            }
            Self::Route(kind) => PolicyScope::Route(name.of(kind)),
            Self::Upstream(kind) => PolicyScope::Upstream(name.of(kind)),
        };
        PolicyTarget { scope, section: section.map(Into::into) }
    }
}

impl From<TargetKind> for Kind {
    fn from(kind: TargetKind) -> Self {
        match kind {
            TargetKind::ListenerOwner(kind) => kind.into(),
            TargetKind::Route(kind) => kind.into(),
            TargetKind::Upstream(kind) => kind.into(),
        }
    }
}

/// The objects of a kind in a namespace that have these labels.
fn select(
    reader: &Reader<'_>,
    kind: Kind,
    namespace: &str,
    match_labels: &BTreeMap<String, String>,
    expressions: &[&LabelSelectorRequirement],
) -> Vec<ObjectKey> {
    let selector = LabelSelector {
        match_labels: Some(match_labels.clone()),
        match_expressions: Some(expressions.iter().map(|it| (*it).clone()).collect()),
    };
    // Its operators are known, so this does not fail; if it did, too much would be selected.
    let selector = Selector::try_from(selector).unwrap_or_default();
    let none = BTreeMap::new();
    let objects = reader.objects_of(kind, namespace);
    let selected =
        objects.filter(|it| selector.matches(it.metadata().labels.as_ref().unwrap_or(&none)));
    selected.map(Object::key).collect()
}

//! The targets of a policy: objects that it names, and objects that it selects by their labels. In other namespaces it
//! selects what a ReferenceGrant there lets it refer to, as in Envoy Gateway: without one, no tenant closes routes of others.

use super::{Policy, Rejection};
use crate::accept::{self, NamespaceRule};
use crate::objects::gateway::GROUP;
use crate::objects::policy::{PolicyObject, PolicyTargetRef, SelectedNamespaces, TargetSelector};
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
    let mut reject = |field: &str, what: &str, why: String| {
        let field = format!("{field}.{what}");
        rejection.get_or_insert_with(|| Rejection::invalid(id.kind, &field, why));
    };
    let supported = |group: &str, kind: &str| {
        let kind = Kind::find(group, kind).and_then(TargetKind::of);
        kind.filter(|kind| S::can_target(*kind))
    };
    let own = id.name.clone().of(Kind::from(id.kind));
    let home = &*id.name.namespace;
    for reference in &policy.targets {
        let PolicyTargetRef { field, group, kind, name, section_name } = reference;
        match supported(group, kind) {
            Some(kind) => {
                let name = ObjectName::new(home, name);
                targets.insert(kind.target(name, section_name.as_deref()));
            }
            None if S::IGNORES_OTHER_TARGETS => {}
            None => reject(field, "kind", unsupported(kind)),
        }
    }
    for selector in &policy.selectors {
        let TargetSelector { field, group, kind, namespaces, match_labels, match_expressions } =
            selector;
        let rule = match namespaces.as_ref().map(rule) {
            None => NamespaceRule::Same,
            Some(Ok(rule)) => rule,
            Some(Err((what, why, rule))) => {
                reject(field, what, why);
                rule
            }
        };
        let (labels, unknown) = understood(LabelSelector {
            match_labels: Some(match_labels.clone()),
            match_expressions: Some(match_expressions.clone()),
        });
        if let Some(why) = unknown {
            reject(field, "matchExpressions", why);
        }
        let Some(kind) = supported(group.as_deref().unwrap_or(GROUP), kind) else {
            reject(field, "kind", unsupported(kind));
            continue;
        };
        let selected = select(reader, &own, kind.into(), &rule, labels);
        targets.extend(selected.into_iter().map(|object| kind.target(object.name, None)));
    }
    (targets.into_iter().collect(), rejection)
}

/// The namespaces where a policy selects. Of what is not understood, the field, what is wrong with it, and those that count
/// in doubt.
fn rule(
    given: &SelectedNamespaces,
) -> Result<NamespaceRule, (&'static str, String, NamespaceRule)> {
    let SelectedNamespaces { from, selector } = given;
    match (from.as_str(), selector) {
        ("" | "Same", _) => Ok(NamespaceRule::Same),
        ("All", _) => Ok(NamespaceRule::All),
        ("Selector", Some(selector)) => match understood(selector.clone()) {
            (selector, None) => Ok(NamespaceRule::Selector(selector)),
            (selector, Some(why)) => Err((
                "namespaces.selector.matchExpressions",
                why,
                NamespaceRule::Selector(selector),
            )),
        },
        ("Selector", None) => {
            Err(("namespaces.selector", "it is missing".to_owned(), NamespaceRule::All))
        }
        (other, _) => Err(("namespaces.from", unsupported(other), NamespaceRule::All)),
    }
}

fn unsupported(value: &str) -> String {
    format!("{value} is not supported")
}

/// A selector without the expressions that Kubernetes refuses, and what is wrong with the first of these: a policy that
/// protects is rejected with it, and closes too much rather than too little.
fn understood(mut selector: LabelSelector) -> (LabelSelector, Option<String>) {
    let mut unknown = None;
    let mut expressions = selector.match_expressions.take().unwrap_or_default();
    expressions.retain(|it| {
        let fault = fault(it);
        let is_known = fault.is_none();
        unknown = unknown.take().or(fault);
        is_known
    });
    selector.match_expressions = Some(expressions);
    (selector, unknown)
}

/// Of an expression of a selector.
fn fault(expression: &LabelSelectorRequirement) -> Option<String> {
    let LabelSelectorRequirement { key: _, operator, values } = expression;
    let has_values = values.as_ref().is_some_and(|values| !values.is_empty());
    match (operator.as_str(), has_values) {
        ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => None,
        ("In" | "NotIn", false) => Some(format!("{operator} needs values")),
        ("Exists" | "DoesNotExist", true) => Some(format!("{operator} has no values")),
        _ => Some(unsupported(operator)),
    }
}

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

/// The objects of a kind that have these labels, of the namespaces that are selected: its own, and those that let it refer to them.
fn select(
    reader: &Reader<'_>,
    policy: &ObjectKey,
    kind: Kind,
    rule: &NamespaceRule,
    labels: LabelSelector,
) -> Vec<ObjectKey> {
    let home = &policy.name.namespace;
    let mut namespaces = BTreeSet::from([home.clone()]);
    if !matches!(rule, NamespaceRule::Same) {
        namespaces.extend(accept::granting(reader, policy));
    }
    namespaces.retain(|namespace| accept::allows(reader, rule, home, namespace));
    // Its expressions are understood, so this does not fail; if it did, too much would be selected.
    let labels = Selector::try_from(labels).unwrap_or_default();
    let none = BTreeMap::new();
    let mut objects = Vec::new();
    for namespace in &namespaces {
        let granted = accept::granted(reader, policy, kind, namespace);
        let selected = reader
            .objects_of(kind, namespace)
            .filter(|it| labels.matches(it.metadata().labels.as_ref().unwrap_or(&none)));
        objects.extend(selected.map(Object::key).filter(|it| granted.has(&it.name.name)));
    }
    objects
}

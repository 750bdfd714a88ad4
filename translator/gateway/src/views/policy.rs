use super::treatment::Patch;
use crate::objects::ObjectName;
use crate::objects::heliograph::{Clients, Only, Overlay, Prefer, ViewRule};
use crate::objects::view_policy::{OnlyFor, ViewPolicyObject};
use crate::world::Reader;
use heliograph_model::{FleetOwner, TransportPort};
use heliograph_snapshot::{FleetName, ResourceType};
use heliograph_views::{Audience, EnvoyVersion, Operator, Requirement};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A ViewPolicy as it is understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedViewPolicy {
    pub(crate) generation: i64,
    /// Its fleet; `None` if its Gateway is not ours.
    pub(crate) fleet: Option<FleetName>,
    /// Its rules, or why it is rejected as a whole.
    pub(crate) decoded: Result<ViewRules, String>,
    /// Ports that no client is served, because the policy that restricts them is rejected: a mistake in it must not show
    /// to all clients what was meant for some.
    pub(crate) withheld: BTreeSet<TransportPort>,
}

/// The rules of a ViewPolicy, and the clients that they are for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ViewRules {
    pub(crate) audience: Audience,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Endpoints by the labels they have in common with a client.
    Prefer(Vec<String>),
    /// These ports are served only to the selected clients.
    Only(BTreeSet<TransportPort>),
    Overlay {
        kind: ResourceType,
        name: Arc<str>,
        patch: Patch,
    },
}

/// Each label doubles what there may be to tell apart, and each endpoint is compared by all of them.
const MOST_LABELS: usize = 8;

pub(crate) fn policy(reader: &Reader<'_>, name: &ObjectName) -> Option<AcceptedViewPolicy> {
    let ViewPolicyObject { metadata, target, only, spec, .. } =
        reader.object::<ViewPolicyObject>(name)?;
    let spec = spec.as_ref().map_err(|fault| fault.message.clone());
    let fleet = match (target, &spec) {
        (Some(target), _) => super::target(reader, &name.namespace, target),
        (None, Err(why)) => Err(why.clone()),
        (None, Ok(spec)) => super::target(reader, &name.namespace, &spec.target_ref),
    };
    let decoded = fleet.as_ref().map_err(Clone::clone).and_then(|fleet| {
        let spec = spec?;
        let rules = spec.rules.iter().enumerate().map(|(at, rule)| {
            accept(reader, fleet, rule).map_err(|why| format!("rules[{at}]: {why}"))
        });
        let rules = rules.collect::<Result<_, _>>()?;
        Ok(ViewRules { audience: audience(&spec.clients)?, rules })
    });
    let withheld = match (&fleet, &decoded) {
        // Where it is never in force, nothing was promised.
        (Ok(fleet), Err(_)) if !FleetOwner::is_shared(fleet) => ports_of_some(reader, fleet, only),
        _ => BTreeSet::new(),
    };
    Some(AcceptedViewPolicy {
        generation: metadata.generation.unwrap_or_default(),
        fleet: fleet.ok(),
        decoded,
        withheld,
    })
}

/// Where listeners are served that are for some clients only.
fn ports_of_some(
    reader: &Reader<'_>,
    fleet: &FleetName,
    only: &OnlyFor,
) -> BTreeSet<TransportPort> {
    let listeners = reader.fleet(fleet).map_or(&[][..], |fleet| &fleet.listeners);
    let named = listeners.iter().filter(|listener| only.may_be(&listener.id.name));
    named.map(|listener| listener.port).collect()
}

fn audience(clients: &Clients) -> Result<Audience, String> {
    let equal = clients.match_labels.iter().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: Operator::In.into(),
        values: vec![value.clone()],
    });
    let mut labels: Vec<Requirement> = equal.collect();
    for (at, expression) in clients.match_expressions.iter().enumerate() {
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                return Err(format!(
                    "clients.matchExpressions[{at}]: {other:?} is not one of In, NotIn, Exists, DoesNotExist"
                ));
            }
        };
        labels.push(Requirement {
            key: expression.key.clone(),
            operator: operator.into(),
            values: expression.values.clone().unwrap_or_default(),
        });
    }
    let bound = |what: &str, text: &Option<String>| -> Result<Option<EnvoyVersion>, String> {
        let parsed = text.as_ref().map(|text| text.parse());
        parsed.transpose().map_err(|error| format!("clients.envoy.{what}: {error}"))
    };
    Ok(Audience {
        namespaces: clients.namespaces.clone(),
        is_access: false,
        labels,
        at_least: bound("min", &clients.envoy.min)?,
        at_most: bound("max", &clients.envoy.max)?,
    })
}

fn accept(reader: &Reader<'_>, fleet: &FleetName, rule: &ViewRule) -> Result<Rule, String> {
    match rule {
        ViewRule { prefer: Some(prefer), only: None, overlay: None } => accept_prefer(prefer),
        ViewRule { prefer: None, only: Some(only), overlay: None } => {
            accept_only(reader, fleet, only)
        }
        ViewRule { prefer: None, only: None, overlay: Some(overlay) } => accept_overlay(overlay),
        _ => Err("a rule must be one of prefer, only and overlay".to_owned()),
    }
}

fn accept_prefer(prefer: &Prefer) -> Result<Rule, String> {
    match prefer.labels.len() {
        0 => Err("prefer.labels: name at least one label".to_owned()),
        1..=MOST_LABELS => Ok(Rule::Prefer(prefer.labels.clone())),
        _ => Err(format!("prefer.labels: at most {MOST_LABELS} labels")),
    }
}

/// A port is one listener of Envoy's, whatever shares it, so it is taken away as a whole or not at all.
fn accept_only(reader: &Reader<'_>, fleet: &FleetName, only: &Only) -> Result<Rule, String> {
    // The authors of Gateways choose the names of listeners, and so would choose which listeners the policy hides.
    if FleetOwner::is_shared(fleet) {
        return Err("only: not supported where Gateways share their proxies".to_owned());
    }
    let listeners = reader.fleet(fleet).map_or(&[][..], |fleet| &fleet.listeners);
    let is_named = |name: &str| only.listeners.iter().any(|named| named == name);
    let mut ports = BTreeSet::new();
    for name in &only.listeners {
        let mut found = listeners.iter().filter(|listener| *listener.id.name == **name).peekable();
        if found.peek().is_none() {
            return Err(format!("only.listeners: the Gateway serves no listener {name}"));
        }
        ports.extend(found.map(|listener| listener.port));
    }
    if ports.is_empty() {
        return Err("only.listeners: name at least one listener".to_owned());
    }
    let mut beside = listeners.iter().filter(|it| ports.contains(&it.port));
    match beside.find(|listener| !is_named(&listener.id.name)) {
        Some(other) => Err(format!(
            "only.listeners: listener {} shares port {}: name all listeners of a port or none",
            other.id.name, other.port
        )),
        None => Ok(Rule::Only(ports)),
    }
}

fn accept_overlay(overlay: &Overlay) -> Result<Rule, String> {
    let Overlay { r#type, name, merge_patch, json_patch } = overlay;
    let kind = match r#type.as_str() {
        "Cluster" => ResourceType::Cluster,
        "Endpoints" => ResourceType::Endpoints,
        "Listener" => ResourceType::Listener,
        "Route" => ResourceType::Route,
        other => {
            return Err(format!(
                "overlay.type: {other:?} is not one of Cluster, Endpoints, Listener, Route"
            ));
        }
    };
    let patch = match (merge_patch, json_patch) {
        (Some(patch), None) => Patch::Merge(patch.clone()),
        (None, Some(patch)) => Patch::Json(patch.clone()),
        _ => return Err("overlay: set either mergePatch or jsonPatch".to_owned()),
    };
    Ok(Rule::Overlay { kind, name: name.as_str().into(), patch })
}

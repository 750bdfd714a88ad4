use super::policy::{AcceptedViewPolicy, Rule, ViewRules};
use super::treatment::Patch;
use crate::objects::{Kind, ObjectName};
use crate::world::Reader;
use heliograph_envoy_dialect::names;
use heliograph_model::{TableKey, TransportPort};
use heliograph_snapshot::{FleetName, ResourceType};
use heliograph_views::{Admission, Audience, Preference};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The combined rules of a fleet's policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) audiences: BTreeMap<Arc<str>, Audience>,
    /// For all endpoints.
    pub(crate) preferences: Vec<Preference>,
    pub(crate) resources: BTreeMap<ResourceOf, Planned>,
}

/// The rules for one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Planned {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) overlays: Vec<PlannedOverlay>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedOverlay {
    pub(crate) policy: ObjectName,
    pub(crate) audience: Arc<str>,
    pub(crate) patch: Patch,
}

type ResourceOf = (ResourceType, Arc<str>);

/// Policies speak in the order of their names.
pub(crate) fn plan(reader: &Reader<'_>, fleet: &FleetName) -> Plan {
    let mut plan = Plan::default();
    // The audiences that all must fit to be served on a port.
    let mut only: BTreeMap<TransportPort, BTreeSet<Arc<str>>> = BTreeMap::new();
    for name in reader.view_policies(fleet) {
        let Some(AcceptedViewPolicy { decoded, withheld, .. }) = reader.view_policy(name) else {
            continue;
        };
        // No client is of an audience that does not exist.
        let none: Arc<str> = format!("{name}/none").into();
        for port in withheld {
            only.entry(*port).or_default().insert(none.clone());
        }
        let Ok(ViewRules { audience, rules }) = decoded else { continue };
        let chosen: Arc<str> = name.to_string().into();
        let left_out = reader.left_out_of(fleet, &name.clone().of(Kind::ViewPolicy));
        for rule in rules {
            match rule {
                Rule::Overlay { .. } if left_out.is_some() => {}
                Rule::Prefer(labels) => plan
                    .preferences
                    .push(Preference { audience: chosen.to_string(), labels: labels.clone() }),
                Rule::Overlay { kind, name: resource, patch } => {
                    let planned = plan.resources.entry((*kind, resource.clone())).or_default();
                    planned.overlays.push(PlannedOverlay {
                        policy: name.clone(),
                        audience: chosen.clone(),
                        patch: patch.clone(),
                    });
                }
                Rule::Only(ports) => {
                    let id = access(&mut plan, &chosen, audience);
                    for port in ports {
                        only.entry(*port).or_default().insert(id.clone());
                    }
                }
            }
        }
        plan.audiences.insert(chosen, audience.clone());
    }
    if !only.is_empty() {
        admit(reader, fleet, &only, &mut plan);
    }
    plan
}

/// The audience of a policy where it decides over access: then a namespace must be proven.
fn access(plan: &mut Plan, chosen: &Arc<str>, audience: &Audience) -> Arc<str> {
    if audience.namespaces.is_empty() {
        return chosen.clone();
    }
    let id: Arc<str> = format!("{chosen}/access").into();
    plan.audiences.insert(id.clone(), Audience { is_access: true, ..audience.clone() });
    id
}

/// Takes away, with each port, all that is there for it alone: nothing that stays refers to what goes, and who may not see
/// a listener sees nothing of its certificates, routes and backends either.
fn admit(
    reader: &Reader<'_>,
    fleet: &FleetName,
    only: &BTreeMap<TransportPort, BTreeSet<Arc<str>>>,
    plan: &mut Plan,
) {
    let mut ports: BTreeMap<ResourceOf, BTreeSet<TransportPort>> = BTreeMap::new();
    let mut uses = |kind: ResourceType, name: String, port: TransportPort| {
        ports.entry((kind, name.into())).or_default().insert(port);
    };
    for listener in reader.fleet(fleet).iter().flat_map(|fleet| &fleet.listeners) {
        let port = listener.port;
        uses(ResourceType::Listener, names::listener(port), port);
        if let Some(table) = TableKey::of(fleet, listener) {
            uses(ResourceType::Route, names::table(&table), port);
        }
        for secret in &listener.certificates {
            uses(ResourceType::Secret, names::secret(secret), port);
        }
        for upstream in reader.upstreams(&listener.id) {
            uses(ResourceType::Cluster, names::cluster(upstream), port);
            uses(ResourceType::Endpoints, names::cluster(upstream), port);
        }
    }
    for (resource, ports) in ports {
        if !ports.iter().all(|port| only.contains_key(port)) {
            continue;
        }
        let wanted: BTreeSet<_> = ports.iter().filter_map(|port| only.get(port)).collect();
        let admission = |audiences: &BTreeSet<Arc<str>>| Admission {
            audiences: audiences.iter().map(ToString::to_string).collect(),
        };
        plan.resources.entry(resource).or_default().admissions =
            wanted.into_iter().map(admission).collect();
    }
}

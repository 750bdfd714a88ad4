use crate::report::Report;
use heliograph_gateway::infra::{Infra, Proxies};
use heliograph_gateway::infra::{Live, Part, ProxySettings, Step, names, plan, render};
use heliograph_gateway::objects::{Kind, ObjectKey, ObjectName};
use heliograph_gateway::status::reasons::Type;
use heliograph_gateway::status::{Ignored, Status};
use heliograph_model::FleetOwner;
use heliograph_shared::backoff::Backoff;
use heliograph_snapshot::FleetName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The wanted and the existing objects of each fleet, and the fleet that is next.
pub(super) struct ReconcileState {
    settings: ProxySettings,
    wanted: BTreeMap<FleetName, Arc<Infra>>,
    live: BTreeMap<FleetName, Live>,
    /// The fleets of both, by namespace and each identifier that only one of them may have.
    fleets_by_identifier: BTreeMap<(Arc<str>, String), BTreeSet<FleetName>>,
    /// The Gateways that another controller has, or that share the proxies of their class: nothing of ours is to be left of
    /// what ran for them alone.
    elsewhere: BTreeSet<FleetName>,
    /// The classes that there are, and whether it is known how their Gateways' proxies are run.
    classes: BTreeMap<Arc<str>, bool>,
    /// The Gateways whose class is not there.
    classless: BTreeSet<ObjectName>,
    /// How many changes of statuses were read.
    read: u64,
    /// Whether what is not wanted is known not to be.
    complete: bool,
    /// The parts of which all are known; others are left alone.
    listed: BTreeSet<Part>,
    /// What a list that is under way has not named yet.
    unseen: BTreeMap<Part, BTreeSet<(FleetName, String)>>,
    dirty: BTreeSet<FleetName>,
    busy: BTreeSet<FleetName>,
    failures: BTreeMap<FleetName, Failure>,
}

struct Failure {
    count: u32,
    why: String,
    again: Instant,
}

/// Without jitter: one translator leads, and a fleet fails by itself.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

impl ReconcileState {
    pub(super) fn new(settings: ProxySettings) -> Self {
        Self {
            settings,
            wanted: BTreeMap::new(),
            live: BTreeMap::new(),
            fleets_by_identifier: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            classes: BTreeMap::new(),
            classless: BTreeSet::new(),
            read: 0,
            complete: false,
            listed: BTreeSet::new(),
            unseen: BTreeMap::new(),
            dirty: BTreeSet::new(),
            busy: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Updates what is wanted. Only the fleets that differ are marked.
    pub(super) fn update_wanted(&mut self, report: &Report) {
        if !report.complete {
            return;
        }
        self.complete = true;
        for (fleet, infra) in &report.infra {
            let before = self.wanted.get(fleet);
            if !before.is_some_and(|before| Arc::ptr_eq(before, infra)) {
                self.add_identifiers(fleet);
                self.wanted.insert(fleet.clone(), infra.clone());
                self.touch(fleet.clone());
            }
        }
        let gone: Vec<FleetName> =
            self.wanted.keys().filter(|fleet| !report.infra.contains_key(fleet)).cloned().collect();
        for fleet in gone {
            self.wanted.remove(&fleet);
            self.remove_identifiers(&fleet);
            self.touch(fleet);
        }
        match report.changed.since(self.read) {
            Some(changed) => changed.for_each(|key| self.update_ownership(key, report)),
            None => {
                self.elsewhere.clear();
                self.classes.clear();
                self.classless.clear();
                report.statuses.keys().for_each(|key| self.update_ownership(key, report));
                self.touch_shared();
            }
        }
        self.read = report.changed.count();
    }

    /// Updates which controller has a Gateway, and whether a class is in force.
    fn update_ownership(&mut self, key: &ObjectKey, report: &Report) {
        let status = report.statuses.get(key).map(|status| &**status);
        match key.kind {
            Kind::Gateway => {
                let fleet = FleetOwner::Gateway(key.name.clone()).fleet();
                let (is_elsewhere, is_classless) = match status {
                    Some(Status::Ignored(Ignored { elsewhere, .. })) => (*elsewhere, !elsewhere),
                    Some(Status::Gateway(status)) => (status.fleet != fleet, false),
                    _ => (false, false),
                };
                if is_classless {
                    self.classless.insert(key.name.clone());
                } else if self.classless.remove(&key.name) && self.classless.is_empty() {
                    self.touch_shared();
                }
                if is_elsewhere {
                    self.elsewhere.insert(fleet.clone());
                    self.touch(fleet);
                } else {
                    self.elsewhere.remove(&fleet);
                }
            }
            Kind::GatewayClass => {
                let class = key.name.name.clone();
                let is_known = match status {
                    Some(Status::GatewayClass(status)) => {
                        Some(status.conditions.is_true(Type::Accepted))
                    }
                    _ => None,
                };
                let before = match is_known {
                    Some(is_known) => self.classes.insert(class, is_known),
                    None => self.classes.remove(&class),
                };
                if before != is_known {
                    self.touch_shared();
                }
            }
            _ => {}
        }
    }

    /// Sets the CA bundle of the distributors, which all Envoys receive.
    pub(super) fn set_ca_bundle(&mut self, ca_bundle: String) {
        self.settings.ca_bundle = Some(ca_bundle);
        self.dirty.extend(self.wanted.keys().cloned());
    }

    pub(super) fn ca_bundle(&self) -> Option<&str> {
        self.settings.ca_bundle.as_deref()
    }

    /// Applies an event of the watch of a part.
    pub(super) fn apply_event(&mut self, part: Part, event: Event<DynamicObject>) {
        match event {
            Event::Init => {
                let known = self.live.iter().flat_map(|(fleet, live)| {
                    let names = live.keys().filter(move |(of, _)| *of == part);
                    names.map(move |(_, name)| (fleet.clone(), name.clone()))
                });
                let known = known.collect();
                self.unseen.insert(part, known);
            }
            Event::InitApply(object) => {
                if let Some((fleet, name)) = owner_of(part, &object) {
                    if let Some(unseen) = self.unseen.get_mut(&part) {
                        unseen.remove(&(fleet.clone(), name.clone()));
                    }
                    self.put(part, fleet, name, object);
                }
            }
            Event::InitDone => {
                for (fleet, name) in self.unseen.remove(&part).unwrap_or_default() {
                    self.drop_one(part, &fleet, name);
                }
                if self.listed.insert(part) {
                    // What was held back until all of this part are known.
                    let all = self.wanted.keys().chain(self.live.keys()).cloned();
                    self.dirty.extend(all);
                }
            }
            Event::Apply(object) => {
                if let Some((fleet, name)) = owner_of(part, &object) {
                    self.put(part, fleet, name, object);
                }
            }
            Event::Delete(object) => self.remove(part, object.metadata),
        }
    }

    /// An object of a part is not there any more, or no longer has our labels. So its name is all that says whose it was.
    fn remove(&mut self, part: Part, metadata: ObjectMeta) {
        let (Some(namespace), Some(name)) = (metadata.namespace, metadata.name) else { return };
        let (key, start) = ((part, name), FleetName::new(&namespace, ""));
        let in_namespace = self
            .live
            .range(start.clone()..)
            .take_while(|(fleet, _)| fleet.as_str().starts_with(start.as_str()));
        let mut owners = in_namespace.filter(|(_, live)| live.contains_key(&key));
        if let Some(fleet) = owners.next().map(|(fleet, _)| fleet.clone()) {
            self.drop_one(part, &fleet, key.1);
        }
    }

    /// The next fleet for which there is something to do. It is not given again before it is [done](Self::done).
    pub(super) fn next(&mut self, now: Instant) -> Option<(FleetName, Vec<Step>)> {
        if !self.complete {
            return None;
        }
        loop {
            let is_due = |fleet: &&FleetName| {
                !self.busy.contains(*fleet)
                    && self.failures.get(*fleet).is_none_or(|failure| failure.again <= now)
            };
            let fleet = self.dirty.iter().find(is_due)?.clone();
            self.dirty.remove(&fleet);
            let steps = self.steps(&fleet);
            if !steps.is_empty() {
                self.busy.insert(fleet.clone());
                return Some((fleet, steps));
            }
            self.failures.remove(&fleet);
        }
    }

    pub(super) fn done(&mut self, fleet: &FleetName, outcome: Result<(), String>, now: Instant) {
        self.busy.remove(fleet);
        let Err(why) = outcome else {
            self.failures.remove(fleet);
            return;
        };
        let count = self.failures.get(fleet).map_or(0, |failure| failure.count).saturating_add(1);
        let failure = Failure { count, why, again: now + BACKOFF.pause(count) };
        self.failures.insert(fleet.clone(), failure);
        self.dirty.insert(fleet.clone());
    }

    /// Why the last attempt failed, if it did.
    pub(super) fn failure(&self, fleet: &FleetName) -> Option<&str> {
        self.failures.get(fleet).map(|failure| &*failure.why)
    }

    /// Why the steps for a fleet are not to be taken, if so: another fleet has what they would make. That is the one for which
    /// something runs, or else the first by name.
    pub(super) fn obstacle(&self, fleet: &FleetName, steps: &[Step]) -> Option<String> {
        if !steps.iter().any(|step| matches!(step, Step::Apply(_))) {
            return None;
        }
        let precedence = |fleet: &FleetName| (!self.live.contains_key(fleet), fleet.clone());
        let sharing = identifiers(fleet)
            .into_iter()
            .filter_map(|id| self.fleets_by_identifier.get(&id))
            .flatten();
        let first = sharing.filter(|it| self.runs(it)).min_by_key(|it| precedence(it))?;
        (first != fleet).then(|| names::name_conflict(&FleetOwner::of(first)))
    }

    /// How the Gateway of a fleet is to run, if that is known.
    pub(super) fn proxies(&self, fleet: &FleetName) -> Option<&Proxies> {
        self.wanted.get(fleet)?.proxies.as_ref()
    }

    /// For how many fleets the last attempt failed.
    pub(super) fn failing(&self) -> i64 {
        i64::try_from(self.failures.len()).unwrap_or(i64::MAX)
    }

    /// When to look again for something to do.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let waiting = self.dirty.iter().filter(|fleet| !self.busy.contains(*fleet));
        waiting.filter_map(|fleet| self.failures.get(fleet)).map(|failure| failure.again).min()
    }

    fn steps(&self, fleet: &FleetName) -> Vec<Step> {
        let nothing = Live::new();
        let live = self.live.get(fleet).unwrap_or(&nothing);
        let wanted = match self.wanted.get(fleet) {
            None if self.is_given_up(fleet) => Vec::new(),
            // What a deleted Gateway owned, Kubernetes deletes. One that is only not known now, as while its class is
            // replaced, keeps what runs for it, and its addresses.
            None => return Vec::new(),
            Some(infra) => match render(infra, &self.settings) {
                Ok(Some(wanted)) => wanted,
                // What runs stays as it is.
                Ok(None) => return Vec::new(),
                Err(error) => {
                    tracing::warn!(
                        "the objects of the Envoys of {fleet} cannot be generated: {error}"
                    );
                    return Vec::new();
                }
            },
        };
        let owner = FleetOwner::of(fleet);
        let mut steps = plan(&owner.name().namespace, wanted, live);
        steps.retain(|step| self.listed.contains(&step.part()));
        steps
    }

    /// Whether nothing is to run for a fleet that is not wanted.
    fn is_given_up(&self, fleet: &FleetName) -> bool {
        match FleetOwner::of(fleet) {
            FleetOwner::Gateway(_) => self.elsewhere.contains(fleet),
            // No Gateway shares it any more; or only those do whose class is about to come back.
            FleetOwner::Class(class) => match self.classes.get(&class.name) {
                Some(is_known) => *is_known,
                None => self.classless.is_empty(),
            },
        }
    }

    fn put(&mut self, part: Part, fleet: FleetName, name: String, object: DynamicObject) {
        let value = as_rendered(part, object);
        self.add_identifiers(&fleet);
        let live = self.live.entry(fleet.clone()).or_default();
        if live.insert((part, name), value.clone()).as_ref() != Some(&value) {
            self.touch(fleet);
        }
    }

    fn drop_one(&mut self, part: Part, fleet: &FleetName, name: String) {
        if let Some(live) = self.live.get_mut(fleet) {
            live.remove(&(part, name));
            if live.is_empty() {
                self.live.remove(fleet);
                self.remove_identifiers(fleet);
            }
            self.touch(fleet.clone());
        }
    }

    /// Whether anything runs for a fleet, or is to.
    fn runs(&self, fleet: &FleetName) -> bool {
        let is_self_managed = |proxies: &Proxies| proxies.config.self_managed == Some(true);
        self.live.contains_key(fleet) || self.proxies(fleet).is_some_and(|it| !is_self_managed(it))
    }

    /// Adds the identifiers of a fleet before it is first wanted, or found.
    fn add_identifiers(&mut self, fleet: &FleetName) {
        if !self.wanted.contains_key(fleet) && !self.live.contains_key(fleet) {
            for id in identifiers(fleet) {
                self.fleets_by_identifier.entry(id).or_default().insert(fleet.clone());
            }
        }
    }

    /// Removes the identifiers of a fleet that is neither wanted nor found: another may have them now.
    fn remove_identifiers(&mut self, fleet: &FleetName) {
        if self.wanted.contains_key(fleet) || self.live.contains_key(fleet) {
            return;
        }
        for id in identifiers(fleet) {
            let Some(mut others) = self.fleets_by_identifier.remove(&id) else { continue };
            others.remove(fleet);
            others.iter().for_each(|other| self.touch(other.clone()));
            if !others.is_empty() {
                self.fleets_by_identifier.insert(id, others);
            }
        }
    }

    /// Something changed that decides over what Gateways share.
    fn touch_shared(&mut self) {
        let shared = self.live.keys().filter(|fleet| FleetOwner::is_shared(fleet));
        self.dirty.extend(shared.cloned().collect::<Vec<_>>());
    }

    /// A change is a reason to try at once what failed before.
    fn touch(&mut self, fleet: FleetName) {
        if let Some(failure) = self.failures.get(&fleet)
            && failure.count <= 1
        {
            self.failures.remove(&fleet);
        }
        self.dirty.insert(fleet);
    }
}

/// The identifiers that no other fleet may have, with its namespace.
fn identifiers(fleet: &FleetName) -> [(Arc<str>, String); 3] {
    let owner = FleetOwner::of(fleet);
    names::identifiers(&owner).map(|id| (owner.name().namespace.clone(), id))
}

/// The fleet that owns an object, and the name of the object. `None` if no annotation names the owner, or the name is not one that we
/// would give it, as of a copy of ours: then it is not ours.
fn owner_of(part: Part, object: &DynamicObject) -> Option<(FleetName, String)> {
    let metadata = &object.metadata;
    let namespace = metadata.namespace.as_deref()?;
    let owner = names::annotated_owner(namespace, metadata.annotations.as_ref()?)?;
    // One that was copied from another namespace has the labels of that.
    let of = metadata.labels.as_ref()?.get(names::FLEET_NAMESPACE_LABEL)?;
    if *of != names::label_value(namespace) {
        return None;
    }
    let name = metadata.name.clone().filter(|name| *name == part.name_for(&owner))?;
    Some((owner.fleet(), name))
}

/// As the core writes it, without what others say.
fn as_rendered(part: Part, object: DynamicObject) -> Value {
    let DynamicObject { types: _, mut metadata, data: mut value } = object;
    metadata.managed_fields = None;
    metadata.resource_version = None;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let group = if part.group().is_empty() { String::new() } else { format!("{}/", part.group()) };
    value["apiVersion"] = json!(format!("{group}{}", part.version()));
    value["kind"] = json!(part.kind());
    // Metadata that was read can be written.
    value["metadata"] = serde_json::to_value(metadata).unwrap_or_default();
    value
}

#[cfg(test)]
mod tests;

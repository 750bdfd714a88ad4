//! Which listeners a route belongs to, and for which hosts.

mod namespaces;

use crate::accept::{AcceptedGateway, AcceptedListener};
use crate::ir::{Hostname, TableKey};
use crate::objects::{Kind, ObjectKey, ObjectName, gateway};
use crate::routes::Rules;
use crate::status::Condition;
use crate::world::Reader;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What became of each parentRef that leads to a Gateway of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attachment {
    pub(crate) parents: Vec<Parent>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent {
    /// As the route has it: status repeats it to the letter.
    pub(crate) reference: gateway::ParentRef,
    pub(crate) accepted: Condition,
    gateway: ObjectName,
    listeners: Vec<Arc<str>>,
    hosts: Vec<Host>,
}

/// A host of a table that the route has a say in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) table: TableKey,
    pub(crate) listener: Arc<str>,
    /// What the hostnames of route and listener have in common.
    pub(crate) host: Hostname,
    /// The route's own hostname, which decides precedence.
    pub(crate) written: Hostname,
}

impl Attachment {
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.parents.iter().flat_map(|parent| &parent.hosts)
    }

    /// The listeners that count the route as attached, also those that cannot be served.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (ObjectName, Arc<str>)> {
        self.parents.iter().flat_map(|parent| {
            parent.listeners.iter().map(|listener| (parent.gateway.clone(), listener.clone()))
        })
    }
}

pub(crate) fn route(reader: &Reader<'_>, key: &ObjectKey) -> Attachment {
    let Some(rules) = reader.rules(key) else { return Attachment::default() };
    let parents = rules.parents.iter().filter_map(|reference| {
        let group = reference.group.as_deref().unwrap_or(gateway::GROUP);
        let kind = reference.kind.as_deref().unwrap_or(Kind::Gateway.as_str());
        if Kind::find(group, kind) != Some(Kind::Gateway) {
            return None;
        }
        let namespace = reference.namespace.as_deref().unwrap_or(&key.name.namespace);
        let name = ObjectName::new(namespace, &reference.name);
        let gateway = reader.gateway(&name)?;
        Some(attach(reader, key, rules, reference, &name, gateway))
    });
    Attachment { parents: parents.collect() }
}

fn attach(
    reader: &Reader<'_>,
    key: &ObjectKey,
    rules: &Rules,
    reference: &gateway::ParentRef,
    name: &ObjectName,
    gateway: &AcceptedGateway,
) -> Parent {
    let mut parent = Parent {
        reference: reference.clone(),
        accepted: Condition::yes("Accepted", "Accepted", "The route is attached"),
        gateway: name.clone(),
        listeners: Vec::new(),
        hosts: Vec::new(),
    };
    match allowed(reader, key, reference, name, gateway) {
        Ok(listeners) => {
            for listener in listeners {
                place(gateway, rules, listener, &mut parent);
            }
            if parent.listeners.is_empty() {
                parent.accepted = Condition::no(
                    "Accepted",
                    "NoMatchingListenerHostname",
                    "No hostname of the route is one of the listener's",
                );
            }
        }
        Err(refused) => parent.accepted = refused,
    }
    if let Some(refusal) = &rules.refusal {
        parent.accepted = refusal.clone();
        parent.listeners.clear();
        parent.hosts.clear();
    }
    parent
}

/// The listeners that the reference means and that let the route in. Gateway API tells three failures apart.
fn allowed<'a>(
    reader: &Reader<'_>,
    key: &ObjectKey,
    reference: &gateway::ParentRef,
    name: &ObjectName,
    gateway: &'a AcceptedGateway,
) -> Result<Vec<&'a AcceptedListener>, Condition> {
    let named = |listener: &&AcceptedListener| {
        reference.section_name.as_deref().is_none_or(|section| *section == *listener.name)
    };
    let at_port = |listener: &&AcceptedListener| {
        reference.port.is_none_or(|port| {
            listener.ir.as_ref().is_some_and(|listener| i32::from(listener.port) == port)
        })
    };
    let meant: Vec<_> = gateway.listeners.iter().filter(named).filter(at_port).collect();
    if meant.is_empty() {
        let message = format!("Gateway {name} has no such listener");
        return Err(Condition::no("Accepted", "NoMatchingParent", message));
    }
    let open: Vec<_> = meant
        .into_iter()
        .filter(|listener| listener.is_accepted() && listener.kinds.contains(&key.kind))
        .filter(|listener| {
            let rule = listener.ir.as_ref().map(|listener| &listener.namespaces);
            rule.is_some_and(|rule| {
                namespaces::allows(reader, rule, &name.namespace, &key.name.namespace)
            })
        })
        .collect();
    match open.is_empty() {
        false => Ok(open),
        true => Err(Condition::no(
            "Accepted",
            "NotAllowedByListeners",
            format!(
                "No listener of Gateway {name} lets this kind of route from namespace {} in",
                key.name.namespace
            ),
        )),
    }
}

/// Adds the hosts that route and listener have in common.
fn place(
    gateway: &AcceptedGateway,
    rules: &Rules,
    listener: &AcceptedListener,
    parent: &mut Parent,
) {
    let Some(ir) = &listener.ir else { return };
    let mut common: BTreeMap<&Hostname, &Hostname> = BTreeMap::new();
    for written in rules.route.iter().flat_map(|route| &route.hostnames) {
        if let Some(host) = ir.hostname.intersection(written) {
            let best = common.entry(host).or_insert(written);
            if Hostname::by_specificity(written, best).is_gt() {
                *best = written;
            }
        }
    }
    if common.is_empty() {
        return;
    }
    parent.listeners.push(listener.name.clone());
    if gateway.ir.listeners.iter().any(|served| served.name == listener.name) {
        let table = gateway.ir.table_of(ir);
        parent.hosts.extend(common.into_iter().map(|(host, written)| Host {
            table: table.clone(),
            listener: listener.name.clone(),
            host: host.clone(),
            written: written.clone(),
        }));
    }
}

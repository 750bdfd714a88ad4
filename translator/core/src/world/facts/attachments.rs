use super::Facts;
use crate::attach::Attachment;
use crate::ir::{Hostname, ListenerId, TableKey};
use crate::objects::{ObjectKey, ObjectName};
use crate::world::unit::Fact;
use std::collections::{BTreeMap, BTreeSet};

/// A host of a listener of a table.
pub(super) type HostOf = (TableKey, ListenerId, Hostname);

/// What follows from which listeners routes belong to.
impl Facts {
    pub(in crate::world) fn attached_routes(&self, listener: &ListenerId) -> usize {
        self.attached.count(listener)
    }

    pub(in crate::world) fn attached(
        &self,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        self.attached.of(listener)
    }

    pub(in crate::world) fn leading_to(
        &self,
        object: &ObjectKey,
    ) -> impl Iterator<Item = &ObjectName> + use<'_> {
        let (object, first) = (object.clone(), ObjectName::new("", ""));
        let leads = self.leads.keys_from((object.clone(), first));
        leads.take_while(move |(to, _)| *to == object).map(|(_, from)| from)
    }

    pub(in crate::world) fn hosted(
        &self,
        table: &TableKey,
        listener: &ListenerId,
        host: &Hostname,
    ) -> impl Iterator<Item = (&Hostname, &BTreeMap<ObjectKey, Hostname>)> + use<'_> {
        let (table, listener) = (table.clone(), listener.clone());
        let hosts = self.hosts.get(&table).map(|hosts| hosts.covering(host));
        hosts.into_iter().flatten().filter_map(move |(host, _)| {
            let routes = self.hosted.get(&(table.clone(), listener.clone(), host.clone()))?;
            Some((host, routes))
        })
    }

    pub(super) fn index_attachment(
        &mut self,
        route: &ObjectKey,
        new: Option<&Attachment>,
    ) -> Vec<Fact> {
        let old = self.attachments.get(route).map(|old| &**old);
        let listeners = |attachment: Option<&Attachment>| -> BTreeSet<ListenerId> {
            attachment.into_iter().flat_map(Attachment::listeners).cloned().collect()
        };
        let hosts = |attachment: Option<&Attachment>| -> BTreeMap<HostOf, Hostname> {
            let hosts = attachment.into_iter().flat_map(Attachment::hosts);
            hosts
                .map(|host| {
                    let at = (host.table.clone(), host.listener.clone(), host.host.clone());
                    (at, host.written.clone())
                })
                .collect()
        };
        let mut touched = Vec::new();

        let (before, after) = (listeners(old), listeners(new));
        for gone in before.difference(&after) {
            self.attached.remove(gone, route);
        }
        for come in after.difference(&before) {
            self.attached.insert(come.clone(), route.clone());
        }
        touched.extend(before.symmetric_difference(&after).cloned().map(Fact::Attached));

        let leads =
            |attachment: Option<&Attachment>| attachment.map(Attachment::leads).unwrap_or_default();
        let (before, after) = (leads(old), leads(new));
        for gone in before.difference(&after) {
            self.leads.remove(gone, route);
        }
        for come in after.difference(&before) {
            self.leads.insert(come.clone(), route.clone());
        }
        let changed = before.symmetric_difference(&after);
        touched.extend(changed.map(|(to, _)| Fact::LeadingTo(to.clone())));

        let (before, after) = (hosts(old), hosts(new));
        for (at, written) in &after {
            if before.get(at) != Some(written) {
                let routes = self.hosted.entry(at.clone()).or_default();
                let is_first = routes.is_empty();
                routes.insert(route.clone(), written.clone());
                touched.push(Fact::Hosted(at.0.clone(), at.1.clone(), at.2.clone()));
                if is_first {
                    *self.hosts.entry(at.0.clone()).or_default().get_or_default(&at.2) += 1;
                    self.touch_covering(at, &mut touched);
                }
            }
        }
        for at in before.keys().filter(|at| !after.contains_key(*at)) {
            touched.push(Fact::Hosted(at.0.clone(), at.1.clone(), at.2.clone()));
            let Some(routes) = self.hosted.get_mut(at) else { continue };
            routes.remove(route);
            if routes.is_empty() {
                self.hosted.remove(at);
                self.remove_host(&at.0, &at.2);
                self.touch_covering(at, &mut touched);
            }
        }
        touched
    }

    /// Whom it concerns that a listener has routes for a host now, or none any more: the virtual hosts of that and of all hosts
    /// that it covers. Virtual hosts without any route are those of listeners, and what covers these is of other listeners.
    fn touch_covering(&self, (table, listener, host): &HostOf, touched: &mut Vec<Fact>) {
        let fact = |host: &Hostname| Fact::Covering(table.clone(), listener.clone(), host.clone());
        touched.push(fact(host));
        let covered = self.hosts.get(table).into_iter().flat_map(|hosts| hosts.covered(host));
        touched.extend(covered.map(|(it, _)| it).filter(|it| *it != host).map(fact));
    }

    fn remove_host(&mut self, table: &TableKey, host: &Hostname) {
        let Some(hosts) = self.hosts.get_mut(table) else { return };
        match hosts.get_mut(host) {
            Some(listeners) if *listeners > 1 => *listeners -= 1,
            _ => drop(hosts.remove(host)),
        }
        if hosts.is_empty() {
            self.hosts.remove(table);
        }
    }
}

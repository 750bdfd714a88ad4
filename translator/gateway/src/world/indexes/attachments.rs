//! Which listeners routes belong to, and for which hosts.

use super::{Fact, Indexes};
use crate::attach::Attachment;
use heliograph_model::{Hostname, ListenerId, RouteId, TableKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A host of a listener of a table.
pub(in crate::world) type HostOf = (TableKey, ListenerId, Hostname);

impl Indexes {
    pub(in crate::world) fn placement_changed(
        &mut self,
        route: &RouteId,
        _old: Option<&Arc<Attachment>>,
        new: Option<&Arc<Attachment>>,
    ) -> Vec<Fact> {
        self.budgets.set(&self.limits, route, new.and_then(|new| new.cost()));
        let is_refused = new.is_some_and(|new| new.is_expression_too_large);
        self.budgets.set_expression(route, is_refused);
        Vec::new()
    }

    pub(in crate::world) fn attachment_changed(
        &mut self,
        route: &RouteId,
        old: Option<&Arc<Attachment>>,
        new: Option<&Arc<Attachment>>,
    ) -> Vec<Fact> {
        let (old, new) = (old.map(|old| &**old), new.map(|new| &**new));
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
        let mut changed = Vec::new();

        let (before, after) = (listeners(old), listeners(new));
        for gone in before.difference(&after) {
            self.attached.remove(gone, route);
        }
        for come in after.difference(&before) {
            self.attached.insert(come.clone(), route.clone());
        }
        changed.extend(before.symmetric_difference(&after).cloned().map(Fact::Attached));

        let references = |attachment: Option<&Attachment>| {
            attachment.map(Attachment::reverse_references).unwrap_or_default()
        };
        let (before, after) = (references(old), references(new));
        for gone in before.difference(&after) {
            self.reverse_references.remove(gone, route);
        }
        for come in after.difference(&before) {
            self.reverse_references.insert(come.clone(), route.clone());
        }
        let of_object = before.symmetric_difference(&after);
        changed.extend(of_object.map(|(to, _)| Fact::ReferringGateways(to.clone())));

        let (before, after) = (hosts(old), hosts(new));
        for (at, written) in &after {
            let known = before.get(at);
            if known == Some(written) {
                continue;
            }
            let is_first = self.hosted.count(at) == 0;
            if let Some(known) = known {
                self.hosted.remove(at, &(route.clone(), known.clone()));
            }
            self.hosted.insert(at.clone(), (route.clone(), written.clone()));
            changed.push(Fact::Hosted(at.clone()));
            if is_first {
                *self.hosts.entry(at.0.clone()).or_default().get_or_default(&at.2) += 1;
                self.touch_covering(at, &mut changed);
            }
        }
        for (at, known) in before.iter().filter(|(at, _)| !after.contains_key(*at)) {
            changed.push(Fact::Hosted(at.clone()));
            self.hosted.remove(at, &(route.clone(), known.clone()));
            if self.hosted.count(at) == 0 {
                self.remove_host(&at.0, &at.2);
                self.touch_covering(at, &mut changed);
            }
        }
        changed
    }

    /// The facts that change when a listener gets its first route for a host, or loses its last: the virtual hosts of
    /// that host and of all hosts that it covers. Virtual hosts without any route are those of listeners, and hosts that
    /// cover these belong to other listeners.
    fn touch_covering(&self, (table, listener, host): &HostOf, changed: &mut Vec<Fact>) {
        let fact =
            |host: &Hostname| Fact::Covering((table.clone(), listener.clone(), host.clone()));
        changed.push(fact(host));
        let covered = self.hosts.get(table).into_iter().flat_map(|hosts| hosts.covered(host));
        changed.extend(covered.map(|(it, _)| it).filter(|it| *it != host).map(fact));
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

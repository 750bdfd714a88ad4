//! What the dialect says that a rejection means: it knows the words of its proxies, and is given what a table is made of.

pub use heliograph_envoy_dialect::rejection::MeantMatch;
pub(super) use heliograph_envoy_dialect::rejection::{
    BlamedId, ServedTable, Suspect, blamed_at_port, blamed_routes, suspects, suspects_then,
};

use super::World;
use super::keys::{CompiledRouteKey, HostKey};
use bytes::Bytes;
use heliograph_envoy_dialect::CompiledMatch;
use heliograph_model::{Hostname, ListenerId, RouteId, TableKey};
use std::collections::BTreeSet;

/// A route table that is there.
pub(super) struct TableOf<'a> {
    pub(super) world: &'a World,
    pub(super) table: &'a TableKey,
}

impl TableOf<'_> {
    pub(super) fn listeners(&self) -> impl Iterator<Item = &ListenerId> {
        let candidates = self.world.reader().listeners_of(self.table);
        candidates.iter().filter(|candidate| candidate.is_here).map(|it| &it.listener)
    }
}

impl ServedTable for TableOf<'_> {
    fn routes(&self) -> BTreeSet<&RouteId> {
        self.listeners().flat_map(|listener| self.world.reader().routes_at(listener)).collect()
    }

    fn hostnames(&self, route: &RouteId) -> &[Hostname] {
        self.world.reader().rules(route).map_or(&[], |rules| &rules.hostnames)
    }

    /// If several listeners of the table have the route, each may have it otherwise.
    fn compiled(&self, route: &RouteId) -> impl Iterator<Item = &CompiledMatch> {
        let listeners = self.listeners().filter_map(move |listener| {
            let (table, listener) = (self.table.clone(), listener.clone());
            let key = CompiledRouteKey { route: route.clone(), table, listener };
            self.world.reader().compiled_route(&key)
        });
        listeners.flat_map(|compiled| &compiled.routes)
    }

    fn virtual_hosts(&self) -> impl Iterator<Item = &Bytes> {
        self.world.reader().virtual_hosts(self.table)
    }

    fn virtual_host(&self, host: &Hostname) -> Option<&Bytes> {
        let key = HostKey { table: self.table.clone(), host: host.clone() };
        self.world.reader().virtual_host(&key)
    }
}

//! From a resource back to the objects that it was made from, so that what proxies say of the one lands on the others.
//! Nothing is kept for this but the way from the name of a resource to its id: the rest is worked out from the facts when
//! someone asks.

use super::World;
use super::keys::{InFleet, ResourceId};
use super::rejected::{BlamedId, ServedTable, TableOf, blamed_at_port, blamed_routes};
use super::table::{Fact, Unit};
use crate::objects::{Kind, ObjectKey, route_object, upstream_object};
use heliograph_model::{
    Listener, ListenerId, RouteId, SecretId, TableKey, TcpRoute, TransportPort, UpstreamId,
};
use heliograph_snapshot::{FleetName, ResourceType, Section, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An object that a resource was made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Listener(ListenerId),
    /// A route, a Service, a Secret, a ViewPolicy.
    Object(ObjectKey),
}

/// How many sources of a resource are blamed: a Service that a thousand routes lead to is one mistake, not a thousand.
const BLAMED: usize = 16;

impl World {
    /// All that a resource was made from.
    pub fn sources(&self, fleet: &FleetName, kind: ResourceType, name: &str) -> BTreeSet<Source> {
        match self.id_of(fleet, kind, &name.into()) {
            None => BTreeSet::new(),
            Some(ResourceId::Port(port)) => {
                let of_listener = |(listener, route): (&Listener, Option<&(RouteId, TcpRoute)>)| {
                    let route = route.map(|(id, _)| Source::Object(route_object(id)));
                    [Source::Listener(listener.id.clone())].into_iter().chain(route)
                };
                self.listeners_at(fleet, *port).flat_map(of_listener).collect()
            }
            Some(ResourceId::Secret(secret)) => {
                let object = Source::Object(secret.0.clone().of(Kind::Secret));
                self.listeners_with(fleet, secret).into_iter().chain([object]).collect()
            }
            Some(ResourceId::Upstream(upstream)) => {
                let object = upstream_object(&upstream.name.clone().of(upstream.kind));
                let routes = self.routes_to(fleet, upstream);
                routes.into_iter().chain([object]).map(Source::Object).collect()
            }
            Some(ResourceId::Table(table)) => {
                let table = TableOf { world: self, table };
                let listeners = table.listeners().cloned().map(Source::Listener);
                let routes = table.routes().into_iter().map(route_object).map(Source::Object);
                listeners.chain(routes).collect()
            }
        }
    }

    /// The objects on which the rejection of a resource is reported: the sources that the error means, as precisely as
    /// it names them. A Service or a Secret has no status of ours, so the objects that refer to it are reported.
    ///
    /// `version` is the rejected version. Empty if it is not the current one: then no object is to blame any more.
    pub fn blamed(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &str,
        version: Version,
        words: &str,
    ) -> BTreeSet<Source> {
        let name: Arc<str> = name.into();
        let Some(resource) = self.reader().resource(fleet, kind, &name) else {
            return BTreeSet::new();
        };
        // Versions of what is sealed are the store's, which reveal nothing of its content.
        let is_current = resource.version == version || Section::from(kind).seals(resource);
        if !is_current {
            return self.overlays(fleet, kind, &name);
        }
        let found: BTreeSet<Source> = match self.id_of(fleet, kind, &name) {
            None => BTreeSet::new(),
            Some(ResourceId::Table(table)) => self.blamed_in_table(table, words),
            Some(ResourceId::Port(port)) => {
                let blamed = blamed_at_port(fleet, self.listeners_at(fleet, *port), words);
                let source = |blamed| match blamed {
                    BlamedId::Listener(listener) => Source::Listener(listener),
                    BlamedId::Route(route) => Source::Object(route_object(&route)),
                };
                blamed.into_iter().map(source).collect()
            }
            Some(ResourceId::Secret(secret)) => self.listeners_with(fleet, secret),
            Some(ResourceId::Upstream(upstream)) => {
                self.routes_to(fleet, upstream).into_iter().map(Source::Object).collect()
            }
        };
        found.into_iter().take(BLAMED).collect()
    }

    /// The policies that make another resource of this one, for some clients.
    fn overlays(&self, fleet: &FleetName, kind: ResourceType, name: &Arc<str>) -> BTreeSet<Source> {
        let planned =
            self.reader().plan(fleet).and_then(|plan| plan.resources.get(&(kind, name.clone())));
        let policies = planned.into_iter().flat_map(|planned| &planned.overlays);
        policies
            .map(|overlay| Source::Object(overlay.policy.clone().of(Kind::ViewPolicy)))
            .collect()
    }

    fn blamed_in_table(&self, table: &TableKey, words: &str) -> BTreeSet<Source> {
        let table = TableOf { world: self, table };
        let routes = blamed_routes(&table, words);
        match routes.is_empty() {
            true => table.listeners().cloned().map(Source::Listener).collect(),
            false => routes.iter().map(route_object).map(Source::Object).collect(),
        }
    }

    /// The listeners that share a port, each with the route that has its connections.
    fn listeners_at(
        &self,
        fleet: &FleetName,
        port: TransportPort,
    ) -> impl Iterator<Item = (&Listener, Option<&(RouteId, TcpRoute)>)> {
        let listeners = self.reader().fleet(fleet).into_iter().flat_map(|fleet| &fleet.listeners);
        let here = listeners.filter(move |listener| listener.port == port);
        here.map(move |listener| {
            let key = InFleet::new(fleet, listener.id.clone());
            (listener, self.reader().forwarding(&key).and_then(|it| it.route.as_ref()))
        })
    }

    /// What shows the certificate of a Secret: listeners to their clients, or a Gateway to its backends.
    fn listeners_with(&self, fleet: &FleetName, secret: &SecretId) -> BTreeSet<Source> {
        let Some(of_fleet) = self.reader().fleet(fleet) else { return BTreeSet::new() };
        let listeners = of_fleet.listeners.iter().filter(|it| it.certificates.contains(secret));
        let listeners = listeners.map(|listener| Source::Listener(listener.id.clone()));
        let to_backends = of_fleet.client_certificate.as_ref().filter(|it| *it == secret);
        let members = to_backends.into_iter().flat_map(|_| self.reader().members(fleet));
        listeners
            .chain(members.map(|name| Source::Object(name.clone().of(Kind::Gateway))))
            .collect()
    }

    /// The routes that lead to an upstream: it is there because they ask for it.
    fn routes_to(&self, fleet: &FleetName, upstream: &UpstreamId) -> BTreeSet<ObjectKey> {
        let cluster = Fact::Product(Unit::Cluster(InFleet::new(fleet, upstream.clone())));
        let causes = self.engine.graph().demanders(&cluster);
        let routes = causes.filter_map(|cause| match cause {
            Fact::Product(Unit::CompiledRoute(key)) => Some(route_object(&key.route)),
            Fact::Product(Unit::Forwarding(key)) => {
                let (id, _) = self.reader().forwarding(key)?.route.as_ref()?;
                Some(route_object(id))
            }
            _ => None,
        });
        routes.collect()
    }

    /// What a resource is made from that is served under a name.
    pub(super) fn id_of(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&ResourceId> {
        self.engine.table.indexes.id_of(fleet, kind, name)
    }
}

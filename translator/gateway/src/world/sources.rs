//! From a resource back to the objects that it was made from, so that a rejection of the resource is reported on the
//! objects. Nothing is stored for this: the objects are found from the facts on request.

use super::World;
use super::keys::{CompiledRouteKey, InFleet};
use super::table::{Fact, Unit};
use crate::objects::{Kind, ObjectKey, ObjectName, route_object};
use heliograph_envoy_dialect::rejection::{
    QUOTES, contains, means_targets, names as names_in, quotes, route_named,
};
use heliograph_envoy_dialect::{CompiledMatch, names};
use heliograph_model::{
    Listener, ListenerId, RouteId, SecretId, TableKey, TcpRoute, UpstreamId, UpstreamKind,
    UpstreamProtocol,
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
        match kind {
            // No unit builds one.
            ResourceType::ExtensionConfig => BTreeSet::new(),
            ResourceType::Listener => {
                let of_listener = |listener: &Listener| {
                    let route = self.forwarded_to(fleet, listener);
                    let route = route.map(|(id, _)| Source::Object(route_object(id)));
                    [Source::Listener(listener.id.clone())].into_iter().chain(route)
                };
                self.listeners_at(fleet, name).flat_map(of_listener).collect()
            }
            ResourceType::Secret => {
                let secret = name.strip_prefix("secret/").and_then(|name| name.split_once('/'));
                let secret = secret.map(|(namespace, name)| {
                    Source::Object(ObjectName::new(namespace, name).of(Kind::Secret))
                });
                self.listeners_with(fleet, name).into_iter().chain(secret).collect()
            }
            ResourceType::Cluster | ResourceType::Endpoints => {
                let service = names::service_of(name).map(|name| name.of(Kind::Service));
                let routes = self.routes_to(fleet, name);
                routes.into_iter().chain(service).map(Source::Object).collect()
            }
            ResourceType::Route => {
                let Some(table) = self.table(fleet, name) else { return BTreeSet::new() };
                let listeners = self.listeners_of(&table).cloned().map(Source::Listener);
                let routes = self.routes_of(&table).map(route_object).map(Source::Object);
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
        let found: BTreeSet<Source> = match kind {
            ResourceType::ExtensionConfig => BTreeSet::new(),
            ResourceType::Route => self.blamed_in_table(fleet, &name, words),
            ResourceType::Listener => self.blamed_of_port(fleet, &name, words),
            ResourceType::Secret => self.listeners_with(fleet, &name),
            ResourceType::Cluster | ResourceType::Endpoints => {
                self.routes_to(fleet, &name).into_iter().map(Source::Object).collect()
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

    fn blamed_in_table(&self, fleet: &FleetName, name: &str, words: &str) -> BTreeSet<Source> {
        let Some(table) = self.table(fleet, name) else { return BTreeSet::new() };
        let routes: BTreeSet<&RouteId> = self.routes_of(&table).collect();
        let known = |route: &RouteId| routes.contains(route);
        let steps: [&dyn Fn() -> BTreeSet<RouteId>; 4] = [
            &|| names_in(words).filter_map(route_named).filter(known).collect(),
            &|| self.counted(&table, words).map(|it| it.0).into_iter().filter(known).collect(),
            &|| self.of_host(&table, words).map(|it| it.0).into_iter().filter(known).collect(),
            &|| self.route_that_says(&table, &routes, words).into_iter().collect(),
        ];
        let blamed = steps.iter().map(|step| step()).find(|found| !found.is_empty());
        match blamed {
            Some(routes) => routes.iter().map(route_object).map(Source::Object).collect(),
            // One route is the table's only content.
            None if routes.len() == 1 => {
                routes.into_iter().map(route_object).map(Source::Object).collect()
            }
            None => self.listeners_of(&table).cloned().map(Source::Listener).collect(),
        }
    }

    /// The only route with something that Envoy quotes.
    fn route_that_says(
        &self,
        table: &TableKey,
        routes: &BTreeSet<&RouteId>,
        words: &str,
    ) -> Option<RouteId> {
        let says = |route: &RouteId, quoted: &str| {
            self.compiled(route, table).any(|route| contains(&route.encoded, quoted.as_bytes()))
        };
        quotes(words).take(QUOTES).find_map(|quoted| {
            let mut saying = routes.iter().filter(|route| says(route, quoted));
            let only = saying.next()?;
            saying.next().is_none().then(|| (*only).clone())
        })
    }

    /// Listeners that share a port have filter chains of their own, named after their tables. Of a listener whose connections
    /// are passed on, the words may mean where they go, which its route says.
    fn blamed_of_port(&self, fleet: &FleetName, name: &str, words: &str) -> BTreeSet<Source> {
        let named: BTreeSet<&str> = names_in(words).collect();
        let is_named = |listener: &&Listener| {
            let table = TableKey::of(fleet, listener);
            table.is_some_and(|table| named.contains(&*names::table(&table)))
        };
        let (meant, others): (Vec<_>, Vec<_>) = self.listeners_at(fleet, name).partition(is_named);
        let blamed = if meant.is_empty() { others } else { meant };
        let source = |listener: &Listener| match self.forwarded_to(fleet, listener) {
            Some((id, route)) if means_targets(route, words) => Source::Object(route_object(id)),
            _ => Source::Listener(listener.id.clone()),
        };
        blamed.into_iter().map(source).collect()
    }

    fn listeners_at(&self, fleet: &FleetName, name: &str) -> impl Iterator<Item = &Listener> {
        let listeners = self.reader().fleet(fleet).into_iter().flat_map(|fleet| &fleet.listeners);
        listeners.filter(move |listener| names::listener(listener.port) == name)
    }

    /// The route that has the connections of a listener.
    fn forwarded_to(&self, fleet: &FleetName, listener: &Listener) -> Option<&(RouteId, TcpRoute)> {
        let forwarding = self.reader().forwarding(&InFleet::new(fleet, listener.id.clone()))?;
        forwarding.route.as_ref()
    }

    /// The objects whose proxies send the certificate of a Secret: listeners to their clients, or a Gateway to its
    /// backends.
    fn listeners_with(&self, fleet: &FleetName, secret: &str) -> BTreeSet<Source> {
        let Some(of_fleet) = self.reader().fleet(fleet) else { return BTreeSet::new() };
        let is_it = |certificate: &SecretId| names::secret(certificate) == secret;
        let listeners = of_fleet.listeners.iter().filter(|it| it.certificates.iter().any(is_it));
        let listeners = listeners.map(|listener| Source::Listener(listener.id.clone()));
        let to_backends = of_fleet.client_certificate.as_ref().filter(|it| is_it(it));
        let members = to_backends.into_iter().flat_map(|_| self.reader().members(fleet));
        listeners
            .chain(members.map(|name| Source::Object(name.clone().of(Kind::Gateway))))
            .collect()
    }

    pub(super) fn table(&self, fleet: &FleetName, name: &str) -> Option<TableKey> {
        let listeners = &self.reader().fleet(fleet)?.listeners;
        let mut tables = listeners.iter().filter_map(|listener| TableKey::of(fleet, listener));
        tables.find(|table| names::table(table) == name)
    }

    /// The compiled routes of a route in a table. If several listeners of the table have the route, these may differ.
    pub(super) fn compiled(
        &self,
        route: &RouteId,
        table: &TableKey,
    ) -> impl Iterator<Item = &CompiledMatch> {
        let listeners = self.listeners_of(table).filter_map(move |listener| {
            let (table, listener) = (table.clone(), listener.clone());
            let key = CompiledRouteKey { route: route.clone(), table, listener };
            self.reader().compiled_route(&key)
        });
        listeners.flat_map(|compiled| &compiled.routes)
    }

    fn listeners_of(&self, table: &TableKey) -> impl Iterator<Item = &ListenerId> {
        let here = self.reader().listeners_of(table).iter().filter(|candidate| candidate.is_here);
        here.map(|candidate| &candidate.listener)
    }

    pub(super) fn routes_of(&self, table: &TableKey) -> impl Iterator<Item = &RouteId> {
        self.listeners_of(table).flat_map(|listener| self.reader().routes_at(listener))
    }

    /// The routes that lead to a cluster: it is there because they ask for it.
    fn routes_to(&self, fleet: &FleetName, cluster: &str) -> BTreeSet<ObjectKey> {
        let Some(service) = names::service_of(cluster) else { return BTreeSet::new() };
        let first = UpstreamId {
            kind: UpstreamKind::Service,
            name: service.clone(),
            port: 0,
            protocol: UpstreamProtocol::Http1,
        };
        let graph = self.engine.graph();
        let of_service =
            graph.units_from(&Fact::Product(Unit::Cluster(InFleet::new(fleet, first))));
        let of_service = of_service.take_while(|unit| {
            matches!(unit, Fact::Product(Unit::Cluster(key)) if key.fleet == *fleet && key.id.name == service)
        });
        let causing = of_service.filter(|unit| {
            matches!(unit, Fact::Product(Unit::Cluster(key)) if names::cluster(&key.id) == cluster)
        });
        let causes = causing.flat_map(|unit| graph.demanders(unit));
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
}

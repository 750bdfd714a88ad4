use super::facts::Facts;
use super::unit::{Fact, Unit};
use crate::accept::AcceptedGateway;
use crate::attach::Attachment;
use crate::ir::{self, Hostname, TableKey};
use crate::objects::{Kind, ObjectKey, ObjectName, Typed, core::EndpointSlice};
use crate::routes::{Piece, Rules};
use bytes::Bytes;
use heliograph_snapshot::FleetName;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// How a unit sees the world. Every look is recorded, also one that finds nothing: an object that appears later
/// concerns the units that missed it.
pub(crate) struct Reader<'a> {
    facts: &'a Facts,
    seen: RefCell<BTreeSet<Fact>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(facts: &'a Facts) -> Self {
        Self { facts, seen: RefCell::default() }
    }

    pub(super) fn into_facts(self) -> BTreeSet<Fact> {
        self.seen.into_inner()
    }

    pub(crate) fn object<T: Typed>(&self, name: &ObjectName) -> Option<&'a T> {
        let key = name.clone().of(T::KIND);
        let object = self.facts.object(&key).and_then(T::of);
        self.saw(Fact::Object(key));
        object
    }

    pub(crate) fn objects_in<T: Typed + 'a>(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.saw(Fact::Namespace(T::KIND, namespace.into()));
        self.facts.objects_in(T::KIND, namespace).filter_map(T::of)
    }

    pub(crate) fn slices(
        &self,
        service: &ObjectName,
    ) -> impl Iterator<Item = &'a EndpointSlice> + use<'a> {
        self.saw(Fact::Slices(service.clone()));
        self.facts
            .slices(service)
            .filter_map(|name| self.facts.object(&name.clone().of(Kind::EndpointSlice)))
            .filter_map(EndpointSlice::of)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// A Gateway that is ours, whether or not it is valid.
    pub(crate) fn gateway(&self, name: &ObjectName) -> Option<&'a AcceptedGateway> {
        self.saw(Fact::Product(Unit::Gateway(name.clone())));
        self.facts.gateway(name)
    }

    /// What the proxies of a fleet are to serve.
    pub(crate) fn fleet(&self, fleet: &FleetName) -> Option<&'a ir::Gateway> {
        // A fleet has the name of its Gateway.
        let (namespace, name) = fleet.as_str().split_once('/')?;
        self.gateway(&ObjectName::new(namespace, name)).map(|gateway| &gateway.ir)
    }

    pub(crate) fn rules(&self, route: &ObjectKey) -> Option<&'a Rules> {
        self.saw(Fact::Product(Unit::Rules(route.clone())));
        self.facts.rules(route)
    }

    pub(crate) fn attachment(&self, route: &ObjectKey) -> Option<&'a Attachment> {
        self.saw(Fact::Product(Unit::Attachment(route.clone())));
        self.facts.attachment(route)
    }

    pub(crate) fn piece(&self, route: &ObjectKey, table: &TableKey) -> Option<&'a Piece> {
        self.saw(Fact::Product(Unit::Piece(route.clone(), table.clone())));
        self.facts.piece(route, table)
    }

    pub(crate) fn attached_routes(&self, gateway: &ObjectName, listener: &str) -> usize {
        self.saw(Fact::Attached(gateway.clone(), listener.into()));
        self.facts.attached_routes(gateway, listener)
    }

    /// The routes that a listener has for a host, each with the hostname that its author wrote.
    pub(crate) fn hosted(
        &self,
        table: &TableKey,
        listener: &str,
        host: &Hostname,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Hostname)> + use<'a> {
        self.saw(Fact::Hosted(table.clone(), listener.into(), host.clone()));
        self.facts.hosted(table, listener, host)
    }

    /// The encoded virtual hosts of a table, ordered by host.
    pub(crate) fn virtual_hosts(
        &self,
        table: &TableKey,
    ) -> impl Iterator<Item = &'a Bytes> + use<'a> {
        self.saw(Fact::VirtualHosts(table.clone()));
        self.facts.virtual_hosts(table)
    }

    fn saw(&self, fact: Fact) {
        self.seen.borrow_mut().insert(fact);
    }
}

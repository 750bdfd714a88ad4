//! What of which objects may be the cause of a rejection. What a proxy says of it is a hint and no proof.

use super::World;
use super::keys::{InFleet, ResourceId, TreatmentOf};
use super::rejected::{MeantMatch, Suspect, TableOf, suspects, suspects_then};
use crate::objects::{Kind, ObjectKey, route_object};
use bytes::Bytes;
use heliograph_model::{RouteAge, RouteId, TableKey};
use heliograph_snapshot::{FleetName, ResourceType, Version};
use heliograph_views::Treatment;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A resource that proxies rejected.
#[derive(Clone, Copy, Debug)]
pub struct RejectedResource<'a> {
    pub kind: ResourceType,
    pub name: &'a str,
    pub version: Version,
    /// The content, if that is known: it may have changed since.
    pub body: Option<&'a Bytes>,
    /// What a proxy said.
    pub words: &'a str,
    /// What was last accepted of the resource: what is there as it is now is no cause.
    pub good: Option<&'a Bytes>,
}

/// An object of which something may be the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub object: ObjectKey,
    /// Whether the words mean it.
    pub is_meant: bool,
    /// The matches that the words mean. Empty: they mean none more than another.
    pub matches: BTreeSet<MeantMatch>,
}

impl World {
    /// The routes, or policies, that may be the cause of a rejection: those first that the error means, then the
    /// youngest first. Empty if there are none: the rejected version is not the current one, or the resource is made
    /// from neither routes nor policies.
    pub fn culprits(&self, fleet: &FleetName, of: &RejectedResource<'_>) -> Vec<Culprit> {
        let RejectedResource { kind, name, version, body: rejected, words, good } = *of;
        let name: Arc<str> = name.into();
        let Some(resource) = self.reader().resource(fleet, kind, &name) else { return Vec::new() };
        let is_current = resource.version == version;
        let rejected = rejected.filter(|_| !is_current);
        match self.id_of(fleet, kind, &name) {
            Some(ResourceId::Table(table)) if is_current || rejected.is_some() => {
                self.culprits_in_table(table, rejected, words, good)
            }
            _ if is_current => Vec::new(),
            _ => self.culprits_of_variant(fleet, kind, &name, version),
        }
    }

    /// The routes that may be the cause of the rejection of a table, as they were in it. They may have changed since, or be
    /// gone.
    pub fn suspects_at(&self, fleet: &FleetName, of: &RejectedResource<'_>) -> BTreeSet<ObjectKey> {
        let RejectedResource { kind, name, version, body, words, good } = *of;
        let current = self.reader().resource(fleet, kind, &name.into());
        let current = current.filter(|it| it.version == version).map(|it| &it.body);
        let Some(body) = body.or(current).filter(|_| kind == ResourceType::Route) else {
            return BTreeSet::new();
        };
        suspects_then(body, good, words).iter().map(route_object).collect()
    }

    /// The version of a resource that there is now.
    pub fn version(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<Version> {
        self.reader().resource(fleet, kind, name).map(|resource| resource.version)
    }

    /// The policy that made a resource what was rejected, for some clients.
    fn culprits_of_variant(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
        version: Version,
    ) -> Vec<Culprit> {
        let of = match (kind, self.id_of(fleet, kind, name)) {
            (ResourceType::Endpoints, Some(ResourceId::Upstream(upstream))) => {
                TreatmentOf::Endpoints(upstream.clone())
            }
            _ => TreatmentOf::Named(kind, name.clone()),
        };
        let treated = self.reader().treatment(&InFleet::new(fleet, of));
        let treated = treated.and_then(|it| it.rule.as_ref());
        let treatment = treated.and_then(|rule| Treatment::of(rule));
        let variants = treatment.map(|treatment| treatment.variants).unwrap_or_default();
        let rejected = variants.iter().filter(|variant| Version::of(&variant.body) == version);
        let audiences: BTreeSet<&str> = rejected.map(|variant| &*variant.audience).collect();
        let planned =
            self.reader().plan(fleet).and_then(|it| it.resources.get(&(kind, name.clone())));
        let overlays = planned.into_iter().flat_map(|planned| &planned.overlays);
        let policies = overlays.filter(|overlay| audiences.contains(&*overlay.audience));
        let culprit =
            |object: ObjectKey| Culprit { object, is_meant: true, matches: BTreeSet::new() };
        policies.map(|overlay| culprit(overlay.policy.clone().of(Kind::ViewPolicy))).collect()
    }

    fn culprits_in_table(
        &self,
        table: &TableKey,
        rejected: Option<&Bytes>,
        words: &str,
        good: Option<&Bytes>,
    ) -> Vec<Culprit> {
        let table = TableOf { world: self, table };
        let mut suspects = suspects(&table, rejected, good, words);
        let age = |route: &RouteId| {
            let created = self.reader().rules(route).map_or(i64::MAX, |rules| rules.created);
            RouteAge::new(created, route.clone())
        };
        suspects.sort_by_cached_key(|it| (Reverse(it.is_meant), Reverse(age(&it.route))));
        let culprit = |Suspect { route, is_meant, matches }| Culprit {
            object: route_object(&route),
            is_meant,
            matches,
        };
        suspects.into_iter().map(culprit).collect()
    }
}

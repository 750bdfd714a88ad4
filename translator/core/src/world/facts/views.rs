use super::{Facts, set};
use crate::objects::ObjectName;
use crate::views::{AcceptedPolicy, ListedProxy, Plan, Treated};
use crate::world::relation::Relation;
use crate::world::unit::Fact;
use heliograph_snapshot::{FleetName, Internal, ResourceType};
use std::sync::Arc;

/// What is known of views.
impl Facts {
    pub(in crate::world) fn policies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &ObjectName> + use<'_> {
        self.policies_of.of(fleet)
    }

    pub(in crate::world) fn policy(&self, name: &ObjectName) -> Option<&AcceptedPolicy> {
        self.policies.get(name)
    }

    pub(in crate::world) fn proxies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&ObjectName, &ListedProxy)> + use<'_> {
        let names = self.proxies_of.of(fleet);
        names.filter_map(|name| Some((name, self.proxies.get(name)?)))
    }

    pub(in crate::world) fn proxy(&self, name: &ObjectName) -> Option<&ListedProxy> {
        self.proxies.get(name)
    }

    pub(in crate::world) fn plan(&self, fleet: &FleetName) -> Option<&Plan> {
        self.plans.get(fleet)
    }

    pub(in crate::world) fn treatment(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&Treated> {
        self.treatments.get(&(fleet.clone(), kind, name.clone()))
    }

    pub(super) fn set_policy(
        &mut self,
        name: &ObjectName,
        new: Option<AcceptedPolicy>,
    ) -> (bool, Vec<Fact>) {
        let fleet = |policy: Option<&AcceptedPolicy>| policy?.fleet.clone();
        let moved = [fleet(self.policies.get(name)), fleet(new.as_ref())];
        let touched = if move_member(&mut self.policies_of, &moved, name) {
            moved.into_iter().flatten().map(Fact::Policies).collect()
        } else {
            Vec::new()
        };
        (set(&mut self.policies, name, new), touched)
    }

    pub(super) fn set_proxy(
        &mut self,
        name: &ObjectName,
        new: Option<ListedProxy>,
    ) -> (bool, Vec<Fact>) {
        let fleet = |proxy: Option<&ListedProxy>| Some(proxy?.fleet.clone());
        let moved = [fleet(self.proxies.get(name)), fleet(new.as_ref())];
        move_member(&mut self.proxies_of, &moved, name);
        // Also one that stays is another proxy of its fleet now.
        let touched = moved.into_iter().flatten().map(Fact::Proxies).collect();
        (set(&mut self.proxies, name, new), touched)
    }

    pub(super) fn set_treatment(
        &mut self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
        new: Option<Treated>,
    ) -> bool {
        let rule = new.as_ref().and_then(|new| new.rule.clone());
        let kept = heliograph_views::treatment_name(kind, name).into();
        self.set_resource(fleet, Internal::Rules.into(), &kept, rule);
        set(&mut self.treatments, &(fleet.clone(), kind, name.clone()), new)
    }
}

/// From the first fleet to the second. Whether they differ.
pub(super) fn move_member(
    index: &mut Relation<FleetName, ObjectName>,
    [old, new]: &[Option<FleetName>; 2],
    name: &ObjectName,
) -> bool {
    if old == new {
        return false;
    }
    if let Some(old) = old {
        index.remove(old, name);
    }
    if let Some(new) = new {
        index.insert(new.clone(), name.clone());
    }
    true
}

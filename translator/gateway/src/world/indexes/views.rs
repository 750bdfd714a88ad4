//! Which ViewPolicies and proxies belong to which fleet.

use super::{Fact, Indexes, move_member};
use crate::objects::ObjectName;
use crate::views::{AcceptedViewPolicy, ListedProxy, TreatmentResult};
use crate::world::keys::{InFleet, TreatmentOf};
use heliograph_snapshot::Internal;

impl Indexes {
    pub(in crate::world) fn view_policy_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&AcceptedViewPolicy>,
        new: Option<&AcceptedViewPolicy>,
    ) -> Vec<Fact> {
        let fleet = |policy: Option<&AcceptedViewPolicy>| policy?.fleet.clone();
        let moved = move_member(&mut self.view_policies, name, fleet(old), fleet(new));
        moved.into_iter().map(Fact::ViewPolicies).collect()
    }

    pub(in crate::world) fn proxy_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&ListedProxy>,
        new: Option<&ListedProxy>,
    ) -> Vec<Fact> {
        let fleet = |proxy: Option<&ListedProxy>| Some(proxy?.fleet.clone());
        move_member(&mut self.proxies, name, fleet(old), fleet(new));
        // A proxy that stays in its fleet is another proxy of it now.
        fleet(old).into_iter().chain(fleet(new)).map(Fact::Proxies).collect()
    }

    pub(in crate::world) fn treatment_changed(
        &mut self,
        key: &InFleet<TreatmentOf>,
        old: Option<&TreatmentResult>,
        new: Option<&TreatmentResult>,
    ) -> Vec<Fact> {
        let rule = |treated: Option<&TreatmentResult>| treated?.rule.clone();
        let (old, new) = (rule(old), rule(new));
        if old != new
            && let Some(name) = new.as_ref().or(old.as_ref()).map(|rule| rule.name.clone())
        {
            self.resource_changed(&key.fleet, Internal::Rules.into(), name, new);
        }
        Vec::new()
    }
}

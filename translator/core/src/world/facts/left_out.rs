use super::Facts;
use crate::left_out::revision;
use crate::objects::ObjectKey;
use heliograph_snapshot::FleetName;
use heliograph_views::LeftOut;

impl Facts {
    pub(in crate::world) fn left_out(
        &self,
        fleet: &FleetName,
        object: &ObjectKey,
    ) -> Option<&LeftOut> {
        self.left_out.get(object)?.get(fleet)
    }

    /// There are few of them: objects that proxies reject although the translator accepted them.
    pub(in crate::world) fn all_left_out(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&ObjectKey, &LeftOut)> {
        self.left_out.iter().filter_map(move |(object, fleets)| Some((object, fleets.get(fleet)?)))
    }

    pub(in crate::world) fn objects_left_out(&self) -> usize {
        self.left_out.values().map(std::collections::BTreeMap::len).sum()
    }

    /// Whether it is another than before.
    pub(in crate::world) fn set_left_out(
        &mut self,
        fleet: &FleetName,
        object: &ObjectKey,
        left_out: Option<LeftOut>,
    ) -> bool {
        let fleets = self.left_out.entry(object.clone()).or_default();
        let changed = super::set(fleets, fleet, left_out);
        if fleets.is_empty() {
            self.left_out.remove(object);
        }
        changed
    }

    /// The fleets that leave something of another content of the object out than it has now.
    pub(in crate::world) fn outdated(&self, object: &ObjectKey) -> Vec<FleetName> {
        let Some(fleets) = self.left_out.get(object) else { return Vec::new() };
        let now = self.objects.get(object).map(revision);
        let is_outdated = |left_out: &LeftOut| now.as_ref() != Some(&left_out.revision);
        let outdated = fleets.iter().filter(|(_, left_out)| is_outdated(left_out));
        outdated.map(|(fleet, _)| fleet.clone()).collect()
    }
}

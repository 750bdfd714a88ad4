//! The policies that are attached to each target.

use super::{Fact, Indexes};
use crate::policies::AcceptedPolicy;
use heliograph_model::{PolicyAge, PolicyId, PolicyScope, PolicyTarget};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A policy at one of its targets.
type Entry = (PolicyScope, (PolicyAge, Option<Arc<str>>));

impl Indexes {
    /// What is said of a policy is no concern of those who read what is in force.
    pub(in crate::world) fn accepted_policy_changed(
        &mut self,
        _id: &PolicyId,
        old: Option<&AcceptedPolicy>,
        new: Option<&AcceptedPolicy>,
    ) -> Vec<Fact> {
        let (before, after) = (entries(old), entries(new));
        for (scope, entry) in before.difference(&after) {
            self.policies_at.remove(scope, entry);
        }
        for (scope, entry) in after.difference(&before) {
            self.policies_at.insert(scope.clone(), entry.clone());
        }
        let differs = old.zip(new).is_none_or(|(old, new)| old.differs_in_force(new));
        let changed: BTreeSet<&PolicyScope> = match differs {
            true => before.union(&after).map(|(scope, _)| scope).collect(),
            false => before.symmetric_difference(&after).map(|(scope, _)| scope).collect(),
        };
        changed.into_iter().cloned().map(Fact::PoliciesAt).collect()
    }
}

fn entries(policy: Option<&AcceptedPolicy>) -> BTreeSet<Entry> {
    let Some(AcceptedPolicy { age, targets, .. }) = policy else { return BTreeSet::new() };
    let entry =
        |target: &PolicyTarget| (target.scope.clone(), (age.clone(), target.section.clone()));
    targets.iter().map(entry).collect()
}

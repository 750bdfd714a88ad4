use crate::ir;
use crate::objects::ObjectKey;
use crate::status::Status;
use heliograph_snapshot::{Change, FleetName};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Fleets with changed resources.
    pub changes: BTreeMap<FleetName, Vec<Change>>,
    /// Fleets that are no more.
    pub retired: Vec<FleetName>,
    /// `None`: the object is gone, or is not ours any more.
    pub statuses: BTreeMap<ObjectKey, Option<Status>>,
    /// `None`: nothing is to run for this fleet any more.
    pub infra: BTreeMap<FleetName, Option<Arc<ir::Infra>>>,
    pub work: Work,
}

/// How many units were computed, by stage. Work must be in proportion to the change: tests hold it to that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work(BTreeMap<&'static str, u64>);

impl Work {
    pub(crate) fn count(&mut self, stage: &'static str) {
        *self.0.entry(stage).or_default() += 1;
    }

    pub fn of(&self, stage: &str) -> u64 {
        self.0.get(stage).copied().unwrap_or_default()
    }

    pub fn by_stage(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(stage, count)| (*stage, *count))
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

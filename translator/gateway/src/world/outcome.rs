use crate::infra::Infra;
use crate::objects::ObjectKey;
use crate::status::Status;
use heliograph_engine::Work;
use heliograph_snapshot::{Change, FleetName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changes of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Fleets with changed resources.
    pub changes: BTreeMap<FleetName, Vec<Change>>,
    /// Fleets that are no more.
    pub retired: Vec<FleetName>,
    /// `None`: the object is gone, or is not ours any more.
    pub statuses: BTreeMap<ObjectKey, Option<Status>>,
    /// `None`: nothing is to run for this fleet any more.
    pub infra: BTreeMap<FleetName, Option<Arc<Infra>>>,
    pub work: Work,
}

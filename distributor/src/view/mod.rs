use heliograph_distributor_protocol::View;
use heliograph_snapshot::{Head, Snapshot};
use std::sync::Arc;

/// The attributes of a client that can change what it sees, and no others. So far none does: all clients of a fleet
/// are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class;

/// A snapshot as each class of clients sees it.
#[derive(Debug)]
pub(crate) struct Views {
    everyone: Arc<View>,
}

impl Views {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { everyone: Arc::new(View::new(snapshot)) }
    }

    pub(crate) fn head(&self) -> Head {
        self.everyone.head()
    }

    pub(crate) fn of(&self, Class: Class) -> &Arc<View> {
        &self.everyone
    }
}

use heliograph_snapshot::{ResourceType, Version};
use std::sync::Arc;

/// An event from a client's message, for metrics and for status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Acknowledged(ResourceType),
    Rejected(Arc<Rejection>),
    /// A type that is not served. The request is left unanswered, since the type may not matter to the client.
    UnknownType,
}

/// A client refused content, and stays at what it last accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub kind: ResourceType,
    /// The client's own words, cut to a bounded length.
    pub detail: String,
    /// What is to blame, and not sent again; or, if that is not known yet, what it is searched among: all that was new
    /// in the reply. Cut to a bounded number; `None` is a removal.
    pub resources: Vec<(Arc<str>, Option<Version>)>,
    /// Whether each of them is to blame.
    pub attributed: bool,
}

impl Event {
    /// How much memory it keeps, in hundreds of bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Acknowledged(_) | Self::UnknownType => 0,
            Self::Rejected(rejection) => rejection.detail.len() / 100 + rejection.resources.len(),
        }
    }
}

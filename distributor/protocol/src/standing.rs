use crate::memo::Position;
use std::sync::Arc;

/// Where a client stands, for who counts clients. Many stand in the same place.
#[derive(Clone, Debug)]
pub struct Standing(pub(crate) Arc<Position>);

use super::json;
use crate::server::Door;
use axum::routing::{MethodRouter, get};
use std::sync::Arc;

pub(super) fn page(door: Arc<Door>) -> MethodRouter {
    get(async move || json(&door.usage()))
}

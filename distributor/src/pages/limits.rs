use super::json;
use crate::server::AdmissionControl;
use axum::routing::{MethodRouter, get};
use std::sync::Arc;

pub(super) fn page(admission_control: Arc<AdmissionControl>) -> MethodRouter {
    get(async move || json(&admission_control.usage()))
}

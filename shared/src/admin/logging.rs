use super::QueryParams;
use crate::duration;
use crate::telemetry::Logging;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelRequest {
    level: Option<String>,
    r#for: Option<String>,
}

pub(super) fn page(logging: Logging) -> MethodRouter {
    let shown = logging.clone();
    get(async move || format!("{shown}\n"))
        .put(async move |QueryParams(request): QueryParams<LevelRequest>| set(&logging, &request))
}

fn set(logging: &Logging, request: &LevelRequest) -> Response {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why + "\n").into_response();
    let Some(level) = &request.level else {
        return refused(
            "set a level: PUT /logging?level=debug, for a limited time with &for=10m".to_owned(),
        );
    };
    let time = match request.r#for.as_deref().map(duration::parse).transpose() {
        Ok(time) => time,
        Err(error) => return refused(format!("for: {error}")),
    };
    match logging.set(level, time) {
        Ok(()) => format!("{logging}\n").into_response(),
        Err(error) => refused(error.to_string()),
    }
}

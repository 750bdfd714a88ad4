use super::Asked;
use crate::duration;
use crate::telemetry::Logging;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    level: Option<String>,
    r#for: Option<String>,
}

pub(super) fn page(logging: Logging) -> MethodRouter {
    let told = logging.clone();
    get(async move || format!("{told}\n"))
        .put(async move |Asked(wish): Asked<Wish>| set(&logging, &wish))
}

fn set(logging: &Logging, wish: &Wish) -> Response {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why + "\n").into_response();
    let Some(level) = &wish.level else {
        return refused("say which: PUT /logging?level=debug, for a time with &for=10m".to_owned());
    };
    let time = match wish.r#for.as_deref().map(duration::parse).transpose() {
        Ok(time) => time,
        Err(error) => return refused(format!("for: {error}")),
    };
    match logging.set(level, time) {
        Ok(()) => format!("{logging}\n").into_response(),
        Err(error) => refused(error.to_string()),
    }
}

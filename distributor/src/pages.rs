//! The pages of a distributor on the admin port.

mod clients;
mod limits;
mod snapshot;

use crate::acks::Acks;
use crate::clients::Clients;
use crate::feed::Fleets;
use crate::server::AdmissionControl;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use heliograph_shared::admin::Pages;
use heliograph_snapshot::Head;
use serde::{Serialize, Serializer};
use std::sync::Arc;

pub(crate) fn add(
    pages: Pages,
    fleets: &Fleets,
    clients: &Clients,
    admission_control: &Arc<AdmissionControl>,
) -> Pages {
    let purpose = "what is sent for each fleet, and what its proxies acknowledge or reject";
    let pages = pages.page("/fleets", purpose, self::fleets(Acks::new(fleets.clone())));
    let purpose = "every proxy that is connected here: who it is, and how far it is; \
                   ?fleet= ?node= ?state= ?limit= ?after= ?format=json, or =lines for all";
    let pages = pages.page("/clients", purpose, clients::page(fleets.clone(), clients.clone()));
    let purpose = "streams and connections, their limits, and the clients with the most";
    let pages = pages.page("/limits", purpose, limits::page(admission_control.clone()));
    let purpose = "the content of a fleet, resource by resource, without secrets; \
                   ?type= ?name= ?node= ?limit= ?after= ?content=false";
    pages.page(snapshot::PATH, purpose, snapshot::page(fleets.clone(), clients.clone()))
}

/// Why a page cannot be shown, in one line.
#[derive(Debug)]
struct PageError(StatusCode, String);

/// A head as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadText(Head);

impl PageError {
    fn bad(why: impl ToString) -> Self {
        Self(StatusCode::BAD_REQUEST, why.to_string())
    }

    fn not_found(why: impl ToString) -> Self {
        Self(StatusCode::NOT_FOUND, why.to_string())
    }

    fn failed(why: impl ToString) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let Self(status, why) = self;
        (status, why + "\n").into_response()
    }
}

impl Serialize for HeadText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn fleets(acks: Acks) -> MethodRouter {
    get(async move || Json(acks.all()))
}

fn json(page: &impl Serialize) -> Result<Response, PageError> {
    let text = serde_json::to_string_pretty(page).map_err(PageError::failed)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response())
}

/// How many things a page shows, as far as it is asked.
fn limit(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, PageError> {
    match asked.unwrap_or(usual) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(PageError::bad(format!("limit is a number from 1 to {most}"))),
    }
}

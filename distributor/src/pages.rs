use crate::acks::Acks;
use axum::Json;
use axum::routing::{MethodRouter, get};
use heliograph_shared::admin::Pages;

pub(crate) fn add(pages: Pages, acks: Acks) -> Pages {
    let purpose = "what each fleet is told, and what its proxies say to that";
    pages.page("/fleets", purpose, fleets(acks))
}

fn fleets(acks: Acks) -> MethodRouter {
    get(async move || Json(acks.all()))
}

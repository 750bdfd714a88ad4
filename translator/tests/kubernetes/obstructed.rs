//! A way to a real API on which requests for one kind fail.

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Failures are named by the plural of the kind that they are for, or [`DISCOVERY`]. Those that are to pass reach the API.
#[derive(Clone, Default)]
pub(crate) struct Obstructed(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Each answer has this code.
    Status(u16),
    /// There is no answer before requests pass.
    Hangs,
}

pub(crate) const DISCOVERY: &str = "discovery";

#[derive(Default)]
struct State {
    failures: BTreeMap<String, Failure>,
    /// How often watches were ended.
    ends: BTreeMap<String, u64>,
    /// How many requests failed.
    failed: BTreeMap<String, u64>,
    /// How many reached the API, other than watches.
    lists: BTreeMap<String, u64>,
    watches: BTreeMap<String, u64>,
}

impl Obstructed {
    pub(crate) fn client(&self, client: Client) -> Client {
        let obstructed = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (obstructed, client) = (obstructed.clone(), client.clone());
            async move { obstructed.answer(client, request).await }
        });
        Client::new(service, "default")
    }

    /// From now on. Watches that are under way end.
    pub(crate) fn fail(&self, what: &str, failure: Failure) {
        self.0.send_modify(|state| {
            state.failures.insert(what.to_owned(), failure);
        });
        self.end_watches(what);
    }

    pub(crate) fn pass(&self, what: &str) {
        self.0.send_modify(|state| {
            state.failures.remove(what);
        });
    }

    pub(crate) fn end_watches(&self, what: &str) {
        self.0.send_modify(|state| *state.ends.entry(what.to_owned()).or_default() += 1);
    }

    /// How many requests failed.
    pub(crate) fn failed(&self, what: &str) -> u64 {
        self.0.borrow().failed.get(what).copied().unwrap_or_default()
    }

    /// How many requests reached the API, other than watches.
    pub(crate) fn lists(&self, what: &str) -> u64 {
        self.0.borrow().lists.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn watches(&self, what: &str) -> u64 {
        self.0.borrow().watches.get(what).copied().unwrap_or_default()
    }

    async fn answer(
        &self,
        client: Client,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let path = request.uri().path();
        let is_discovery = path.starts_with("/apis") && path.matches('/').count() < 4;
        let plural = path.rsplit('/').next().unwrap_or_default();
        let what = if is_discovery { DISCOVERY } else { plural }.to_owned();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let mut states = self.0.subscribe();
        let ends = states.borrow().ends.get(&what).copied();
        let failure = states.borrow().failures.get(&what).copied();
        if failure.is_some() {
            self.0.send_modify(|state| *state.failed.entry(what.clone()).or_default() += 1);
        }
        match failure {
            Some(Failure::Status(code)) => return Ok(refusal(code)),
            Some(Failure::Hangs) => {
                let _ = states.wait_for(|state| !state.failures.contains_key(&what)).await;
            }
            None => {}
        }
        self.0.send_modify(|state| {
            let counts = if is_watch { &mut state.watches } else { &mut state.lists };
            *counts.entry(what.clone()).or_default() += 1;
        });
        let (head, body) = client.send(request).await?.into_parts();
        let body = BodyExt::into_data_stream(body);
        if !is_watch {
            return Ok(Response::from_parts(head, Body::from_stream(body)));
        }
        let ended = async move {
            let _ = states.wait_for(|state| state.ends.get(&what).copied() != ends).await;
        };
        let body = body.take_until(Box::pin(ended));
        Ok(Response::from_parts(head, Body::from_stream(body)))
    }
}

fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "code": code, "status": "Failure", "reason": "Obstructed",
        "message": "by the test",
    });
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(status.to_string()))
        .unwrap()
}

//! A small API in this process, which does on demand what a real one does not.

use axum::body::Body;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Serves one Lease, and HTTPRoutes that a test puts there. Everything else is an empty list.
#[derive(Clone)]
pub(crate) struct Faulty(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// While it is so, nothing is answered.
    hangs: watch::Sender<bool>,
    /// While it is so, lists of routes are not answered.
    lists_hang: watch::Sender<bool>,
    /// While it is so, routes may not be watched, nor listed.
    forbidden: watch::Sender<Forbidden>,
    /// How many patches of a Lease must have come before they are answered.
    meeting: watch::Sender<usize>,
}

/// What one may not do with routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Forbidden {
    #[default]
    Nothing,
    Watches,
    ListsAndWatches,
}

#[derive(Default)]
struct State {
    version: u64,
    lease: Option<Value>,
    /// Whom answers to patches name from now on.
    usurper: Option<String>,
    /// How much older a Lease seems than it is: the clock of who asks is as far ahead.
    ahead: jiff::SignedDuration,
    patches: usize,
    routes: BTreeMap<String, Value>,
    watches: Vec<mpsc::UnboundedSender<String>>,
    lists: usize,
    /// Of one route, to find out whether routes can be listed.
    probes: usize,
}

type ApiResponse = Result<Response<Body>, Infallible>;

impl Faulty {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State { version: 100, ..State::default() }),
            hangs: watch::Sender::new(false),
            lists_hang: watch::Sender::new(false),
            forbidden: watch::Sender::default(),
            meeting: watch::Sender::new(0),
        }))
    }

    pub(crate) fn client(&self) -> Client {
        let faulty = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let faulty = faulty.clone();
            async move { faulty.answer(request).await }
        });
        Client::new(service, "default")
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.0.hangs.send_replace(hangs);
    }

    pub(crate) fn hang_lists(&self, hangs: bool) {
        self.0.lists_hang.send_replace(hangs);
    }

    /// Watches that there are end.
    pub(crate) fn forbid(&self, forbidden: Forbidden) {
        self.0.forbidden.send_replace(forbidden);
        self.drop_watches();
    }

    /// A Lease that ran out long ago.
    pub(crate) fn expired_lease(&self) {
        let mut state = self.state();
        let spec = json!({
            "holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
        });
        state.put_lease(spec);
    }

    /// Patches of the Lease wait until there are so many.
    pub(crate) fn let_meet(&self, patches: usize) {
        self.0.meeting.send_replace(patches);
    }

    pub(crate) fn usurp(&self, holder: &str) {
        self.state().usurper = Some(holder.to_owned());
    }

    pub(crate) fn set_clocks_ahead(&self, by: Duration) {
        self.state().ahead = by.try_into().unwrap();
    }

    pub(crate) fn holder(&self) -> Option<String> {
        let state = self.state();
        Some(state.lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
    }

    /// How often a list of routes was asked for.
    pub(crate) fn lists(&self) -> usize {
        self.state().lists
    }

    pub(crate) fn probes(&self) -> usize {
        self.state().probes
    }

    pub(crate) fn put_route(&self, name: &str, told: bool) {
        let mut state = self.state();
        state.version += 1;
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": name, "namespace": "shop", "resourceVersion": state.version.to_string() },
            "spec": {},
        });
        state.routes.insert(name.to_owned(), route.clone());
        if told {
            state.send_event(&json!({ "type": "ADDED", "object": route }));
        }
    }

    /// A deletion that no watch hears of.
    pub(crate) fn lose_route(&self, name: &str) {
        let mut state = self.state();
        state.version += 1;
        state.routes.remove(name);
    }

    /// Every watch is too old.
    pub(crate) fn expire_watches(&self) {
        let status =
            json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
        let mut state = self.state();
        state.send_event(&json!({ "type": "ERROR", "object": status }));
        state.watches.clear();
    }

    /// Every watch breaks off.
    pub(crate) fn drop_watches(&self) {
        self.state().watches.clear();
    }

    pub(crate) fn watches(&self) -> usize {
        self.state().watches.iter().filter(|watch| !watch.is_closed()).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> ApiResponse {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let _ = self.0.hangs.subscribe().wait_for(|hangs| !hangs).await;
        let path = head.uri.path();
        let query = head.uri.query().unwrap_or_default();
        if path.contains("/leases") {
            return self
                .answer_lease(&head.method, &serde_json::from_slice(&body).unwrap_or_default())
                .await;
        }
        if let Some(found) = discovery(path) {
            return Ok(json_answer(StatusCode::OK, &found));
        }
        let is_routes = path.ends_with("/httproutes");
        let is_watch = query.contains("watch=true");
        let is_forbidden = match *self.0.forbidden.borrow() {
            Forbidden::Nothing => false,
            Forbidden::Watches => is_watch,
            Forbidden::ListsAndWatches => true,
        };
        if is_routes && is_forbidden {
            let status = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "not you" });
            return Ok(json_answer(StatusCode::FORBIDDEN, &status));
        }
        if is_watch {
            return Ok(self.watch(is_routes));
        }
        let is_probe = query.contains("limit=1&") || query.ends_with("limit=1");
        if is_routes && is_probe {
            self.state().probes += 1;
        } else if is_routes {
            self.state().lists += 1;
            let _ = self.0.lists_hang.subscribe().wait_for(|hangs| !hangs).await;
        }
        let state = self.state();
        let items: Vec<&Value> = if is_routes { state.routes.values().collect() } else { vec![] };
        let metadata = json!({ "resourceVersion": state.version.to_string() });
        Ok(json_answer(
            StatusCode::OK,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }),
        ))
    }

    fn watch(&self, is_routes: bool) -> Response<Body> {
        let (lines, heard) = mpsc::unbounded_channel::<String>();
        if is_routes {
            self.state().watches.push(lines);
        } else {
            // Nothing happens there, for ever.
            tokio::spawn(async move { lines.closed().await });
        }
        let body = stream::unfold(heard, |mut heard| async move {
            let line = heard.recv().await?;
            Some((Ok::<_, Infallible>(line), heard))
        });
        Response::new(Body::from_stream(body))
    }

    async fn answer_lease(&self, method: &Method, body: &Value) -> ApiResponse {
        match *method {
            Method::GET => {
                let state = self.state();
                let Some(mut lease) = state.lease.clone() else {
                    let status = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "none" });
                    return Ok(json_answer(StatusCode::NOT_FOUND, &status));
                };
                let renewed: jiff::Timestamp =
                    lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
                lease["spec"]["renewTime"] = json!(format!("{:.6}", renewed - state.ahead));
                Ok(json_answer(StatusCode::OK, &lease))
            }
            Method::POST => {
                let mut state = self.state();
                state.put_lease(body["spec"].clone());
                Ok(json_answer(StatusCode::CREATED, state.lease.as_ref().unwrap()))
            }
            _ => {
                self.state().patches += 1;
                self.0.meeting.send_modify(|_| {});
                let has_come = |meeting: &usize| self.state().patches >= *meeting;
                let _ = self.0.meeting.subscribe().wait_for(has_come).await;
                let mut state = self.state();
                let mut spec = state.lease.as_ref().unwrap()["spec"].clone();
                for (field, value) in body["spec"].as_object().unwrap() {
                    spec[field] = value.clone();
                }
                if let Some(usurper) = &state.usurper {
                    spec["holderIdentity"] = json!(usurper);
                }
                state.put_lease(spec);
                Ok(json_answer(StatusCode::OK, state.lease.as_ref().unwrap()))
            }
        }
    }
}

/// That routes are served.
fn discovery(path: &str) -> Option<Value> {
    let (group, version) = ("gateway.networking.k8s.io", "gateway.networking.k8s.io/v1");
    match path {
        "/apis" => {
            let versions = json!([{ "groupVersion": version, "version": "v1" }]);
            Some(json!({ "groups": [{ "name": group, "versions": versions }] }))
        }
        "/apis/gateway.networking.k8s.io/v1" => {
            let routes = json!({
                "name": "httproutes", "kind": "HTTPRoute", "singularName": "", "namespaced": true,
                "verbs": ["list", "watch"],
            });
            Some(json!({ "groupVersion": version, "resources": [routes] }))
        }
        _ => None,
    }
}

impl State {
    fn put_lease(&mut self, spec: Value) {
        self.version += 1;
        self.lease = Some(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "lease", "namespace": "default", "resourceVersion": self.version.to_string() },
            "spec": spec,
        }));
    }

    fn send_event(&mut self, event: &Value) {
        let line = format!("{event}\n");
        self.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }
}

fn json_answer(status: StatusCode, value: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

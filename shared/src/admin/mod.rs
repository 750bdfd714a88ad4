//! The admin port of every program: health, readiness, metrics and pages.

mod connections;
mod host;
mod logging;
mod query;
mod readiness;
mod server;

pub use query::QueryParams;
pub use readiness::{Readiness, ReadinessToken};

use crate::net::{self, BindError};
use crate::table::columns;
use crate::telemetry::Logging;
use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use host::Hosts;
use prometheus::{Registry, TextEncoder};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The flags of every program with an admin port.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// Address of the admin port, which serves metrics, health and status
    #[arg(
        long,
        help_heading = "Admin",
        env = "HELIO_ADMIN_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:19000"
    )]
    pub admin_address: SocketAddr,
}

/// The pages of the admin port: those of every program, and those that the program adds.
pub struct Pages {
    registry: Registry,
    readiness: Readiness,
    note: ReadyNote,
    added: Router,
    /// Path and purpose, for the page at `/`.
    index: Vec<(&'static str, &'static str)>,
}

/// The line that `/readyz` adds when the program is ready, if any.
type ReadyNote = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// An admin port that listens and does not answer yet.
#[derive(Debug)]
pub struct BoundAdmin {
    listener: TcpListener,
    address: SocketAddr,
}

pub async fn bind(address: SocketAddr) -> Result<BoundAdmin, BindError> {
    let listener = net::bind("admin address", "--admin-address", address).await?;
    // Asked of the listener, because port 0 becomes another.
    let address = listener.local_addr().unwrap_or(address);
    Ok(BoundAdmin { listener, address })
}

impl Pages {
    pub fn new(registry: Registry, readiness: Readiness) -> Self {
        let index = vec![
            ("/livez", "200 while the program runs"),
            ("/metrics", "metrics in the text format of Prometheus"),
            ("/readyz", "200 when the program is ready; before that, 503 and what it waits for"),
        ];
        Self { registry, readiness, note: Arc::new(|| None), added: Router::new(), index }
    }

    /// Adds the page that shows and sets the log level.
    #[must_use]
    pub fn logging(self, logging: Logging) -> Self {
        let purpose = "the log level; PUT /logging?level=debug&for=10m changes it";
        self.page("/logging", purpose, logging::page(logging))
    }

    /// Adds a line after "ready" to the answer of `/readyz`.
    #[must_use]
    pub fn ready_note(self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { note: Arc::new(note), ..self }
    }

    /// Adds a page of the program's own. Variable parts of its path are in braces. `purpose` is its line on the page at
    /// `/`.
    #[must_use]
    pub fn page(mut self, path: &'static str, purpose: &'static str, page: MethodRouter) -> Self {
        self.added = self.added.route(path, page);
        self.index.push((path, purpose));
        self
    }

    fn into_router(mut self) -> Router {
        self.index.sort_unstable();
        let rows = self.index.iter().map(|(path, purpose)| [shown(path), (*purpose).to_owned()]);
        let index = columns(&rows.collect::<Vec<_>>());
        Router::new()
            .route("/", get(move || async move { index }))
            .route("/livez", get(async || "alive\n"))
            .route("/readyz", get(readyz).with_state((self.readiness, self.note)))
            .route("/metrics", get(metrics).with_state(self.registry))
            .merge(self.added)
            .fallback(nothing)
            .method_not_allowed_fallback(not_so)
    }
}

impl BoundAdmin {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` resolves, and a moment longer for requests under way.
    pub async fn serve(
        self,
        pages: Pages,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let (router, bound) = (pages.into_router(), self.address.ip());
        let checked = |hosts: Hosts| {
            let check = move |request, next| hosts.check(request, next);
            router.clone().layer(middleware::from_fn(check))
        };
        let (loopback, addresses) = (checked(Hosts::Loopback), checked(Hosts::Addresses));
        let router = move |peer| match Hosts::of(bound, peer) {
            Hosts::Loopback => loopback.clone(),
            Hosts::Addresses => addresses.clone(),
            Hosts::Any => router.clone(),
        };
        server::serve(self.listener, router, shutdown).await;
        Ok(())
    }
}

async fn nothing(uri: Uri) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("there is no page {}: / lists all pages\n", uri.path()))
}

async fn not_so(method: Method, uri: Uri) -> (StatusCode, String) {
    let message = format!("{} does not support {method}: / lists what it supports\n", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, message)
}

/// `/snapshot/NAMESPACE/NAME` for `/snapshot/{namespace}/{name}`.
fn shown(path: &str) -> String {
    let varies = |part: &str| Some(part.strip_prefix('{')?.strip_suffix('}')?.to_uppercase());
    let parts = path.split('/').map(|part| varies(part).unwrap_or_else(|| part.to_owned()));
    parts.collect::<Vec<_>>().join("/")
}

async fn readyz(State((readiness, note)): State<(Readiness, ReadyNote)>) -> Response {
    let awaited = readiness.awaited();
    if awaited.is_empty() {
        return note()
            .map_or("ready\n".to_owned(), |note| format!("ready\n{note}\n"))
            .into_response();
    }
    let body = format!("not ready, awaiting: {}\n", awaited.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn metrics(State(registry): State<Registry>) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

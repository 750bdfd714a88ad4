use super::RunError;
use axum::Router;
use axum::http::header;
use axum::routing::get;
use heliograph_report::RunMetrics;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Serves `/metrics` until it is stopped.
pub(super) async fn serve(address: SocketAddr) -> Result<(RunMetrics, AbortHandle), RunError> {
    let failed = |reason: String| RunError::Metrics(reason);
    let registry = Registry::new();
    let metrics = RunMetrics::register(&registry).map_err(|error| failed(error.to_string()))?;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        failed(format!("{address}: {error}; choose another address with --metrics"))
    })?;
    let page = move || {
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        async move { ([(header::CONTENT_TYPE, TEXT_FORMAT)], text.unwrap_or_default()) }
    };
    let router = Router::new().route("/metrics", get(page));
    let serving = tokio::spawn(async move {
        // It ends with the run, or with the listener, which no other task can close.
        let _ = axum::serve(listener, router).await;
    });
    Ok((metrics, serving.abort_handle()))
}

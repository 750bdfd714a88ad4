//! What routes do that takes more than one request to see, or another protocol: shares, retries, CORS, gRPC.

use crate::harness::{Helio, HttpRequest, HttpResponse, backend, gateway, service, write};
use axum::Router;
use axum::http::StatusCode;
use bytes::Bytes;
use heliograph_testing::Port;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};

const ROUTES: &str = r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pages}
spec:
  parentRefs: [{name: web}]
  rules:
  - matches: [{path: {value: /shares}}]
    backendRefs:
    - {name: one, port: 80, filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /one}}}]}
    - {name: two, port: 80, filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /two}}}]}
    - {name: two, port: 80, weight: 2}
  - matches: [{path: {value: /patient}}]
    retry: {attempts: 2, codes: [503], backoff: 1ms}
    backendRefs: [{name: moody, port: 80}]
  - matches: [{path: {value: /impatient}}]
    retry: {attempts: 2, codes: [500], backoff: 1ms}
    backendRefs: [{name: moody, port: 80}]
  - matches: [{path: {value: /refused}}]
    retry: {attempts: 20, backoff: 1ms}
    backendRefs: [{name: half, port: 80}]
  - matches: [{path: {value: /cors}}]
    filters: [{type: CORS, cors: {allowOrigins: ["https://*.good.test"], allowMethods: ["*"], allowCredentials: true}}]
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {value: /shop.Cart}}]
    backendRefs: [{name: one, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec:
  parentRefs: [{name: web}]
  rules:
  - matches: [{method: {service: shop.Cart}}]
    backendRefs: [{name: carts, port: 80}]
  - matches: [{method: {service: shop.Cart, method: Add}, headers: [{name: who, value: me}]}]
    backendRefs: [{name: mine, port: 80}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_do_what_takes_more_than_one_request_to_see() {
    let (one, two) = (backend("one").await, backend("two").await);
    let (moody, half) = (moody_backend().await, backend("half").await);
    let (carts, mine) = (grpc_backend("carts").await, grpc_backend("mine").await);
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway("web", port));
        let services = [
            ("one", one),
            ("two", two),
            ("moody", moody),
            ("carts", carts),
            ("mine", mine),
            ("half", half),
        ];
        let services: String = services.map(|(name, port)| service(name, port)).concat();
        // No program listens on port 1.
        let refuses = service("half", 1).replace("half-1", "half-2");
        let (_, refuses) = refuses.rsplit_once("---").unwrap();
        write(directory, "backends.yaml", &(services + "---" + refuses));
        write(directory, "routes.yaml", ROUTES);
    });
    helio.until_ready().await;

    check_shares(port).await;
    check_retries(port).await;
    check_cors(port).await;
    check_grpc(port).await;
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

async fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    HttpRequest { method, host: "web.test", path, headers }.ask(port).await.unwrap()
}

async fn check_shares(port: u16) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..400 {
        *seen.entry(ask(port, "GET", "/shares/x", &[]).await.body).or_default() += 1;
    }
    let expected = [
        ("one web.test /one/x", 100),
        ("two web.test /shares/x", 200),
        ("two web.test /two/x", 100),
    ];
    assert_eq!(seen.keys().collect::<Vec<_>>(), expected.map(|(body, _)| body), "{seen:?}");
    for (body, share) in expected {
        // Six standard deviations.
        assert!(seen[body].abs_diff(share) < 60, "{seen:?}");
    }
}

async fn check_retries(port: u16) {
    // The backend fails twice and then answers.
    assert_eq!(ask(port, "GET", "/patient", &[]).await.status, 200);
    assert_eq!(ask(port, "GET", "/impatient", &[]).await.status, 503, "503 is not in its list");
    for _ in 0..20 {
        assert_eq!(ask(port, "POST", "/refused", &[]).await.body, "half web.test /refused");
    }
}

async fn check_cors(port: u16) {
    let preflight = async |origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "PUT")];
        ask(port, "OPTIONS", "/cors", &headers).await
    };
    let allowed = preflight("https://a.b.good.test").await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.body, "", "no backend was asked");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://a.b.good.test"));
    assert_eq!(allowed.header("access-control-allow-methods"), Some("PUT"));
    assert_eq!(allowed.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(allowed.header("access-control-max-age"), Some("5"));
    for other in ["https://good.test.evil", "http://a.good.test", "https://evil.test:1/.good.test"]
    {
        let denied = preflight(other).await;
        assert_eq!(denied.body, "", "no backend was asked");
        assert_eq!(denied.header("access-control-allow-origin"), None, "{other}");
    }
    let plain = ask(port, "GET", "/cors", &[("origin", "https://a.good.test")]).await;
    assert_eq!(plain.body, "one web.test /cors");
    assert_eq!(plain.header("access-control-allow-origin"), Some("https://a.good.test"));
}

async fn check_grpc(port: u16) {
    assert_eq!(call(port, "/shop.Cart/Add", &[]).await, Ok("carts /shop.Cart/Add".to_owned()));
    assert_eq!(
        call(port, "/shop.Cart/Add", &[("who", "me")]).await,
        Ok("mine /shop.Cart/Add".to_owned())
    );
    assert_eq!(call(port, "/shop.Till/Open", &[]).await, Err(12), "nobody implements it");
    let page = ask(port, "GET", "/shop.Cart/Add", &[]).await;
    assert_eq!(page.body, "one web.test /shop.Cart/Add", "not gRPC, so the HTTPRoute has it");
}

/// What a backend answered, or the status of gRPC.
async fn call(port: u16, path: &str, headers: &[(&str, &str)]) -> Result<String, u32> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut connection, driver) =
        client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let mut request = Request::post(format!("http://web.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = connection.send_request(request).await.unwrap();
    if let Some(status) = response.headers().get("grpc-status") {
        return Err(status.to_str().unwrap().parse().unwrap());
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Speaks HTTP/2 and nothing else. Answers with its name and the path.
async fn grpc_backend(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = move |request: Request<hyper::body::Incoming>| async move {
        let body = format!("{name} {}", request.uri().path());
        let response = Response::builder().header("content-type", "application/grpc");
        Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = server::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
    port
}

/// Answers 503 twice, then once 200, and so on.
async fn moody_backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let answer = async move || match asked.fetch_add(1, Ordering::Relaxed) % 3 {
        2 => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    port
}

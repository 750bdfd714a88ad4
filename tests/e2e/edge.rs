//! What Envoys accept from unknown clients: paths and headers that have two meanings, and clients that take their time.

use crate::harness::{
    Helio, HttpRequest, HttpResponse, backend, gateway, gateway_with, replace, route, service,
    until, write,
};
use axum::Router;
use axum::body::Bytes;
use heliograph_testing::Port;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

async fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    HttpRequest { method: "GET", host: "web.test", path, headers }.ask(port).await.unwrap()
}

/// A Gateway that has all to itself, with a ProxyConfig.
fn configured(port: u16, config: &str) -> String {
    let spec = format!(
        "infrastructure: {{parametersRef: {{group: heliograph.dev, kind: ProxyConfig, name: own}}}}
  listeners: [{{name: http, protocol: HTTP, port: {port}}}]"
    );
    let config = format!(
        "
---
apiVersion: heliograph.dev/v1alpha1
kind: ProxyConfig
metadata: {{name: own}}
spec: {{http: {config}}}
"
    );
    gateway_with("web", &spec) + &config
}

async fn start(gateway: &str) -> Helio {
    let (admin, public) = (backend("admin").await, backend("public").await);
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", gateway);
        write(directory, "backends.yaml", &(service("admin", admin) + &service("public", public)));
        write(directory, "route.yaml", &route(&[("/admin", "admin"), ("/", "public")]));
    });
    helio.until_ready().await;
    helio
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_or_a_header_with_two_meanings_reaches_no_backend() {
    let port = Port::reserve().unwrap().number();
    let mut helio = start(&gateway("web", port)).await;
    assert_eq!(get(port, "/admin", &[]).await.body, "admin web.test /admin");
    assert_eq!(get(port, "/admins", &[]).await.body, "public web.test /admins");

    // One path for the route and the backend.
    for path in ["//admin", "/x/..//admin", "/x/../admin", "/%61dmin"] {
        assert_eq!(get(port, path, &[]).await.body, "admin web.test /admin", "{path}");
    }
    for path in ["/x%2f..%2fadmin?a=1", "/x%2F..%2Fadmin?a=1", "/x%5c..%5Cadmin?a=1"] {
        let answer = get(port, path, &[]).await;
        assert_eq!(answer.status, 307, "{path}");
        assert_eq!(answer.header("location"), Some("/admin?a=1"), "{path}");
    }
    let call = get(port, "/x%2fy", &[("content-type", "application/grpc")]).await;
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("13")));
    // What is only in the query has one meaning.
    let query = "/?next=//admin%2f";
    assert_eq!(get(port, query, &[]).await.body, format!("public web.test {query}"));

    assert_eq!(get(port, "/", &[("x-user_id", "1")]).await.status, 400);
    assert_eq!(get(port, "/", &[("x-user-id", "1")]).await.body, "public web.test / x-user-id=1");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_allow_what_old_clients_send() {
    let port = Port::reserve().unwrap().number();
    let lenient = "{escapedSlashes: Keep, mergeSlashes: false, headersWithUnderscores: Allow}";
    let mut helio = start(&configured(port, lenient)).await;
    for path in ["//admin", "/x%2f..%2fadmin"] {
        assert_eq!(get(port, path, &[]).await.body, format!("public web.test {path}"));
    }
    assert_eq!(get(port, "/", &[("x-user_id", "1")]).await.body, "public web.test / x-user_id=1");

    // A change of parameters is a change of listeners.
    let strict = "{escapedSlashes: Reject, headersWithUnderscores: Drop}";
    replace(&helio.directory(), "gateway.yaml", &configured(port, strict));
    let dropped = async || get(port, "/", &[("x-user_id", "1")]).await.body == "public web.test /";
    until("the header is dropped", dropped).await.unwrap();
    // Each thread of Envoy takes a new listener over by itself.
    let rejected = async || get(port, "/x%2f..%2fadmin", &[]).await.status == 400;
    until("the path is rejected", rejected).await.unwrap();
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_end_its_headers_is_cut_off_and_an_upload_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = listener.local_addr().unwrap().port();
    let count = async |body: Bytes| format!("{} bytes", body.len());
    tokio::spawn(axum::serve(listener, Router::new().fallback(count)).into_future());
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &configured(port, "{requestHeadersSeconds: 1}"));
        write(directory, "backends.yaml", &service("one", backend));
        write(directory, "route.yaml", &route(&[("/", "one")]));
    });
    helio.until_ready().await;

    let connect = async || TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut upload = connect().await;
    let headers =
        "POST / HTTP/1.1\r\nhost: web.test\r\nconnection: close\r\ncontent-length: 2\r\n\r\n";
    upload.write_all(format!("{headers}1").as_bytes()).await.unwrap();

    // It gets an answer, and its connection is closed.
    let mut slow = connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nhost: web.test\r\nx-more: ").await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, slow.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");

    // By now the upload has taken longer than headers may.
    upload.write_all(b"2").await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, upload.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("2 bytes"), "{answer:?}");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

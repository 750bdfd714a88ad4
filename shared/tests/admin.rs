#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use axum::routing::get;
use heliograph_shared::admin::{self, Pages, Readiness};
use heliograph_shared::telemetry::{self, LogArgs, LogFormat};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DEADLINE: Duration = Duration::from_secs(10);

struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

async fn start(readiness: Readiness) -> Admin {
    let bound = admin::bind(ANY).await.unwrap();
    let address = bound.address();
    let pages = Pages::new(telemetry::registry("test").unwrap(), readiness).page(
        "/status",
        "the conditions of every object",
        get(async || "all is well\n"),
    );
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(bound.serve(pages, async {
        let _ = stopped.await;
    }));
    Admin { address, stop, task }
}

/// The status, the head and the body of the answer.
async fn fetch(address: SocketAddr, path: &str) -> (u16, String, String) {
    ask(address, "GET", path).await
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String, String) {
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await.expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn readyz_names_what_is_awaited_and_then_agrees() {
    let readiness = Readiness::new();
    let (feed, xds) = (readiness.token("first snapshot"), readiness.token("xDS port"));
    let admin = start(readiness).await;
    let (status, _, body) = fetch(admin.address, "/readyz").await;
    assert_eq!((status, &*body), (503, "not ready, awaiting: first snapshot, xDS port\n"));
    feed.done();
    let (status, _, body) = fetch(admin.address, "/readyz").await;
    assert_eq!((status, &*body), (503, "not ready, awaiting: xDS port\n"));
    assert_eq!(fetch(admin.address, "/livez").await.0, 200, "alive before it is ready");
    xds.done();
    assert_eq!(fetch(admin.address, "/readyz").await.0, 200);
}

#[tokio::test]
async fn metrics_are_in_the_format_of_prometheus() {
    let admin = start(Readiness::new()).await;
    let (status, head, body) = fetch(admin.address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("# TYPE heliograph_build_info gauge\n"), "{body}");
}

#[tokio::test]
async fn the_index_lists_every_page_and_each_answers() {
    let admin = start(Readiness::new()).await;
    let (status, _, index) = fetch(admin.address, "/").await;
    assert_eq!(status, 200);
    let paths: Vec<_> = index.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(paths, ["/livez", "/metrics", "/readyz", "/status"]);
    for path in paths {
        assert_eq!(fetch(admin.address, path).await.0, 200, "{path}");
    }
    assert_eq!(fetch(admin.address, "/status").await.2, "all is well\n");
    let (status, _, body) = fetch(admin.address, "/nothing").await;
    assert_eq!((status, &*body), (404, "there is no page /nothing: / lists all pages\n"));
}

#[tokio::test]
async fn a_port_in_use_is_one_clear_line() {
    let taken = admin::bind(ANY).await.unwrap();
    let address = taken.address();
    assert_eq!(
        admin::bind(address).await.unwrap_err().to_string(),
        format!(
            "admin address {address} is in use: stop what listens there or choose another with \
             --admin-address"
        )
    );
}

#[tokio::test]
async fn a_client_that_never_asks_does_not_hold_up_the_end() {
    let admin = start(Readiness::new()).await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    // Answered after the idle client was accepted.
    assert_eq!(fetch(admin.address, "/livez").await.0, 200);
    admin.stop.send(()).unwrap();
    tokio::time::timeout(DEADLINE, admin.task).await.expect("it hangs").unwrap().unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err(), "it still listens");
}

#[tokio::test]
async fn what_varies_in_a_path_is_named_on_the_index() {
    let bound = admin::bind(ANY).await.unwrap();
    let address = bound.address();
    let pages = Pages::new(telemetry::registry("test").unwrap(), Readiness::new());
    let pages = pages.page("/of/{fleet}/more", "more of it", get(async || "more\n"));
    tokio::spawn(bound.serve(pages, std::future::pending()));
    let (_, _, index) = fetch(address, "/").await;
    assert!(index.contains("/of/FLEET/more  more of it\n"), "{index}");
    assert_eq!(fetch(address, "/of/any/more").await.2, "more\n");
}

#[tokio::test]
async fn the_log_level_is_told_and_set() {
    let args = LogArgs { log_level: "warn".to_owned(), log_format: LogFormat::Human };
    let bound = admin::bind(ANY).await.unwrap();
    let address = bound.address();
    let pages = Pages::new(telemetry::registry("test").unwrap(), Readiness::new());
    // The one of this process: no other test sets it up.
    let pages = pages.logging(telemetry::init(&args).unwrap());
    tokio::spawn(bound.serve(pages, std::future::pending()));
    let put = async |query: &str| {
        let (status, _, body) = ask(address, "PUT", &format!("/logging{query}")).await;
        (status, body)
    };
    assert_eq!(fetch(address, "/logging").await.2, "warn\n");
    assert_eq!(put("?level=error").await, (200, "error, configured: warn\n".to_owned()));
    assert_eq!(fetch(address, "/logging").await.2, "error, configured: warn\n");
    let said = put("?level=off&for=10m").await.1;
    assert!(said.starts_with("off for another ") && said.ends_with("s, then warn\n"), "{said}");
    for (wrong, why) in [
        ("", "set a level: PUT /logging?level=debug"),
        ("?level=loud", "log level \"loud\": use error, warn"),
        ("?level=info&for=soon", "for: write a number and ms, s, m or h"),
        ("?level=info&for=48h", "24h at most"),
        ("?levl=info", "unknown field `levl`"),
    ] {
        let (status, said) = put(wrong).await;
        assert_eq!(status, 400, "{wrong}");
        assert!(said.contains(why) && said.lines().count() == 1, "{wrong}: {said}");
    }
    assert!(fetch(address, "/logging").await.2.starts_with("off "), "what is refused does nothing");
    let (status, _, said) = ask(address, "POST", "/logging").await;
    assert_eq!(
        (status, &*said),
        (405, "/logging does not support POST: / lists what it supports\n")
    );
}

/// Waits until the other side has ended the connection, whatever it says before.
async fn ends(stream: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut said)).await.is_ok()
}

/// The status and the body of what is answered to a request that says this host.
async fn ask_host(address: SocketAddr, head: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await.expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn a_page_in_a_browser_cannot_read_a_port_on_loopback_by_a_name_of_its_own() {
    let admin = start(Readiness::new()).await;
    let port = admin.address.port();
    for ours in ["localhost", "127.0.0.1", "[::1]", "LocalHost"] {
        // Another port may be forwarded to this one.
        for host in [ours.to_owned(), format!("{ours}:{port}"), format!("{ours}:8080")] {
            let head = format!("GET /status HTTP/1.1\r\nHost: {host}\r\n");
            assert_eq!(ask_host(admin.address, &head).await, (200, "all is well\n".to_owned()));
        }
    }
    assert_eq!(ask_host(admin.address, "GET /status HTTP/1.0\r\n").await.0, 200, "no browser");
    let refused = (
        421,
        "this port serves this machine only: request localhost, 127.0.0.1 or [::1]\n".to_owned(),
    );
    for head in [
        format!("GET /status HTTP/1.1\r\nHost: rebound.example:{port}\r\n"),
        "GET /metrics HTTP/1.1\r\nHost: localhost.rebound.example\r\n".to_owned(),
        "GET /nothing HTTP/1.1\r\nHost: 192.0.2.1\r\n".to_owned(),
        "GET /status HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n".to_owned(),
        "GET http://rebound.example/status HTTP/1.1\r\nHost: localhost\r\n".to_owned(),
    ] {
        assert_eq!(ask_host(admin.address, &head).await, refused, "{head}");
    }
}

/// `kubectl port-forward` comes from loopback, whatever the port listens on. Proxies beside it may do so as well, for those who ask for
/// the address of a pod: no page can make that its own.
#[tokio::test]
async fn a_page_in_a_browser_cannot_read_a_port_that_is_forwarded_by_a_name_of_its_own() {
    for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        // Not every machine has IPv6.
        let Ok(bound) = admin::bind((any, 0).into()).await else { continue };
        let address = SocketAddr::new(ANY.ip(), bound.address().port());
        let pages = Pages::new(telemetry::registry("test").unwrap(), Readiness::new());
        tokio::spawn(bound.serve(pages, std::future::pending()));
        let status = async |host: &str| {
            let head = format!("GET /livez HTTP/1.1\r\nHost: {host}\r\n");
            ask_host(address, &head).await.0
        };
        for host in ["localhost:8080", "127.0.0.1:19000", "[::1]", "10.1.2.3:19000"] {
            assert_eq!(status(host).await, 200, "{host}");
        }
        for host in ["rebound.example:19000", "10.1.2.3.rebound.example", "distributor-0"] {
            assert_eq!(status(host).await, 421, "{host}");
        }
    }
}

#[tokio::test]
async fn who_takes_too_long_for_its_request_is_cut_off() {
    let admin = start(Readiness::new()).await;
    let mut slow = TcpStream::connect(admin.address).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: loc").await.unwrap();
    // It ends whatever the client sends, and also if the client sends nothing at all.
    let mut silent = TcpStream::connect(admin.address).await.unwrap();
    for stream in [&mut slow, &mut silent] {
        assert!(ends(stream).await, "it stays");
    }
}

#[tokio::test]
async fn a_head_without_an_end_is_refused() {
    let admin = start(Readiness::new()).await;
    let mut stream = TcpStream::connect(admin.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ").await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    // Until the server ends the connection.
    let writing =
        tokio::spawn(async move { while writer.write_all(&[b'x'; 4096]).await.is_ok() {} });
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(DEADLINE, reader.read_to_end(&mut answer)).await;
    let _ = ended.expect("it reads on");
    drop(reader);
    tokio::time::timeout(DEADLINE, writing).await.expect("it takes more").unwrap();
}

#[tokio::test]
async fn connections_are_bounded_and_who_comes_is_answered() {
    let bound = admin::bind(ANY).await.unwrap();
    let address = bound.address();
    let pages = Pages::new(telemetry::registry("test").unwrap(), Readiness::new());
    let stuck = get(async || std::future::pending::<&str>().await);
    tokio::spawn(bound.serve(pages.page("/stuck", "never answers", stuck), std::future::pending()));
    let mut waiting = Vec::new();
    for _ in 0..500 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        waiting.push(stream);
    }
    assert_eq!(fetch(address, "/livez").await.0, 200);
    // The oldest had to make room, and were not kept until they are answered.
    for stream in &mut waiting[..300] {
        assert!(ends(stream).await, "all of them are kept");
    }
}

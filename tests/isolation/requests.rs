//! What clients of tenant A send to the shared Envoy.

use super::DEADLINE;
use super::neighbour::HOST;
use crate::harness::HttpRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connections on which a request has begun whose headers do not end.
pub(crate) async fn slow_headers(port: u16, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let begun = format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nx-more: ");
        connection.write_all(begun.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    connections
}

/// Waits until each of them was answered and closed.
pub(crate) async fn until_cut_off(connections: Vec<TcpStream>) {
    for mut connection in connections {
        let mut answer = String::new();
        let read = connection.read_to_string(&mut answer);
        timeout(DEADLINE, read).await.expect("it is not cut off").unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    }
}

/// Some backends read `_` as `-`.
pub(crate) async fn ambiguous_headers(port: u16) {
    let headers = &[("x_user_id", "1")];
    let asked = HttpRequest { method: "GET", host: HOST, path: "/", headers };
    assert_eq!(asked.ask(port).await.unwrap().status, 400);
}

/// Paths that have two meanings are B's path, or no request.
pub(crate) async fn ambiguous_paths(port: u16) {
    let ask = async |path: &str| {
        HttpRequest { method: "GET", host: HOST, path, headers: &[] }.ask(port).await.unwrap()
    };
    for path in ["//b", "/a/..//b", "///a/../b"] {
        let answer = ask(path).await;
        let is_served = answer.body.contains(&format!(" {HOST} /b x-version="));
        assert!(is_served, "{path}: {} {}", answer.status, answer.body);
    }
    for path in ["/a%2f..%2f", "/a%5c..%5c"] {
        assert_eq!(ask(path).await.status, 307, "{path}");
    }
}

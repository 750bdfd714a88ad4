use axum::extract::Request;
use axum::http::{StatusCode, header, uri::Authority};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Refuses requests to another host than this machine. For a port on loopback: a page in a browser can make a name of its own lead
/// to loopback and read what is served there (DNS rebinding), and its requests say that name.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_ours = hosts.all(|host| host.to_str().is_ok_and(is_loopback))
        && request.uri().authority().is_none_or(|authority| is_loopback(authority.as_str()));
    if is_ours {
        return next.run(request).await;
    }
    let words = "this port is for this machine: ask for localhost, 127.0.0.1 or [::1]\n";
    (StatusCode::MISDIRECTED_REQUEST, words).into_response()
}

/// `HOST[:PORT]`, with any port: another one may be forwarded to this.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_loopback =
        address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    // Who says `user@localhost` is not a browser, and means something else than this port.
    !host.contains('@') && (is_loopback || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_few_names() {
        for ours in [
            "localhost",
            "localhost:19000",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.0.0.1:19000",
            "127.8.9.1:1",
            "[::1]",
            "[::1]:19000",
        ] {
            assert!(is_loopback(ours), "{ours}");
        }
        for other in [
            "",
            "rebound.example",
            "rebound.example:19000",
            "localhost.rebound.example",
            "127.0.0.1.rebound.example:19000",
            "localhost@rebound.example",
            "rebound.example@localhost",
            "192.0.2.1:19000",
            "[2001:db8::1]:19000",
            "::1",
            "local host",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}

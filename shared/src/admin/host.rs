use axum::extract::Request;
use axum::http::{StatusCode, header, uri::Authority};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// The names that a request's Host may have. A page in a browser can make a name of its own resolve to loopback and read
/// what is served there (DNS rebinding), and its requests have that name as Host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// `localhost` and the addresses of loopback.
    Loopback,
    /// These and all other addresses, which are no names.
    Addresses,
    Any,
}

impl Hosts {
    /// For a port that listens on `bound`, and a client that comes from `peer`. Requests that are forwarded to a pod
    /// come from loopback, and so do those of a sidecar proxy, for clients that use the address of the pod.
    pub(super) fn of(bound: IpAddr, peer: IpAddr) -> Self {
        match (bound.to_canonical().is_loopback(), peer.to_canonical().is_loopback()) {
            (true, _) => Self::Loopback,
            (false, true) => Self::Addresses,
            (false, false) => Self::Any,
        }
    }

    fn have(self, host: &str) -> bool {
        match self {
            Self::Loopback => is_loopback(host),
            Self::Addresses => is_loopback(host) || is_address(host),
            Self::Any => true,
        }
    }

    /// Refuses requests to others.
    pub(super) async fn check(self, request: Request, next: Next) -> Response {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let is_ours = hosts.all(|host| host.to_str().is_ok_and(|host| self.have(host)))
            && request.uri().authority().is_none_or(|authority| self.have(authority.as_str()));
        if is_ours {
            return next.run(request).await;
        }
        let words = "this port serves this machine only: request localhost, 127.0.0.1 or [::1]\n";
        (StatusCode::MISDIRECTED_REQUEST, words).into_response()
    }
}

/// `IP[:PORT]`.
fn is_address(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    !host.contains('@') && address.parse::<IpAddr>().is_ok()
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn who_comes_from_elsewhere_may_use_any_name() {
        let (any, local) = (Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into());
        let other = IpAddr::from([192, 0, 2, 1]);
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
        assert_eq!(Hosts::of(any, other), Hosts::Any);
        assert_eq!(Hosts::of(other, other), Hosts::Any);
        for peer in [local, mapped, Ipv6Addr::LOCALHOST.into()] {
            assert_eq!(Hosts::of(any, peer), Hosts::Addresses, "{peer}");
        }
        assert_eq!(Hosts::of(local, local), Hosts::Loopback);
        assert_eq!(Hosts::of(local, other), Hosts::Loopback);
        assert!(Hosts::Any.have("distributor-0.example"));
        assert!(Hosts::Addresses.have("[2001:db8::1]:19000"));
        assert!(!Hosts::Addresses.have("rebound.example@192.0.2.1"));
    }

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

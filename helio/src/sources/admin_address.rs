use super::AdminConnection;
use anyhow::Context;
use std::fmt;
use std::str::FromStr;
use tokio::net::TcpStream;

/// The address of an admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdminAddress {
    /// `HOST:PORT`.
    host_and_port: String,
    /// What all paths begin with; mostly nothing.
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write http://HOST:PORT: an admin port uses plain HTTP without authentication")]
pub(super) struct InvalidAdminAddress;

impl FromStr for AdminAddress {
    type Err = InvalidAdminAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(InvalidAdminAddress),
            None => text,
        };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let authority: http::uri::Authority = authority.parse().map_err(|_| InvalidAdminAddress)?;
        // A name and a password would be printed with it.
        if authority.host().is_empty() || authority.as_str().contains('@') || prefix.contains('?') {
            return Err(InvalidAdminAddress);
        }
        let port = authority.port_u16().unwrap_or(80);
        let prefix = prefix.trim_end_matches('/');
        Ok(Self {
            host_and_port: format!("{}:{port}", authority.host()),
            prefix: if prefix.is_empty() { String::new() } else { format!("/{prefix}") },
        })
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host_and_port, self.prefix)
    }
}

impl AdminAddress {
    pub(super) async fn connect(&self) -> anyhow::Result<AdminConnection> {
        let stream = TcpStream::connect(&self.host_and_port).await.context("cannot connect")?;
        // A request is one small packet, which must not wait for another.
        let _ = stream.set_nodelay(true);
        AdminConnection::over(stream, &self.host_and_port, &self.prefix).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_port_is_a_plain_url_or_host_and_port() {
        let cases = [
            ("http://127.0.0.1:19000", "127.0.0.1:19000"),
            ("localhost:19000", "localhost:19000"),
            ("http://[::1]:19000/", "[::1]:19000"),
            ("http://bastion/helio/one/", "bastion:80/helio/one"),
        ];
        for (text, shown) in cases {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "http://", "https://a:1", "redis://a", "http://me:word@a:1", "http://a?b"]
        {
            assert_eq!(text.parse::<AdminAddress>(), Err(InvalidAdminAddress), "{text}");
        }
    }
}

use crate::{
    ClientValidation, FleetOwner, Hostname, ListenerId, SecretId, Transport, TransportPort,
};
use heliograph_snapshot::{Dialect, FleetName};
use serde::Serialize;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Everything that the proxies of a fleet serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    pub name: FleetName,
    /// What its proxies read.
    #[serde(skip_serializing_if = "is_envoy")]
    pub dialect: Dialect,
    /// Only those that can be served, in the order of their owners.
    pub listeners: Vec<Listener>,
    /// The Secret with the certificate that backends are shown where TLS is spoken to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<SecretId>,
    /// What is accepted of clients; the defaults where its parameters say nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub http: HttpSettings,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub id: ListenerId,
    #[serde(flatten)]
    pub port: TransportPort,
    pub protocol: Protocol,
    pub hostname: Hostname,
    /// The Secrets with the certificates of an HTTPS listener.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<SecretId>,
    /// What its clients have to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_validation: Option<ClientValidation>,
}

/// Settings for requests of HTTP clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpSettings {
    pub escaped_slashes: EscapedSlashes,
    pub merge_slashes: bool,
    pub headers_with_underscores: HeadersWithUnderscores,
    /// From the first byte of a request's headers to their last; never zero.
    pub request_headers_timeout: Duration,
    /// With nothing sent in either direction; zero: no timeout.
    pub stream_idle_timeout: Duration,
    /// Of a client on one connection of HTTP/2; never zero.
    pub max_concurrent_streams: u32,
}

/// How a path with `%2F` or `%5C` is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EscapedSlashes {
    /// The client is sent to the path without them.
    #[default]
    Redirect,
    Reject,
    Unescape,
    Keep,
}

/// How a request with `_` in the name of a header is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum HeadersWithUnderscores {
    #[default]
    Reject,
    /// The header is removed.
    Drop,
    Allow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Http,
    Https,
    /// Connections are passed on as they are.
    Tcp,
}

/// A port of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InfraPort {
    /// As clients of the Gateway see it.
    pub port: u16,
    /// As the proxy binds it.
    pub bind_port: u16,
    #[serde(skip_serializing_if = "Transport::is_tcp")]
    pub transport: Transport,
}

/// Which route table a listener uses, if it is for HTTP. Listeners for plain HTTP on a port share one, since only the
/// host of a request distinguishes them; a TLS listener is chosen by SNI and has its own. It is cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey(Arc<TableParts>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableParts {
    pub fleet: FleetName,
    pub port: u16,
    /// The listener, where it does not share.
    pub listener: Option<ListenerId>,
}

/// A listener that hosts of a table may belong to: one that uses the table, or, where a client chose the table by SNI, any
/// other that it could have chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub listener: ListenerId,
    pub hostname: Hostname,
    /// Whether it uses the table.
    pub is_here: bool,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            escaped_slashes: EscapedSlashes::default(),
            merge_slashes: true,
            headers_with_underscores: HeadersWithUnderscores::default(),
            request_headers_timeout: Duration::from_secs(10),
            stream_idle_timeout: Duration::from_secs(300),
            max_concurrent_streams: 100,
        }
    }
}

impl Protocol {
    pub fn transport(self) -> Transport {
        match self {
            Self::Http | Self::Https | Self::Tcp => Transport::Tcp,
        }
    }

    /// Whether a listener for this protocol leaves room on its port for others of which that is true, too. HTTP and HTTPS differ
    /// in the first bytes that a client sends; a client that speaks another protocol may wait for the server to begin.
    pub fn may_share_port(self) -> bool {
        match self {
            Self::Http | Self::Https => true,
            Self::Tcp => false,
        }
    }
}

impl InfraPort {
    /// A proxy runs without the privilege to bind a port below 1024, so it binds another and whatever stands in
    /// front, a Service as a rule, maps the one to the other.
    pub fn new(port: TransportPort) -> Self {
        let TransportPort { number: port, transport } = port;
        Self { port, bind_port: if port < 1024 { port + 10_000 } else { port }, transport }
    }

    /// The port that clients see, with its transport.
    pub fn transport_port(self) -> TransportPort {
        TransportPort { number: self.port, transport: self.transport }
    }
}

impl Fleet {
    /// The other listeners that a client who asks for this one by SNI could have asked for. Of Gateways that share their proxies,
    /// each knows its own, and those that take hosts from it: a thousand that knew of each other would be a million.
    pub fn beside<'a>(&'a self, listener: &'a Listener) -> impl Iterator<Item = &'a Listener> {
        let is_shared = FleetOwner::is_shared(&self.name);
        let concerns = move |other: &Listener| {
            !is_shared
                || other.id.owner == listener.id.owner
                || listener.hostname.covers(&other.hostname)
        };
        self.listeners.iter().filter(move |other| {
            listener.protocol == Protocol::Https
                && other.protocol == Protocol::Https
                && other.port == listener.port
                && other.id != listener.id
                && concerns(other)
        })
    }
}

impl TableKey {
    pub fn new(fleet: FleetName, port: u16, listener: Option<ListenerId>) -> Self {
        Self(Arc::new(TableParts { fleet, port, listener }))
    }

    /// `None`: the listener is not for requests.
    pub fn of(fleet: &FleetName, listener: &Listener) -> Option<Self> {
        let own = match listener.protocol {
            Protocol::Http => None,
            Protocol::Https => Some(listener.id.clone()),
            Protocol::Tcp => return None,
        };
        Some(Self::new(fleet.clone(), listener.port.number, own))
    }
}

impl Deref for TableKey {
    type Target = TableParts;

    fn deref(&self) -> &TableParts {
        &self.0
    }
}

fn is_envoy(dialect: &Dialect) -> bool {
    *dialect == Dialect::Envoy
}

fn is_default(http: &HttpSettings) -> bool {
    *http == HttpSettings::default()
}

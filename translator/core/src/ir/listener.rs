use super::{ClientValidation, FleetOwner, Hostname};
use crate::objects::proxy_config::HttpConfig;
use crate::objects::{ObjectKey, ObjectName};
use heliograph_snapshot::FleetName;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// What the proxies of a fleet are to serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    pub name: FleetName,
    /// Only those that can be served, in the order of their owners.
    pub listeners: Vec<Listener>,
    /// The Secret with the certificate that backends are shown where TLS is spoken to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ObjectName>,
    /// What is accepted of clients; the defaults where its parameters say nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub http: HttpConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub id: ListenerId,
    pub port: u16,
    pub protocol: Protocol,
    pub hostname: Hostname,
    /// The Secrets with the certificates of an HTTPS listener.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ObjectName>,
    /// What its clients have to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_validation: Option<ClientValidation>,
}

/// Names of listeners are their owners' choice, so two owners in a fleet may have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub owner: ObjectKey,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Http,
    Https,
}

/// Which route table a listener uses. Listeners for plain HTTP on a port share one, since Envoy tells them apart by
/// Host alone; a TLS listener is chosen by SNI and has its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    pub fleet: FleetName,
    pub port: u16,
    /// The listener, where it does not share.
    pub listener: Option<ListenerId>,
}

/// A listener that hosts of a table may belong to: one that uses the table, or, where a client chose the table by SNI, any
/// other that it could have chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) listener: ListenerId,
    pub(crate) hostname: Hostname,
    /// Whether it uses the table.
    pub(crate) is_here: bool,
}

impl Fleet {
    /// The other listeners that a client who asks for this one by SNI could have asked for. Of Gateways that share their proxies,
    /// each knows its own, and those that take hosts from it: a thousand that knew of each other would be a million.
    pub(crate) fn beside<'a>(
        &'a self,
        listener: &'a Listener,
    ) -> impl Iterator<Item = &'a Listener> {
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
    pub fn of(fleet: &FleetName, listener: &Listener) -> Self {
        Self {
            fleet: fleet.clone(),
            port: listener.port,
            listener: match listener.protocol {
                Protocol::Http => None,
                Protocol::Https => Some(listener.id.clone()),
            },
        }
    }
}

/// The name of the RouteConfiguration, within its fleet: `http/80`, `https/443/gateway/shop/web/secure`.
impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listener {
            None => write!(f, "http/{}", self.port),
            Some(listener) => write!(f, "https/{}/{listener}", self.port),
        }
    }
}

/// `gateway/shop/web/secure`.
impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.owner.kind.as_str().to_ascii_lowercase();
        write!(f, "{kind}/{}/{}", self.owner.name, self.name)
    }
}

impl Serialize for ListenerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_default(http: &HttpConfig) -> bool {
    *http == HttpConfig::default()
}

/// The name of an Envoy listener, within its fleet: whatever shares a port shares it.
pub fn listener_name(port: u16) -> String {
    format!("port/{port}")
}

/// The name of a secret resource.
pub fn secret_name(secret: &ObjectName) -> String {
    format!("secret/{secret}")
}

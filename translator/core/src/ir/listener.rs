use super::Hostname;
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

/// The name of an Envoy listener, within its fleet: whatever shares a port shares it.
pub fn listener_name(port: u16) -> String {
    format!("port/{port}")
}

/// The name of a secret resource.
pub fn secret_name(secret: &ObjectName) -> String {
    format!("secret/{secret}")
}

use super::Hostname;
use crate::objects::{Kind, ObjectName};
use heliograph_snapshot::FleetName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// A Gateway as its proxies are to serve it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    pub fleet: FleetName,
    /// In the order of the Gateway; only those that can be served.
    pub listeners: Vec<Listener>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub name: Arc<str>,
    pub port: u16,
    pub protocol: Protocol,
    pub hostname: Hostname,
    /// The Secrets with the certificates of an HTTPS listener.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ObjectName>,
    /// Which namespaces' routes may attach.
    pub namespaces: NamespaceRule,
    /// Which kinds of routes may attach.
    #[serde(serialize_with = "kind_names")]
    pub kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Http,
    Https,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NamespaceRule {
    All,
    Same,
    Selector(LabelSelector),
}

/// Which route table a listener uses. Listeners for plain HTTP on a port share one, since Envoy tells them apart by
/// Host alone; a TLS listener is chosen by SNI and has its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    pub fleet: FleetName,
    pub port: u16,
    /// The listener's name where it does not share.
    pub listener: Option<Arc<str>>,
}

impl Gateway {
    pub fn table_of(&self, listener: &Listener) -> TableKey {
        TableKey {
            fleet: self.fleet.clone(),
            port: listener.port,
            listener: match listener.protocol {
                Protocol::Http => None,
                Protocol::Https => Some(listener.name.clone()),
            },
        }
    }

    /// The listeners that share a table.
    pub fn listeners_of<'a>(&'a self, table: &'a TableKey) -> impl Iterator<Item = &'a Listener> {
        self.listeners.iter().filter(move |listener| self.table_of(listener) == *table)
    }
}

/// The name of the RouteConfiguration, within its fleet.
impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listener {
            None => write!(f, "http/{}", self.port),
            Some(listener) => write!(f, "https/{}/{listener}", self.port),
        }
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

fn kind_names<S: serde::Serializer>(kinds: &[Kind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.as_str()))
}

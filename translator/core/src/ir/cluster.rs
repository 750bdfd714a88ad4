use crate::objects::{ObjectKey, ObjectName};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// What a rule can send requests to: a port of an object, and how to speak to it. It names a cluster and its endpoints.
/// Two kinds of routes may speak differently to one port, and then there are two clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    pub object: ObjectKey,
    pub port: u16,
    pub protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Http1,
    Http2,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    pub cluster: Backend,
    /// Ordered by place.
    pub localities: Vec<Locality>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locality {
    #[serde(flatten)]
    pub place: Place,
    /// Ordered, without duplicates.
    pub endpoints: Vec<Endpoint>,
}

/// Where endpoints are. Region and subzone only where clients prefer by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subzone: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
    /// The other labels that clients prefer by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

impl Backend {
    /// The Service of a cluster with this name.
    pub(crate) fn service_of(cluster: &str) -> Option<ObjectName> {
        let mut parts = cluster.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("service"), Some(namespace), Some(name)) => {
                Some(ObjectName::new(namespace, name))
            }
            _ => None,
        }
    }
}

/// The cluster's name: `service/shop/cart/8080`, and `service/shop/cart/8080/http2` where that is spoken.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.object.kind.as_str().to_ascii_lowercase();
        write!(f, "{kind}/{}/{}", self.object.name, self.port)?;
        match self.protocol {
            Protocol::Http1 => Ok(()),
            Protocol::Http2 => f.write_str("/http2"),
        }
    }
}

impl Serialize for Backend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

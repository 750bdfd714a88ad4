use crate::objects::ObjectKey;
use serde::{Serialize, Serializer};
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
    /// Ordered by zone.
    pub localities: Vec<Locality>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locality {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    /// Ordered, without duplicates.
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
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

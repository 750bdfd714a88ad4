use crate::{SecretId, UpstreamId, UpstreamTls};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How an upstream is spoken to, beside the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    pub tls: Option<UpstreamTls>,
    /// The certificate that it is shown where TLS is spoken to it.
    pub client_certificate: Option<SecretId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    pub cluster: UpstreamId,
    /// Ordered by name.
    pub localities: Vec<Locality>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locality {
    #[serde(flatten)]
    pub name: LocalityName,
    /// Ordered, without duplicates.
    pub endpoints: Vec<Endpoint>,
}

/// The locality of endpoints. It has a region and a subzone only where clients prefer by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalityName {
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

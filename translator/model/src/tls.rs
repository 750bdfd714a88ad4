use crate::ObjectName;
use bytes::Bytes;
use serde::Serialize;
use std::fmt;

/// How the certificate of a client is verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientValidation {
    /// The ConfigMaps with the certificates of authorities; never empty.
    pub authorities: Vec<ObjectName>,
    /// Whether clients without a valid certificate are served all the same.
    pub insecure_fallback: bool,
}

/// How a backend is spoken to over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamTls {
    /// The name that is asked for.
    pub sni: String,
    /// The certificate must have one of these; never empty.
    pub names: Vec<SubjectName>,
    pub trust: Trust,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SubjectName {
    Dns(String),
    Uri(String),
}

/// The CAs that may have signed a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// The CAs that the proxy's system trusts.
    System,
    /// Certificates in PEM.
    Authorities(#[serde(skip)] Bytes),
}

/// A certificate with its key, in PEM. Its key is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    pub chain: Bytes,
    pub key: Bytes,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair")
    }
}

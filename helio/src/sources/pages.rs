//! The pages of admin ports, with the fields that commands read. Other fields are ignored: the programs may be newer
//! than this one.

use super::AdminConnection;
use anyhow::Context;
use heliograph_snapshot::Head;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A fleet in `/fleets` of a distributor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FleetRow {
    #[serde(deserialize_with = "head")]
    pub(crate) head: Option<Head>,
    pub(crate) loaded: bool,
    pub(crate) connected: u64,
    /// Of that head.
    pub(crate) acknowledged: u64,
    pub(crate) rejections: Vec<Rejection>,
    pub(crate) quarantine: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rejection {
    pub(crate) kind: String,
    pub(crate) detail: String,
    /// Names, with versions.
    pub(crate) resources: Vec<(String, Option<String>)>,
    pub(crate) count: u64,
}

/// `/acks` of a translator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Acks {
    pub(crate) fleets: BTreeMap<String, AckedFleet>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AckedFleet {
    /// The newest that was published.
    #[serde(deserialize_with = "head")]
    pub(crate) head: Option<Head>,
    /// Where an operator holds it, if one does.
    pub(crate) pinned: Option<PinRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinRow {
    pub(crate) head: String,
    /// In seconds since 1970.
    pub(crate) since: u64,
    pub(crate) by: String,
    pub(crate) reason: String,
}

/// A line of `/clients`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientRow {
    pub(crate) node: String,
    pub(crate) fleet: String,
    pub(crate) state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acknowledged: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<LastError>,
    pub(crate) identity: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    pub(crate) address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) envoy: Option<String>,
    pub(crate) protocol: String,
    pub(crate) since: String,
    /// Left out where a line must be short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) types: Vec<OfType>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastError {
    pub(crate) r#type: String,
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) resources: Vec<String>,
}

/// One type of resources on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfType {
    pub(crate) r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acknowledged: Option<String>,
    pub(crate) wildcard: bool,
    pub(crate) names: u64,
    pub(crate) outstanding: u64,
    pub(crate) rejected: u64,
    pub(crate) silent: bool,
}

/// The snapshot of a fleet, or of one of its proxies: all pages of `/snapshot`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SnapshotContent {
    pub(crate) head: String,
    /// How many resources there are of each type.
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) resources: Vec<ResourceRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ResourceRow {
    pub(crate) r#type: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) bytes: u64,
    /// The version that the proxy has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rejected: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<Value>,
    /// Its content is confidential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hidden: Option<bool>,
    /// Why its content cannot be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Deserialize)]
struct SnapshotPage {
    head: String,
    #[serde(default)]
    counts: BTreeMap<String, u64>,
    resources: Vec<ResourceRow>,
    #[serde(default)]
    next: Option<String>,
}

impl SnapshotContent {
    /// `query` selects the client and the content. If the snapshot is replaced meanwhile, the rest is read from the new
    /// one.
    pub(crate) async fn from(
        port: &mut AdminConnection,
        fleet: &str,
        query: &str,
    ) -> anyhow::Result<Self> {
        let fleet: Vec<_> = fleet.split('/').map(encoded).collect();
        let path = format!("/snapshot/{}?limit=1000{query}", fleet.join("/"));
        let mut resources = Vec::new();
        let mut page: SnapshotPage = port.json(&path).await?;
        loop {
            resources.append(&mut page.resources);
            match page.next {
                Some(next) => page = port.json(&format!("{path}&after={}", encoded(&next))).await?,
                None => return Ok(Self { head: page.head, counts: page.counts, resources }),
            }
        }
    }
}

/// A page as a value.
pub(crate) fn parsed<T: DeserializeOwned>(path: &str, text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).with_context(|| format!("{path} has unexpected content"))
}

/// A value as it stands in a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

fn head<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Head>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_one_value() {
        assert_eq!(encoded("edge-a_1.2~"), "edge-a_1.2~");
        assert_eq!(encoded("a&b=c/é?#\n"), "a%26b%3Dc%2F%C3%A9%3F%23%0A");
    }
}

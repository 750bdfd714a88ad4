use heliograph_distributor_protocol::{NodeFields, UserAgentVersion};
use heliograph_snapshot::{Internal, Snapshot};
use heliograph_views::{Client, EnvoyVersion, Proxy, REGION, SUBZONE, ZONE};
use std::collections::BTreeMap;

/// The claims of a client's node that rules may use. They count where the inventory does not have the client, and never
/// for access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeClaims {
    labels: BTreeMap<String, String>,
    version: Option<EnvoyVersion>,
}

/// The client of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientInfo {
    /// Its node id, under which the inventory has it.
    pub(crate) node: String,
    pub(crate) claims: NodeClaims,
    /// The namespace of its authenticated identity.
    pub(crate) namespace: Option<String>,
}

/// Labels are the client's to choose, so there are not many of them, nor long ones.
const LONGEST: usize = 256;

impl NodeClaims {
    pub(crate) fn of(node: &NodeFields<'_>) -> Self {
        let labels_given = node.labels.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
        let locality = [(REGION, node.region), (ZONE, node.zone), (SUBZONE, node.sub_zone)];
        let locality = locality.into_iter().filter(|(_, value)| !value.is_empty());
        let labels = labels_given
            .chain(locality)
            .filter(|(key, value)| key.len().max(value.len()) <= LONGEST);
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { labels, version: node.version.and_then(version) }
    }
}

impl ClientInfo {
    /// As the client says it.
    pub(crate) fn version(&self) -> Option<&EnvoyVersion> {
        self.claims.version.as_ref()
    }

    /// The attributes of a client that rules may use: those of the inventory, if it has the client. And whether it has
    /// it.
    pub(super) fn client(&self, snapshot: &Snapshot) -> (Client, bool) {
        let entry = snapshot.internal(Internal::Directory).get(&self.node);
        let listed = entry.and_then(|entry| Proxy::read(entry));
        let is_listed = listed.is_some();
        let claimed = || Proxy { labels: self.claims.labels.clone(), ..Proxy::default() };
        let client = Client {
            identity: self.namespace.clone(),
            proxy: listed.unwrap_or_else(claimed),
            version: self.claims.version.clone(),
        };
        (client, is_listed)
    }
}

fn version(version: UserAgentVersion<'_>) -> Option<EnvoyVersion> {
    match version {
        UserAgentVersion::Text(text) => text.parse().ok(),
        UserAgentVersion::Build(parts) => Some(EnvoyVersion { parts: parts?.to_vec() }),
    }
}

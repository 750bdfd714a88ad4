use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::config::core::v3::node::UserAgentVersionType;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_snapshot::{Internal, Snapshot};
use heliograph_views::{Client, EnvoyVersion, Proxy, REGION, SUBZONE, ZONE};
use std::collections::BTreeMap;

/// What a client says of itself, as far as rules may look at it. It is believed where nothing better is known, and never
/// where access is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    labels: BTreeMap<String, String>,
    version: Option<EnvoyVersion>,
}

/// Who a stream's client is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    /// Its node id, under which the directory has it.
    pub(crate) node: String,
    pub(crate) claims: Claims,
    /// The namespace of its authenticated identity.
    pub(crate) namespace: Option<String>,
}

/// Where in its node's metadata a client says its labels.
const CLAIMED: &str = "labels";
/// Labels are the client's to choose, so there are not many of them, nor long ones.
const MOST_LABELS: usize = 32;
const LONGEST: usize = 256;

impl Claims {
    pub(crate) fn of(node: &Node) -> Self {
        let mut labels = BTreeMap::new();
        let metadata = node.metadata.as_ref().and_then(|metadata| metadata.fields.get(CLAIMED));
        if let Some(Kind::StructValue(claimed)) = metadata.and_then(|value| value.kind.as_ref()) {
            for (key, value) in claimed.fields.iter().take(MOST_LABELS) {
                match &value.kind {
                    Some(Kind::StringValue(value)) if key.len().max(value.len()) <= LONGEST => {
                        labels.insert(key.clone(), value.clone());
                    }
                    _ => {}
                }
            }
        }
        if let Some(locality) = &node.locality {
            let place =
                [(REGION, &locality.region), (ZONE, &locality.zone), (SUBZONE, &locality.sub_zone)];
            for (key, value) in place.into_iter().filter(|(_, value)| !value.is_empty()) {
                if value.len() <= LONGEST {
                    labels.insert(key.to_owned(), value.clone());
                }
            }
        }
        Self { labels, version: version(node) }
    }
}

impl Who {
    /// As the client says it.
    pub(crate) fn version(&self) -> Option<&EnvoyVersion> {
        self.claims.version.as_ref()
    }

    /// What rules may look at: where the directory knows the client, what the directory says. And whether it does.
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

fn version(node: &Node) -> Option<EnvoyVersion> {
    match node.user_agent_version_type.as_ref()? {
        UserAgentVersionType::UserAgentVersion(text) => text.parse().ok(),
        UserAgentVersionType::UserAgentBuildVersion(build) => {
            let version = build.version.as_ref()?;
            let parts = [version.major_number, version.minor_number, version.patch];
            Some(EnvoyVersion { parts: parts.to_vec() })
        }
    }
}

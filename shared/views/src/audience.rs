use crate::message::{Audience, Operator, Requirement};
use crate::version::EnvoyVersion;
use heliograph_snapshot::Resource;
use prost::Message;
use std::collections::BTreeMap;

/// The inventory's entry of a proxy, under the proxy's node id.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Proxy {
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// With the labels of its place: region, zone.
    #[prost(btree_map = "string, string", tag = "2")]
    pub labels: BTreeMap<String, String>,
}

/// A client as rules may look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The namespace of its authenticated identity. Nothing else decides over access.
    pub identity: Option<String>,
    /// As the inventory has it, or as the client reports it where the inventory does not have it.
    pub proxy: Proxy,
    pub version: Option<EnvoyVersion>,
}

impl Proxy {
    pub fn resource(&self, node: &str) -> Resource {
        Resource::new(node, self.encode_to_vec().into())
    }

    /// `None`: not an entry of the inventory.
    pub fn read(resource: &Resource) -> Option<Self> {
        Self::decode(resource.body.clone()).ok()
    }
}

impl Audience {
    pub fn includes(&self, client: &Client) -> bool {
        self.includes_namespace(client)
            && self.labels.iter().all(|requirement| requirement.holds(&client.proxy.labels))
            && within(client.version.as_ref(), self.at_least.as_ref(), EnvoyVersion::is_at_least)
            && within(client.version.as_ref(), self.at_most.as_ref(), EnvoyVersion::is_at_most)
    }

    fn includes_namespace(&self, client: &Client) -> bool {
        if self.namespaces.is_empty() {
            // An audience without clients: access is by namespace, and there is none.
            return !self.is_access;
        }
        let known = match self.is_access {
            true => client.identity.as_ref(),
            false => client.identity.as_ref().or(Some(&client.proxy.namespace)),
        };
        known.is_some_and(|namespace| self.namespaces.contains(namespace))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_one_of = || value.is_some_and(|value| self.values.contains(value));
        match self.operator() {
            Operator::In => is_one_of(),
            // As Kubernetes has it: also where there is no such label.
            Operator::NotIn => !is_one_of(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown => false,
        }
    }
}

fn within(
    version: Option<&EnvoyVersion>,
    bound: Option<&EnvoyVersion>,
    holds: fn(&EnvoyVersion, &EnvoyVersion) -> bool,
) -> bool {
    bound.is_none_or(|bound| version.is_some_and(|version| holds(version, bound)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(namespace: &str, labels: &[(&str, &str)]) -> Client {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let proxy = Proxy { namespace: namespace.to_owned(), labels: labels.collect() };
        Client { proxy, ..Client::default() }
    }

    fn requirement(operator: Operator, values: &[&str]) -> Audience {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let requirement = Requirement { key: "tier".to_owned(), operator: operator.into(), values };
        Audience { labels: vec![requirement], ..Audience::default() }
    }

    #[test]
    fn labels_are_asked_as_kubernetes_asks() {
        let (edge, none) = (client("a", &[("tier", "edge")]), client("a", &[]));
        let asked = |audience: &Audience| [audience.includes(&edge), audience.includes(&none)];
        assert_eq!(asked(&requirement(Operator::In, &["edge", "core"])), [true, false]);
        assert_eq!(asked(&requirement(Operator::NotIn, &["edge"])), [false, true]);
        assert_eq!(asked(&requirement(Operator::Exists, &[])), [true, false]);
        assert_eq!(asked(&requirement(Operator::DoesNotExist, &[])), [false, true]);
        assert_eq!(asked(&requirement(Operator::Unknown, &[])), [false, false]);
    }

    #[test]
    fn access_follows_the_identity_and_nothing_that_is_claimed() {
        let namespaces = vec!["shop".to_owned()];
        let chosen = Audience { namespaces: namespaces.clone(), ..Audience::default() };
        let access = Audience { namespaces, is_access: true, ..Audience::default() };
        let claimed = client("shop", &[]);
        let proven = Client { identity: Some("shop".to_owned()), ..client("other", &[]) };
        let other = Client { identity: Some("other".to_owned()), ..client("shop", &[]) };
        assert!(chosen.includes(&claimed) && !access.includes(&claimed));
        assert!(chosen.includes(&proven) && access.includes(&proven));
        assert!(!chosen.includes(&other) && !access.includes(&other));
        assert!(!Audience { is_access: true, ..Audience::default() }.includes(&proven));
    }

    #[test]
    fn who_does_not_say_its_version_is_within_no_bound() {
        let old = Audience { at_most: "1.30".parse().ok(), ..Audience::default() };
        assert!(!old.includes(&client("a", &[])));
        let said = |version: &str| Client { version: version.parse().ok(), ..client("a", &[]) };
        assert!(old.includes(&said("1.30.4")) && !old.includes(&said("1.31.0")));
    }
}

//! Secrets and ConfigMaps: the objects that name them, and the keys that are read.

use super::gateway::{self, Gateway, ListenerSet};
use super::{Kind, Object, ObjectKey, ObjectName, core};
use crate::limits::{Limits, mebibytes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;
use zeroize::Zeroize;

/// The most bytes of a Secret that may be a certificate chain and its key, together. A chain of ten certificates and an
/// RSA key have less than 32 KiB.
pub(crate) const SECRET_BYTES: usize = 64 << 10;

/// The most bytes of certificates of authorities that a ConfigMap may have. All that browsers trust have less.
pub(crate) const CONFIG_MAP_BYTES: usize = 256 << 10;

/// What an object has in place of its content, where that is beyond the budget of its namespace. The API has no say in
/// it: of metadata that the API serves only the name is kept.
const WITHHELD: &str = "heliograph.dev/withheld";

pub(crate) const CHAIN: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const CA_KEY: &str = "ca.crt";

impl Kind {
    /// Whether objects of this kind say nothing by themselves: they are read where another object names them.
    pub fn is_read_by_reference(self) -> bool {
        matches!(self, Self::Secret | Self::ConfigMap)
    }

    /// Which entries of `data` are read of objects of this kind, where not all fields are.
    pub fn read_entries(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Secret => Some(&[CHAIN, KEY]),
            Self::ConfigMap => Some(&[CA_KEY]),
            _ => None,
        }
    }

    /// Whether objects of this kind name others that are read by reference.
    pub fn may_name_content(self) -> bool {
        matches!(self, Self::Gateway | Self::ListenerSet | Self::BackendTLSPolicy)
    }
}

impl Object {
    /// The Secrets and ConfigMaps that this object names, whether they exist and whether it may use them or not. What is
    /// computed from this object reads no others.
    pub fn named_content(&self) -> BTreeSet<ObjectKey> {
        let home = self.metadata().namespace.as_deref().unwrap_or_default();
        match self {
            Self::Gateway(gateway) => of_gateway(gateway, home),
            Self::ListenerSet(set) => of_set(set, home),
            Self::BackendTLSPolicy(policy) => {
                let spec = policy.spec.iter();
                let references =
                    spec.flat_map(|spec| spec.validation.ca_certificate_refs.iter().flatten());
                let named = references.map(|it| ca_reference(&it.group, &it.kind, home, &it.name));
                named.flatten().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Stands for an object of a kind that is read by reference whose content is beyond the budget of its namespace.
    pub fn withheld(key: &ObjectKey) -> Option<Self> {
        let metadata = ObjectMeta {
            name: Some((*key.name.name).to_owned()),
            namespace: Some((*key.name.namespace).to_owned()),
            annotations: Some([(WITHHELD.to_owned(), String::new())].into()),
            ..ObjectMeta::default()
        };
        match key.kind {
            Kind::Secret => {
                let mut secret = core::Secret::default();
                secret.metadata = metadata;
                Some(Self::Secret(Arc::new(secret)))
            }
            Kind::ConfigMap => {
                let map = core::ConfigMap { metadata, ..core::ConfigMap::default() };
                Some(Self::ConfigMap(Arc::new(map)))
            }
            _ => None,
        }
    }

    pub fn is_withheld(&self) -> bool {
        is_withheld(self.metadata())
    }

    /// How many bytes of content this object keeps in memory, if it is of a kind that is read by reference.
    pub fn content_bytes(&self) -> u64 {
        let bytes: usize = match self {
            Self::Secret(secret) => {
                secret.data.iter().flat_map(|data| data.values()).map(|it| it.0.len()).sum()
            }
            Self::ConfigMap(map) => {
                map.data.iter().flat_map(|data| data.values()).map(String::len).sum()
            }
            _ => 0,
        };
        bytes as u64
    }

    /// Cuts what is too large to be used, so that it takes little memory. It is still too large then.
    pub fn cut_content(&mut self) {
        match self {
            Self::Secret(secret) => {
                for value in
                    Arc::make_mut(secret).data.iter_mut().flat_map(|data| data.values_mut())
                {
                    cut(&mut value.0, SECRET_BYTES + 1);
                }
            }
            Self::ConfigMap(map) => {
                for text in Arc::make_mut(map).data.iter_mut().flat_map(|data| data.values_mut()) {
                    if text.len() > CONFIG_MAP_BYTES {
                        // At a character's end, and above the limit.
                        let end = text.ceil_char_boundary(CONFIG_MAP_BYTES + 1);
                        text.truncate(end);
                        text.shrink_to_fit();
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether the content of this Secret or ConfigMap is beyond the budget of its namespace.
pub(crate) fn is_withheld(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(WITHHELD))
}

/// What is said where such an object is named.
pub(crate) fn beyond_budget(name: &ObjectName, limits: &Limits) -> String {
    format!(
        "the named Secrets and ConfigMaps of namespace {} have more than {} together, and this is one of the youngest",
        name.namespace,
        mebibytes(limits.content_bytes),
    )
}

fn cut(bytes: &mut Vec<u8>, length: usize) {
    if let Some(rest) = bytes.get_mut(length..) {
        rest.zeroize();
        bytes.truncate(length);
        bytes.shrink_to_fit();
    }
}

fn of_gateway(gateway: &Gateway, home: &str) -> BTreeSet<ObjectKey> {
    let listeners = gateway.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let certificates = listeners.flat_map(|tls| tls.certificate_refs.iter().flatten());
    let mut named: BTreeSet<ObjectKey> = certificates
        .filter_map(|gateway::CertificateRef { group, kind, name, namespace }| {
            certificate(
                group.as_deref(),
                kind.as_deref(),
                namespace.as_deref().unwrap_or(home),
                name,
            )
        })
        .collect();
    let Some(tls) = &gateway.spec.tls else { return named };
    if let Some(frontend) = &tls.frontend {
        let default = frontend.default.validation.iter();
        named.extend(default.flat_map(|it| &it.ca_certificate_refs).filter_map(|it| {
            ca_reference(&it.group, &it.kind, it.namespace.as_deref().unwrap_or(home), &it.name)
        }));
        let ports = frontend.per_port.iter().flatten();
        let ports = ports.filter_map(|port| port.tls.validation.as_ref());
        named.extend(ports.flat_map(|it| &it.ca_certificate_refs).filter_map(|it| {
            ca_reference(&it.group, &it.kind, it.namespace.as_deref().unwrap_or(home), &it.name)
        }));
    }
    let of_backends = tls.backend.as_ref().and_then(|tls| tls.client_certificate_ref.as_ref());
    named.extend(of_backends.and_then(
        |gateway::ClientCertificateRef { group, kind, name, namespace }| {
            certificate(
                group.as_deref(),
                kind.as_deref(),
                namespace.as_deref().unwrap_or(home),
                name,
            )
        },
    ));
    named
}

fn of_set(set: &ListenerSet, home: &str) -> BTreeSet<ObjectKey> {
    let listeners = set.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let certificates = listeners.flat_map(|tls| tls.certificate_refs.iter().flatten());
    let named = certificates.map(|it| {
        let namespace = it.namespace.as_deref().unwrap_or(home);
        certificate(it.group.as_deref(), it.kind.as_deref(), namespace, &it.name)
    });
    named.flatten().collect()
}

fn certificate(
    group: Option<&str>,
    kind: Option<&str>,
    namespace: &str,
    name: &str,
) -> Option<ObjectKey> {
    let kind = kind.unwrap_or(Kind::Secret.as_str());
    let kind = Kind::find(group.unwrap_or_default(), kind).filter(|kind| *kind == Kind::Secret)?;
    Some(ObjectName::new(namespace, name).of(kind))
}

fn ca_reference(group: &str, kind: &str, namespace: &str, name: &str) -> Option<ObjectKey> {
    let kind = Kind::find(group, kind).filter(|kind| *kind == Kind::ConfigMap)?;
    Some(ObjectName::new(namespace, name).of(kind))
}

/// Whether a certificate chain and its key are of a size that is served.
pub(crate) fn is_small(chain: &[u8], key: &[u8]) -> bool {
    chain.len().saturating_add(key.len()) <= SECRET_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn named(kind: Kind, spec: Value) -> Vec<String> {
        let metadata = ObjectMeta {
            name: Some("one".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        let object = kind.read(metadata, &mut json!({ "spec": spec })).unwrap();
        object.named_content().iter().map(ToString::to_string).collect()
    }

    fn listener(certificates: Value) -> Value {
        let tls = json!({ "certificateRefs": certificates });
        json!({ "name": "a", "port": 443, "protocol": "HTTPS", "tls": tls })
    }

    #[test]
    fn everything_that_an_object_may_name_is_found() {
        let own = json!([{ "name": "own" }, { "name": "far", "namespace": "other" }]);
        let odd = json!([{ "name": "map", "kind": "ConfigMap" }, { "name": "key", "group": "vault.dev" }]);
        let ca = |name: &str| {
            json!({ "caCertificateRefs": [
            { "group": "", "kind": "ConfigMap", "name": name },
            { "group": "", "kind": "Secret", "name": "no-authority" },
        ] })
        };
        let gateway = json!({
            "gatewayClassName": "heliograph",
            "listeners": [listener(own.clone()), listener(odd)],
            "tls": {
                "frontend": {
                    "default": { "validation": ca("default") },
                    "perPort": [{ "port": 443, "tls": { "validation": ca("port") } }],
                },
                "backend": { "clientCertificateRef": { "name": "client" } },
            },
        });
        let expected = [
            "Secret other/far",
            "Secret shop/client",
            "Secret shop/own",
            "ConfigMap shop/default",
            "ConfigMap shop/port",
        ];
        assert_eq!(named(Kind::Gateway, gateway), expected);
        let set = json!({ "parentRef": { "name": "edge" }, "listeners": [listener(own)] });
        assert_eq!(named(Kind::ListenerSet, set), ["Secret other/far", "Secret shop/own"]);
        let mut validation = ca("backend");
        validation["hostname"] = json!("shop.example");
        let policy = json!({ "targetRefs": [], "validation": validation });
        assert_eq!(named(Kind::BackendTLSPolicy, policy), ["ConfigMap shop/backend"]);
        let route = json!({ "parentRefs": [{ "name": "edge" }] });
        assert_eq!(named(Kind::HTTPRoute, route), [""; 0]);
    }

    #[test]
    fn what_is_too_large_is_cut_and_still_too_large() {
        let data = |size: usize| BTreeMap::from([(CHAIN.to_owned(), ByteString(vec![b'x'; size]))]);
        let cut = |size: usize| {
            let mut secret = core::Secret::default();
            secret.data = Some(data(size));
            let mut object = Object::Secret(Arc::new(secret));
            object.cut_content();
            let Object::Secret(secret) = object else { unreachable!() };
            secret.data.as_ref().unwrap()[CHAIN].0.len()
        };
        assert_eq!([10, SECRET_BYTES, 1 << 20].map(cut), [10, SECRET_BYTES, SECRET_BYTES + 1]);

        let text = "é".repeat(CONFIG_MAP_BYTES);
        let data = BTreeMap::from([(CA_KEY.to_owned(), text)]);
        let map = core::ConfigMap { data: Some(data), ..core::ConfigMap::default() };
        let mut object = Object::ConfigMap(Arc::new(map));
        object.cut_content();
        let Object::ConfigMap(map) = object else { unreachable!() };
        let length = map.data.as_ref().unwrap()[CA_KEY].len();
        assert!((CONFIG_MAP_BYTES + 1..CONFIG_MAP_BYTES + 8).contains(&length), "{length}");
    }
}

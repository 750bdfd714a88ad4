use heliograph_gateway::infra::names;
use heliograph_gateway::objects::Kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{ApiResource, DynamicObject};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Any object as the API serves it, without what is of no use here.
///
/// Decoding it cannot fail because of what an object says, so one that is not understood is its own problem and not the
/// watch's. It is what kube's `DeserializeGuard` is for; that one copies each object twice, and has no place for its status.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) metadata: ObjectMeta,
    pub(super) status: Value,
    /// All other fields, or why the metadata could not be decoded.
    pub(super) fields: Result<Map<String, Value>, String>,
}

impl Served {
    /// Drops the entries that the translation does not read in objects of this kind. ConfigMaps and Secrets contain
    /// files of all sorts; only certificates and their keys are read here.
    pub(super) fn forget_unused(&mut self, kind: Kind) {
        if let (Some(read), Ok(fields)) = (kind.read_entries(), &mut self.fields) {
            fields.remove("binaryData");
            if let Some(Value::Object(data)) = fields.get_mut("data") {
                data.retain(|name, _| read.contains(&name.as_str()));
            }
        }
    }
}

/// An object as the API serves it in a metadata request.
#[derive(Clone, Debug)]
pub(super) struct ServedMetadata(ObjectMeta);

impl ServedMetadata {
    /// As an object that has nothing else.
    pub(super) fn into_served(self) -> Served {
        Served { metadata: self.0, status: Value::Null, fields: Ok(Map::new()) }
    }
}

/// Its name, its version and its age; and its labels, if they say that it runs for a Gateway. Other labels, and
/// annotations, of objects that no other names are not kept.
impl<'de> Deserialize<'de> for ServedMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct PartialObject {
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            resource_version: Option<String>,
            creation_timestamp: Option<Time>,
            labels: Option<BTreeMap<String, String>>,
        }
        let Metadata { name, namespace, resource_version, creation_timestamp, labels } =
            PartialObject::deserialize(deserializer)?.metadata;
        let labels = labels.filter(names::selects);
        let rest = ObjectMeta::default();
        Ok(Self(ObjectMeta {
            name,
            namespace,
            resource_version,
            creation_timestamp,
            labels,
            ..rest
        }))
    }
}

/// The annotation of `kubectl apply`, which contains the whole object again.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl<'de> Deserialize<'de> for Served {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let mut metadata = fields.remove("metadata").unwrap_or_default();
        // Often half of an object. It says who wrote which field.
        metadata.as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        annotations.and_then(|annotations| annotations.remove(LAST_APPLIED));
        let status = fields.remove("status").unwrap_or_default();
        Ok(match ObjectMeta::deserialize(&metadata) {
            Ok(metadata) => Self { metadata, status, fields: Ok(fields) },
            Err(error) => {
                let text = |field: &str| metadata[field].as_str().map(str::to_owned);
                let metadata = ObjectMeta {
                    name: text("name"),
                    namespace: text("namespace"),
                    resource_version: text("resourceVersion"),
                    ..ObjectMeta::default()
                };
                Self { metadata, status, fields: Err(format!("metadata: {error}")) }
            }
        })
    }
}

macro_rules! is_any_resource {
    ($type:ty, |$object:ident| $metadata:expr, by_metadata: $by_metadata:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ApiResource;
            type Scope = <DynamicObject as kube::Resource>::Scope;

            fn metadata_api() -> bool {
                $by_metadata
            }

            fn kind(resource: &ApiResource) -> Cow<'_, str> {
                DynamicObject::kind(resource)
            }

            fn group(resource: &ApiResource) -> Cow<'_, str> {
                DynamicObject::group(resource)
            }

            fn version(resource: &ApiResource) -> Cow<'_, str> {
                DynamicObject::version(resource)
            }

            fn plural(resource: &ApiResource) -> Cow<'_, str> {
                DynamicObject::plural(resource)
            }

            fn meta(&self) -> &ObjectMeta {
                let $object = self;
                &$metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                let $object = self;
                &mut $metadata
            }
        }
    };
}

is_any_resource!(Served, |object| object.metadata, by_metadata: false);
is_any_resource!(ServedMetadata, |object| object.0, by_metadata: true);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_of_no_use_is_dropped() {
        let served: Served = serde_json::from_value(json!({
            "kind": "HTTPRoute",
            "metadata": {
                "name": "cart", "managedFields": [{}],
                "annotations": { LAST_APPLIED: "{}", "mine": "1" },
            },
            "spec": {}, "status": { "parents": [] },
        }))
        .unwrap();
        assert_eq!(served.metadata.managed_fields, None);
        assert_eq!(served.metadata.annotations.unwrap().len(), 1);
        assert_eq!(served.status, json!({ "parents": [] }));
        assert_eq!(served.fields.unwrap().keys().collect::<Vec<_>>(), ["kind", "spec"]);
    }

    #[test]
    fn of_a_config_map_the_certificates_of_authorities_are_kept() {
        let map = json!({
            "metadata": { "name": "files" },
            "data": { "ca.crt": "PEM", "dashboard.json": "{}" }, "binaryData": { "logo": "" },
        });
        let mut served: Served = serde_json::from_value(map).unwrap();
        served.forget_unused(Kind::Service);
        assert_eq!(served.fields.as_ref().unwrap().len(), 2);
        served.forget_unused(Kind::ConfigMap);
        assert_eq!(json!(served.fields.unwrap()), json!({ "data": { "ca.crt": "PEM" } }));
    }

    #[test]
    fn of_a_secret_the_certificate_and_its_key_are_kept() {
        let data = json!({ "tls.crt": "Y3J0", "tls.key": "a2V5", "keystore.jks": "bXVjaA==" });
        let secret = json!({ "metadata": { "name": "pair" }, "data": data });
        let mut served: Served = serde_json::from_value(secret).unwrap();
        served.forget_unused(Kind::Secret);
        let kept = json!({ "data": { "tls.crt": "Y3J0", "tls.key": "a2V5" } });
        assert_eq!(json!(served.fields.unwrap()), kept);
    }

    #[test]
    fn of_metadata_the_name_the_version_and_the_age_are_kept() {
        let metadata = json!({
            "name": "pair", "namespace": "shop", "resourceVersion": "7", "uid": "u",
            "annotations": { LAST_APPLIED: "{}" }, "labels": { "a": "b" }, "generation": "one",
            "creationTimestamp": "2026-01-02T03:04:05Z",
        });
        let answer = json!({ "kind": "PartialObjectMetadata", "metadata": metadata });
        let served = serde_json::from_value::<ServedMetadata>(answer).unwrap().into_served();
        let kept = ObjectMeta {
            name: Some("pair".to_owned()),
            namespace: Some("shop".to_owned()),
            resource_version: Some("7".to_owned()),
            creation_timestamp: serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap(),
            ..ObjectMeta::default()
        };
        assert_eq!((served.metadata, served.fields), (kept, Ok(Map::new())));
    }

    #[test]
    fn of_metadata_the_labels_of_what_runs_for_a_gateway_are_kept() {
        let labels = json!({
            "app.kubernetes.io/managed-by": "heliograph", "heliograph.dev/fleet-namespace": "shop",
        });
        let answer = json!({ "metadata": { "name": "web", "labels": labels } });
        let served = serde_json::from_value::<ServedMetadata>(answer).unwrap().into_served();
        assert_eq!(json!(served.metadata.labels), labels);
    }

    #[test]
    fn metadata_that_is_wrong_still_names_the_object() {
        let metadata = json!({ "name": "cart", "namespace": "shop", "generation": "one" });
        let served: Served = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        assert_eq!(served.metadata.name.as_deref(), Some("cart"));
        assert_eq!(served.metadata.namespace.as_deref(), Some("shop"));
        assert!(served.fields.unwrap_err().starts_with("metadata: "));
        let bare: Served = serde_json::from_value(json!({})).unwrap();
        assert_eq!(bare.metadata.name, None);
    }
}

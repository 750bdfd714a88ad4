//! Objects as an API server serves them.

use super::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why an object that the API serves is not understood: its CRD knows more than this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

impl Unreadable {
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Fields that the type does not have are ignored, other than in manifests: they are those of a newer version of the API,
/// whose server has refused what is misspelt.
pub(super) fn decode<T: DeserializeOwned>(kind: Kind, value: &mut Value) -> Result<T, Unreadable> {
    if let Value::Object(fields) = value {
        fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    }
    let value = &*value;
    // Following the path costs, so it is done for those that fail.
    T::deserialize(value).or_else(|_| {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path();
            Unreadable(match kind {
                // The words of the error show the value.
                Kind::Secret => format!("{path}: it is not of the form that a Secret has"),
                _ => format!("{path}: {}", error.inner()),
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    fn read(kind: Kind, mut value: Value) -> Result<String, String> {
        let metadata = ObjectMeta {
            name: Some("one".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        let object = kind.read(metadata, &mut value).map_err(|error| error.to_string())?;
        Ok(object.key().to_string())
    }

    #[test]
    fn an_object_is_its_metadata_and_the_rest() {
        let route = json!({ "spec": { "rules": [], "aNewField": 1 } });
        assert_eq!(read(Kind::HTTPRoute, route), Ok("HTTPRoute shop/one".to_owned()));
        assert_eq!(read(Kind::Service, json!({})), Ok("Service shop/one".to_owned()));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let filters = json!([{ "type": "Sideways" }]);
        let route = json!({ "spec": { "rules": [{ "filters": filters }] } });
        let reason = read(Kind::HTTPRoute, route).unwrap_err();
        assert!(reason.starts_with("spec.rules[0].filters[0].type: "), "{reason}");
        assert!(reason.contains("Sideways"), "{reason}");
    }

    #[test]
    fn nothing_of_a_secret_is_told() {
        let reason =
            read(Kind::Secret, json!({ "data": { "tls.key": "hush, hush" } })).unwrap_err();
        assert!(reason.contains("tls.key") && !reason.contains("hush"), "{reason}");
    }

    /// A new kind has a version here, or it would not be watched.
    #[test]
    fn every_kind_but_the_directory_of_proxies_is_served() {
        let unserved = Kind::ALL.iter().filter(|kind| kind.api_version().is_none());
        assert_eq!(unserved.collect::<Vec<_>>(), [&Kind::Proxy]);
    }
}

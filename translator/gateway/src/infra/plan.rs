use super::names;
use super::render::{Part, Rendered};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The existing objects of a Gateway that have our labels.
pub type Live = BTreeMap<(Part, String), Value>;

/// One call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Apply(Rendered),
    /// Only the one that was seen: what has its name since is another.
    Delete {
        part: Part,
        namespace: String,
        name: String,
        uid: String,
    },
}

impl Step {
    pub fn part(&self) -> Part {
        match self {
            Self::Apply(rendered) => rendered.part,
            Self::Delete { part, .. } => *part,
        }
    }
}

/// The steps from the existing objects to the wanted ones. An object that has all wanted fields is not changed, also if
/// others have added fields.
pub fn plan(namespace: &str, wanted: Vec<Rendered>, live: &Live) -> Vec<Step> {
    let keys: Vec<(Part, String)> =
        wanted.iter().map(|wanted| (wanted.part, wanted.name.clone())).collect();
    let differs = |wanted: &Rendered| {
        let there = live.get(&(wanted.part, wanted.name.clone()));
        !there.is_some_and(|there| is_within(&wanted.object, there))
    };
    let applied = wanted.into_iter().filter(differs).map(Step::Apply);
    let left_over = live.iter().filter(|(key, _)| !keys.contains(key));
    let deleted = left_over.map(|((part, name), there)| Step::Delete {
        part: *part,
        namespace: namespace.to_owned(),
        name: name.clone(),
        uid: there["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
    });
    applied.chain(deleted).collect()
}

/// Why an existing object must not be replaced, if so: another program or another Gateway owns it.
pub fn obstacle(wanted: &Rendered, there: &ObjectMeta) -> Option<String> {
    let (managed_by, us) = names::MANAGED_BY;
    let label = there.labels.as_ref().and_then(|labels| labels.get(managed_by));
    if label.is_none_or(|found| found != us) {
        return Some(format!(
            "there is one without the label {managed_by}={us}: delete or rename it"
        ));
    }
    // An object without a valid owner has lost the annotation, and gets it again.
    let annotated_owner = |annotations: &BTreeMap<String, String>| {
        let owner = names::annotated_owner(&wanted.namespace, annotations)?;
        (wanted.part.name_for(&owner) == wanted.name).then_some(owner)
    };
    let annotations = &wanted.object["metadata"]["annotations"];
    let owner = BTreeMap::deserialize(annotations).ok().as_ref().and_then(annotated_owner);
    let other = there.annotations.as_ref().and_then(annotated_owner);
    let other = other.filter(|other| owner.as_ref() != Some(other));
    other.as_ref().map(names::name_conflict)
}

/// Whether everything of `wanted` is in `there`, which may have more fields: the API server and other programs add some.
/// Lists must have the same length, so that an added port or container is a difference.
fn is_within(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => wanted
            .iter()
            .all(|(name, wanted)| there.get(name).is_some_and(|there| is_within(wanted, there))),
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len()
                && wanted.iter().zip(there).all(|(wanted, there)| is_within(wanted, there))
        }
        (wanted, there) => wanted == there,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ObjectName;
    use heliograph_model::FleetOwner;
    use serde_json::json;

    fn service(object: Value) -> Rendered {
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        Rendered { part: Part::Service, namespace, name, object }
    }

    fn live(object: Value) -> Live {
        Live::from([((Part::Service, "web".to_owned()), object)])
    }

    #[test]
    fn only_what_differs_is_applied() {
        let wanted = service(json!({ "spec": { "ports": [{ "port": 80 }] } }));
        let defaulted = json!({ "spec": { "ports": [{ "port": 80, "nodePort": 30000 }], "type": "ClusterIP" } });
        assert_eq!(plan("shop", vec![wanted.clone()], &live(defaulted)), []);
        for drifted in [
            json!({ "spec": { "ports": [{ "port": 81 }] } }),
            json!({ "spec": { "ports": [{ "port": 80 }, { "port": 81 }] } }),
            json!({ "spec": {} }),
        ] {
            let steps = plan("shop", vec![wanted.clone()], &live(drifted));
            assert_eq!(steps, [Step::Apply(wanted.clone())]);
        }
    }

    #[test]
    fn what_is_somebody_elses_is_not_replaced() {
        let name = names::service(&FleetOwner::Gateway(ObjectName::new("shop", "a.b"))).name;
        let object = json!({ "metadata": { "annotations": { "heliograph.dev/gateway": "a.b" } } });
        let wanted = Rendered { name: name.to_string(), ..service(object) };
        let why = |there: Value| obstacle(&wanted, &serde_json::from_value(there).unwrap());
        let theirs = why(json!({ "labels": { "app": "web" } })).unwrap();
        assert!(theirs.contains("without the label"), "{theirs}");

        let labels = json!({ "app.kubernetes.io/managed-by": "heliograph" });
        let with_annotations = |by: Value| why(json!({ "labels": labels, "annotations": by }));
        let other = name.strip_prefix("heliograph-").unwrap();
        let others = with_annotations(json!({ "heliograph.dev/gateway": other })).unwrap();
        assert!(others.starts_with(&format!("Gateway {other} has objects")), "{others}");
        // Our own fields, and fields that were changed, which are restored.
        assert_eq!(with_annotations(json!({ "heliograph.dev/gateway": "a.b", "more": "1" })), None);
        assert_eq!(with_annotations(json!({ "heliograph.dev/gateway": "web" })), None);
        assert_eq!(with_annotations(json!({ "heliograph.dev/gateway-class": "a.b" })), None);
        assert_eq!(why(json!({ "labels": labels })), None);
    }

    #[test]
    fn what_is_not_wanted_any_more_goes() {
        let steps = plan("shop", vec![], &live(json!({ "metadata": { "uid": "1" } })));
        let (namespace, name, uid) = ("shop".to_owned(), "web".to_owned(), "1".to_owned());
        assert_eq!(steps, [Step::Delete { part: Part::Service, namespace, name, uid }]);
    }
}

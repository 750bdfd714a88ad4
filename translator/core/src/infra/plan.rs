use super::render::{Part, Rendered};
use serde_json::Value;
use std::collections::BTreeMap;

/// What there is for a Gateway, of what has our labels.
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

/// What to do so that there is what is wanted, and no more. What is as it should be is left alone, also where others
/// have added to it.
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

/// Whether everything of `wanted` is in `there`, which may have more: what the API server fills in, and what others
/// add to objects. Lists have the same length, so that nobody adds a port or a container.
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
    fn what_is_not_wanted_any_more_goes() {
        let steps = plan("shop", vec![], &live(json!({ "metadata": { "uid": "1" } })));
        let (namespace, name, uid) = ("shop".to_owned(), "web".to_owned(), "1".to_owned());
        assert_eq!(steps, [Step::Delete { part: Part::Service, namespace, name, uid }]);
    }
}

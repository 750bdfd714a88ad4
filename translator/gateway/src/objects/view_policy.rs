//! ViewPolicies as objects. Whose proxies a policy is for and which listeners it shows to some of them only are decoded apart
//! from the rest, so a policy that is not understood still hides them, whatever was known of it before.

use super::heliograph::{TargetRef, ViewPolicySpec};
use super::policy::{Envelope, SpecFault};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// An object of the kind.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewPolicyObject {
    pub metadata: ObjectMeta,
    /// As far as it can be decoded.
    pub target: Option<TargetRef>,
    /// The listeners that it names with `only`.
    pub only: OnlyFor,
    /// All of it, or why the object is not understood.
    pub spec: Result<ViewPolicySpec, SpecFault>,
    pub status: Option<Value>,
}

/// Listeners that some proxies see and others do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyFor {
    Listeners(BTreeSet<String>),
    /// It cannot be decoded which: it may be any.
    Unknown,
}

/// Every object can be decoded: what is wrong with it is part of the value.
impl<'de> Deserialize<'de> for ViewPolicyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(fields) => Ok(Self::of(fields)),
            _ => Err(D::Error::custom("it is not an object")),
        }
    }
}

impl ViewPolicyObject {
    fn of(object: Map<String, Value>) -> Self {
        let Envelope { metadata, spec, status, mut faults } = Envelope::of(object);
        let target = spec.get("targetRef").and_then(|it| TargetRef::deserialize(it).ok());
        let only = OnlyFor::of(spec.get("rules"));
        let decoded = faults.decode("spec", &spec.into());
        Self { metadata, target, only, spec: faults.into_result(decoded), status }
    }
}

impl OnlyFor {
    fn of(rules: Option<&Value>) -> Self {
        let mut names = BTreeSet::new();
        let rules = match rules {
            None | Some(Value::Null) => return Self::Listeners(names),
            Some(Value::Array(rules)) => rules,
            Some(_) => return Self::Unknown,
        };
        for rule in rules {
            let Value::Object(rule) = rule else { return Self::Unknown };
            let Some(only) = rule.get("only").filter(|it| !it.is_null()) else { continue };
            let Some(Value::Array(listeners)) = only.get("listeners") else { return Self::Unknown };
            for listener in listeners {
                let Some(name) = listener.as_str() else { return Self::Unknown };
                names.insert(name.to_owned());
            }
        }
        Self::Listeners(names)
    }

    pub(crate) fn may_be(&self, listener: &str) -> bool {
        match self {
            Self::Listeners(names) => names.contains(listener),
            Self::Unknown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decode(spec: &Value) -> ViewPolicyObject {
        let metadata = json!({ "name": "one", "namespace": "shop" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn listeners(names: &[&str]) -> OnlyFor {
        OnlyFor::Listeners(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_it_shows_to_some_is_known_whatever_else_is_wrong() {
        let target =
            json!({ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web" });
        let only = json!({ "only": { "listeners": ["a", "b"] } });
        let overlay = json!({ "overlay": { "type": "Cluster", "name": "x", "jsonPatch": [{ "op": "guess" }] } });
        let prefer = json!({ "prefer": { "labels": ["zone"] } });
        for (rules, expected, fault) in [
            (json!([only, prefer]), listeners(&["a", "b"]), None),
            (json!([prefer, { "only": null }]), listeners(&[]), None),
            (
                json!([only, overlay]),
                listeners(&["a", "b"]),
                Some("spec.rules[1].overlay.jsonPatch"),
            ),
            (json!([overlay]), listeners(&[]), Some("spec.rules[0].overlay.jsonPatch")),
            (json!([only, { "newer": {} }]), listeners(&["a", "b"]), Some("spec.rules[1].newer")),
            (
                json!([{ "only": { "listeners": "a" } }]),
                OnlyFor::Unknown,
                Some("spec.rules[0].only.listeners"),
            ),
            (
                json!([{ "only": { "listeners": ["a", 7] } }]),
                OnlyFor::Unknown,
                Some("spec.rules[0].only.listeners[1]"),
            ),
            (json!([{ "only": {} }]), OnlyFor::Unknown, Some("spec.rules[0].only")),
            (json!(["only"]), OnlyFor::Unknown, Some("spec.rules[0]")),
            (json!({}), OnlyFor::Unknown, Some("spec.rules")),
        ] {
            let policy = decode(&json!({ "targetRef": target, "rules": rules }));
            assert_eq!(policy.only, expected, "{rules}");
            assert_eq!(policy.target.as_ref().map(|it| &*it.name), Some("web"));
            match (fault, &policy.spec) {
                (None, spec) => assert!(spec.is_ok(), "{rules}: {spec:?}"),
                (Some(field), Err(fault)) => {
                    assert!(fault.field.starts_with(field), "{rules}: {fault:?}");
                }
                (Some(_), Ok(_)) => panic!("{rules}"),
            }
        }
        let none = decode(&json!({ "targetRef": 7, "rules": [only] }));
        assert_eq!((none.target, none.only), (None, listeners(&["a", "b"])));
    }
}

//! Policies as objects. Targets are decoded separately from the rest of the spec, so a policy whose spec cannot be
//! decoded still has its targets, also on a translator that has just started.

mod faults;
mod targets;

pub use faults::SpecFault;
pub use targets::{PolicyTargetRef, SelectedNamespaces, TargetSelector};

use faults::Faults;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::{Map, Value};

/// An object of a policy kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyObject<S> {
    pub metadata: ObjectMeta,
    /// `targetRef` and `targetRefs`, as far as they can be decoded.
    pub targets: Vec<PolicyTargetRef>,
    /// `targetSelectors`, as far as they can be decoded.
    pub selectors: Vec<TargetSelector>,
    /// The rest of the spec, or why the object is not understood.
    pub spec: Result<S, SpecFault>,
    pub status: Option<Value>,
}

/// What a policy of a kind asks for: the fields of its spec but for those that name its targets.
///
/// A field that the type does not have is a fault of the object, wherever the object comes from: what is not understood
/// must not be ignored.
pub trait PolicySpec: DeserializeOwned {
    /// How policies of the kind name their targets.
    const TARGETS: TargetFields;
}

/// What every object has, whatever its kind.
pub(super) struct Envelope {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: Map<String, Value>,
    pub(super) status: Option<Value>,
    pub(super) faults: Faults,
}

/// The fields of a spec that name targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFields {
    /// `targetRefs` alone.
    References,
    /// One of `targetRef` and `targetRefs`, or `targetSelectors`, or both.
    All,
}

/// Every object can be decoded: what is wrong with it is part of the value.
impl<'de, S: PolicySpec> Deserialize<'de> for PolicyObject<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(fields) => Ok(Self::of(fields)),
            _ => Err(D::Error::custom("it is not an object")),
        }
    }
}

impl<S: PolicySpec> PolicyObject<S> {
    fn of(object: Map<String, Value>) -> Self {
        let Envelope { metadata, mut spec, status, mut faults } = Envelope::of(object);
        let (targets, selectors) = targets::decode(&mut spec, S::TARGETS, &mut faults);
        let decoded = faults.decode("spec", &spec.into());
        Self { metadata, targets, selectors, spec: faults.into_result(decoded), status }
    }
}

impl Envelope {
    pub(super) fn of(mut object: Map<String, Value>) -> Self {
        let mut faults = Faults::default();
        let metadata =
            remove_non_null(&mut object, "metadata").unwrap_or_else(|| Map::new().into());
        let metadata = match faults.decode("metadata", &metadata) {
            Ok(metadata) => metadata,
            Err(fault) => {
                faults.record(fault);
                name_of(&metadata)
            }
        };
        let status = remove_non_null(&mut object, "status");
        let spec = match remove_non_null(&mut object, "spec") {
            Some(Value::Object(spec)) => spec,
            None => Map::new(),
            Some(_) => {
                faults.record(SpecFault::new("spec", "it is not an object"));
                Map::new()
            }
        };
        let known = ["apiVersion", "kind"];
        let unknown = object.keys().filter(|field| !known.contains(&field.as_str()));
        unknown.for_each(|field| faults.record_unsupported(field.clone()));
        Self { metadata, spec, status, faults }
    }
}

/// Kubernetes has null for what is not there.
fn remove_non_null(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

/// Metadata that cannot be decoded still has the name of its object.
fn name_of(metadata: &Value) -> ObjectMeta {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
    ObjectMeta { name: text("name"), namespace: text("namespace"), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests;

use super::faults::{Faults, SpecFault};
use super::{TargetFields, remove_non_null};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An object of the policy's namespace, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename = "TargetRef", rename_all = "camelCase")]
pub struct PolicyTargetRef {
    /// Where it is in the object: `spec.targetRefs[0]`.
    #[serde(skip)]
    pub field: String,
    pub group: String,
    pub kind: String,
    pub name: String,
    /// A listener of a Gateway or a ListenerSet, a rule of a route, a port of a Service.
    pub section_name: Option<String>,
}

/// All objects of a kind that have these labels.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetSelector {
    /// Where it is in the object: `spec.targetSelectors[0]`.
    #[serde(skip)]
    pub field: String,
    /// Without it, Gateway API's.
    pub group: Option<String>,
    pub kind: String,
    /// Without it, the policy's own namespace.
    pub namespaces: Option<SelectedNamespaces>,
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    #[serde(default)]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Of other namespaces than the policy's, those count in which a ReferenceGrant lets it refer to objects.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SelectedNamespaces {
    /// `Same`, `All` or `Selector`. Without it, `Same`.
    #[serde(default)]
    pub from: String,
    pub selector: Option<LabelSelector>,
}

/// Takes the fields that name targets out of a spec.
pub(super) fn decode(
    spec: &mut Map<String, Value>,
    fields: TargetFields,
    faults: &mut Faults,
) -> (Vec<PolicyTargetRef>, Vec<TargetSelector>) {
    let mut of_all = |name: &str| match fields {
        TargetFields::References => None,
        TargetFields::All => remove_non_null(spec, name),
    };
    let (single, selectors) = (of_all("targetRef"), of_all("targetSelectors"));
    let list = remove_non_null(spec, "targetRefs");
    if single.is_some() && list.is_some() {
        faults.record(SpecFault::new("spec.targetRef", "targetRefs is given as well"));
    }
    if single.is_none() && list.is_none() && selectors.is_none() {
        faults.record(SpecFault::new("spec.targetRefs", "it is missing"));
    }
    let mut targets = Vec::new();
    if let Some(single) = single {
        targets.extend(target("spec.targetRef".to_owned(), &single, faults));
    }
    for (field, value) in elements("spec.targetRefs", list, faults) {
        targets.extend(target(field, &value, faults));
    }
    let mut selected = Vec::new();
    for (field, value) in elements("spec.targetSelectors", selectors, faults) {
        selected.extend(selector(field, &value, faults));
    }
    (targets, selected)
}

/// Of a reference that cannot be decoded, the object counts that it names: more is targeted then, and not less.
fn target(field: String, value: &Value, faults: &mut Faults) -> Option<PolicyTargetRef> {
    match faults.decode::<PolicyTargetRef>(&field, value) {
        Ok(target) => Some(PolicyTargetRef { field, ..target }),
        Err(fault) => {
            faults.record(fault);
            let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
            let (group, kind, name) = (text("group")?, text("kind")?, text("name")?);
            Some(PolicyTargetRef { field, group, kind, name, section_name: None })
        }
    }
}

/// Of a selector that cannot be decoded, the kind counts, and whether it is for other namespaces.
fn selector(field: String, value: &Value, faults: &mut Faults) -> Option<TargetSelector> {
    match faults.decode::<TargetSelector>(&field, value) {
        Ok(selector) => Some(TargetSelector { field, ..selector }),
        Err(fault) => {
            faults.record(fault);
            let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
            let namespaces = value.get("namespaces").filter(|it| !it.is_null());
            let all = |_| SelectedNamespaces { from: "All".to_owned(), selector: None };
            Some(TargetSelector {
                field,
                group: text("group"),
                kind: text("kind")?,
                namespaces: namespaces.map(all),
                match_labels: BTreeMap::new(),
                match_expressions: Vec::new(),
            })
        }
    }
}

fn elements(field: &str, list: Option<Value>, faults: &mut Faults) -> Vec<(String, Value)> {
    match list {
        None => Vec::new(),
        Some(Value::Array(elements)) => {
            let elements = elements.into_iter().enumerate();
            elements.map(|(index, value)| (format!("{field}[{index}]"), value)).collect()
        }
        Some(_) => {
            faults.record(SpecFault::new(field, "it is not a list"));
            Vec::new()
        }
    }
}

use bytes::Bytes;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::Listener;
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::{Any, Message, json};
use heliograph_snapshot::{Resource, ResourceType};
use json_patch::PatchOperation;
use serde_json::Value;

/// How a resource becomes another, in Envoy's own words.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
}

/// How many operations a patch may have: each may visit all of the resource.
const MOST_OPERATIONS: usize = 128;

/// How much of a resource a patch may copy into it, in bytes. Each copy of a whole doubles it.
const MOST_COPIED: usize = 1 << 20;

/// How deep values may be nested: reading them is recursive.
const MOST_DEPTH: usize = 100;

/// The resource as a patch makes it, or why it cannot.
pub fn variant(kind: ResourceType, resource: &Resource, patch: &Patch) -> Result<Bytes, String> {
    let any = Any { type_url: kind.type_url().to_owned(), value: resource.body.clone() };
    let body = json::edited(&any, |value| match patch {
        Patch::Merge(patch) => {
            json_patch::merge(value, patch);
            Ok(())
        }
        Patch::Json(patch) => apply(value, patch),
    })?;
    match name(kind, &body) {
        Some(name) if name == *resource.name => Ok(body),
        _ => Err("the name of a resource stays as it is".to_owned()),
    }
}

/// Applies one operation after the other, each within the bounds. After a failure the caller drops the value.
fn apply(value: &mut Value, patch: &json_patch::Patch) -> Result<(), String> {
    if patch.len() > MOST_OPERATIONS {
        return Err(format!("jsonPatch: at most {MOST_OPERATIONS} operations"));
    }
    let mut copied = 0;
    for (at, operation) in patch.iter().enumerate() {
        let (size, depth) = added(value, operation);
        copied += size;
        if copied > MOST_COPIED {
            return Err(format!("jsonPatch: operation {at} copies more than {MOST_COPIED} bytes"));
        }
        if depth > MOST_DEPTH {
            return Err(format!("jsonPatch: operation {at} nests values deeper than {MOST_DEPTH}"));
        }
        let operation = std::slice::from_ref(operation);
        json_patch::patch(value, operation)
            .map_err(|error| format!("jsonPatch: operation {at}: {}", error.kind))?;
    }
    Ok(())
}

/// How many bytes an operation copies, and how deep the copied value is nested then.
fn added(value: &Value, operation: &PatchOperation) -> (usize, usize) {
    let source = |from: &str| value.pointer(from).unwrap_or(&Value::Null);
    let (path, placed, size) = match operation {
        PatchOperation::Add(add) => (&add.path, &add.value, 0),
        PatchOperation::Replace(replace) => (&replace.path, &replace.value, 0),
        PatchOperation::Move(r#move) => (&r#move.path, source(r#move.from.as_str()), 0),
        PatchOperation::Copy(copy) => {
            let placed = source(copy.from.as_str());
            (&copy.path, placed, size(placed))
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return (0, 0),
    };
    (size, path.count() + depth(placed))
}

/// Rather more than less of the bytes that a value is in JSON.
fn size(value: &Value) -> usize {
    const NODE: usize = 24;
    NODE + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
    }
}

fn name(kind: ResourceType, body: &Bytes) -> Option<String> {
    let body = body.clone();
    match kind {
        ResourceType::Cluster => Cluster::decode(body).ok().map(|it| it.name),
        ResourceType::Endpoints => {
            ClusterLoadAssignment::decode(body).ok().map(|it| it.cluster_name)
        }
        ResourceType::Listener => Listener::decode(body).ok().map(|it| it.name),
        ResourceType::Route => RouteConfiguration::decode(body).ok().map(|it| it.name),
        // No overlay is for these: nothing of ours builds the one, and what is sealed in the store has no variants beside it.
        ResourceType::ExtensionConfig | ResourceType::Secret => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(patch: Value) -> Result<Value, String> {
        let cluster = Cluster { name: "shop".to_owned(), ..Cluster::default() };
        let resource = Resource::new("shop", cluster.encode_to_vec().into());
        let patch = Patch::Json(serde_json::from_value(patch).unwrap());
        let body = variant(ResourceType::Cluster, &resource, &patch)?;
        let cluster = Cluster::decode(body).unwrap();
        Ok(json!({"name": cluster.name, "altStatName": cluster.alt_stat_name}))
    }

    #[test]
    fn operations_are_applied_in_order() {
        let patch = json!([
            {"op": "test", "path": "/name", "value": "shop"},
            {"op": "copy", "from": "/name", "path": "/alt_stat_name"},
        ]);
        assert_eq!(patched(patch).unwrap(), json!({"name": "shop", "altStatName": "shop"}));
        let failed = patched(json!([{"op": "remove", "path": "/absent"}])).unwrap_err();
        assert!(failed.starts_with("jsonPatch: operation 0: "), "{failed}");
    }

    /// Each copy doubles what there is: without a bound, 40 of them take all memory of the translator.
    #[test]
    fn a_patch_cannot_multiply_a_resource() {
        let wide = (0..40).map(|at| json!({"op": "copy", "from": "", "path": format!("/c{at}")}));
        let failed = patched(Value::Array(wide.collect())).unwrap_err();
        assert!(failed.contains("copies more than 1048576 bytes"), "{failed}");
    }

    /// What reads a value calls itself for each level, and has a stack of a fixed size.
    #[test]
    fn a_patch_cannot_nest_values_without_end() {
        let mut value = json!({});
        let mut deep = json!(1);
        (0..60).for_each(|_| deep = json!([deep]));
        value["deep"] = deep;
        let twice =
            json!([{"op": "copy", "from": "/deep", "path": format!("/deep{}", "/0".repeat(60))}]);
        let failed = apply(&mut value, &serde_json::from_value(twice).unwrap()).unwrap_err();
        assert!(failed.contains("nests values deeper than 100"), "{failed}");
    }

    #[test]
    fn a_patch_has_a_bounded_number_of_operations() {
        let test = json!({"op": "test", "path": "/name", "value": "shop"});
        assert!(patched(Value::Array(vec![test.clone(); MOST_OPERATIONS])).is_ok());
        let failed = patched(Value::Array(vec![test; MOST_OPERATIONS + 1])).unwrap_err();
        assert_eq!(failed, "jsonPatch: at most 128 operations");
    }
}

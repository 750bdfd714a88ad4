//! The CRDs of the chart `heliograph-crds` are those of the Rust types. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::objects::heliograph::ViewPolicy;
use heliograph_gateway::objects::proxy_config::ProxyConfig;
use kube::CustomResourceExt;
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn the_crds_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/heliograph-crds/files");
    for crd in [ProxyConfig::crd(), ViewPolicy::crd()] {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let mut crd = serde_json::to_value(crd).unwrap();
        simplify(&mut crd);
        let text = serde_saphyr::to_string(&crd).unwrap();
        let path = folder.join(&name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(path, text).unwrap();
        } else {
            let there = fs::read_to_string(path).unwrap();
            assert!(there == text, "{name} is not that of its type: `make golden` writes it");
        }
    }
}

/// Defaults as words: an API server would write them into the objects of users, and they are what a missing field means here. And
/// without formats that it does not know, of which it warns; the bounds beside them say the same.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let default = fields
                .remove("default")
                .filter(|it| !it.is_null() && !it.is_object() && !it.is_array());
            if let (Some(default), Some(Value::String(words))) =
                (default, fields.get_mut("description"))
            {
                let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
                words.push_str(&format!(" Default: {default}."));
            }
            let is_unknown =
                |format: &Value| format.as_str().is_some_and(|name| name.starts_with("uint"));
            if fields.get("format").is_some_and(is_unknown) {
                fields.remove("format");
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

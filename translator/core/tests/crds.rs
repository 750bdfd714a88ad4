//! The CRDs in `crds/` are those of the Rust types. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_translator_core::objects::heliograph::ViewPolicy;
use heliograph_translator_core::objects::proxy_config::ProxyConfig;
use kube::CustomResourceExt;
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn the_crds_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds");
    for crd in [ProxyConfig::crd(), ViewPolicy::crd()] {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let mut crd = serde_json::to_value(crd).unwrap();
        forget_defaults(&mut crd);
        let text = serde_saphyr::to_string(&crd).unwrap();
        let path = folder.join(&name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(path, text).unwrap();
        } else {
            let there = fs::read_to_string(path).unwrap();
            assert!(there == text, "crds/{name} is not that of its type: `make golden` writes it");
        }
    }
}

/// An API server would write them into the objects of users. They are what a missing field means here.
fn forget_defaults(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("default");
            fields.values_mut().for_each(forget_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_defaults),
        _ => {}
    }
}

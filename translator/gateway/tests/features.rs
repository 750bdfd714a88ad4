//! What a GatewayClass claims is what the documentation says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::status::SUPPORTED_FEATURES;
use std::path::Path;

#[test]
fn the_features_are_those_that_the_documentation_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let text = std::fs::read_to_string(path).unwrap();
    let documented: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | yes |"))
        .map(|(feature, _)| feature)
        .collect();
    assert_eq!(SUPPORTED_FEATURES, documented);
    assert!(SUPPORTED_FEATURES.is_sorted(), "Kubernetes asks for them in order");
}

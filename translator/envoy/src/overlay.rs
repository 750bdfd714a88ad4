use bytes::Bytes;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::Listener;
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::{Any, Message, json};
use heliograph_snapshot::{Resource, ResourceType};
use serde_json::Value;

/// How a resource becomes another, in Envoy's own words.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
}

/// The resource as a patch makes it, or why it cannot.
pub fn variant(kind: ResourceType, resource: &Resource, patch: &Patch) -> Result<Bytes, String> {
    let any = Any { type_url: kind.type_url().to_owned(), value: resource.body.clone() };
    let body = json::edited(&any, |value| match patch {
        Patch::Merge(patch) => {
            json_patch::merge(value, patch);
            Ok(())
        }
        Patch::Json(patch) => json_patch::patch(value, patch).map_err(|error| error.to_string()),
    })?;
    match name(kind, &body) {
        Some(name) if name == *resource.name => Ok(body),
        _ => Err("the name of a resource stays as it is".to_owned()),
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

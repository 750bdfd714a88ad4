//! The parts of objects that are left out because proxies reject them; everything else is published. The translator
//! finds these parts, and applies them as facts, like the objects themselves.

use crate::objects::{Kind, Object, ObjectKey, ObjectName};
use crate::status::Condition;
use crate::status::reasons::{Reason, route, view_policy};
use crate::world::Reader;
use heliograph_snapshot::{FleetName, Resource};
use heliograph_views::LeftOut;
use std::sync::Arc;

/// Setting this annotation to another value has an unchanged object tried again.
const RETRY: &str = "heliograph.dev/retry";

/// Which content of an object is meant. Another one is tried again.
pub(crate) fn revision(object: &Object) -> String {
    let metadata = object.metadata();
    let mut hasher = blake3::Hasher::new();
    match (&metadata.uid, metadata.generation) {
        (Some(uid), Some(generation)) => {
            hasher.update(uid.as_bytes()).update(&generation.to_le_bytes());
        }
        // Behind files there is no API server that counts.
        _ => {
            hasher.update(&content(object));
        }
    }
    let retry = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RETRY));
    hasher.update(retry.map(String::as_bytes).unwrap_or_default());
    let revision = hasher.finalize().to_hex();
    revision[..32].to_owned()
}

/// The content, as its author wrote it, of an object of which a part can be left out.
fn content(object: &Object) -> Vec<u8> {
    let content = match object {
        Object::HTTPRoute(route) => serde_json::to_vec(&route.spec),
        Object::GRPCRoute(route) => serde_json::to_vec(&route.spec),
        Object::ViewPolicy(policy) => match &policy.spec {
            Ok(spec) => serde_json::to_vec(spec),
            Err(_) => Ok(Vec::new()),
        },
        _ => Ok(Vec::new()),
    };
    content.unwrap_or_default()
}

/// As a snapshot has it: `HTTPRoute/shop/cart`.
pub fn object_name(object: &ObjectKey) -> String {
    format!("{}/{}", object.kind.as_str(), object.name)
}

/// The object of an entry. `None`: a newer translator knows.
pub fn object_of(entry: &LeftOut) -> Option<ObjectKey> {
    let mut parts = entry.object.splitn(3, '/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = Kind::ALL.iter().copied().find(|known| known.as_str() == kind)?;
    Some(ObjectName::new(namespace, name).of(kind))
}

/// The entry of an object in the snapshot of a fleet.
pub(crate) fn entry(
    reader: &Reader<'_>,
    fleet: &FleetName,
    object: &ObjectKey,
) -> Option<Arc<Resource>> {
    reader.fleet(fleet)?;
    let left_out = reader.left_out_of(fleet, object)?;
    // Who translates next begins the search for the cause anew.
    (!left_out.is_suspect).then(|| Arc::new(left_out.resource()))
}

/// The condition of an object that is left out.
pub(crate) fn condition(
    reader: &Reader<'_>,
    fleet: &FleetName,
    object: &ObjectKey,
) -> Option<Condition> {
    let left_out = reader.left_out_of(fleet, object)?;
    Some(Condition::new(reason(object.kind), words(object.kind, left_out)))
}

fn reason(kind: Kind) -> &'static Reason {
    match kind {
        Kind::ViewPolicy => view_policy::programmed::LEFT_OUT,
        _ => route::programmed::LEFT_OUT,
    }
}

fn words(kind: Kind, left_out: &LeftOut) -> String {
    let effect = match (kind, left_out.is_dropped) {
        (Kind::ViewPolicy, _) => "Its overlays are left out".to_owned(),
        (_, true) if left_out.has_outlines => {
            "The route is left out: requests of its matches, and those that only a regular expression or an unusual character \
             distinguishes from them, are answered with an error"
                .to_owned()
        }
        (_, true) => "The route is left out, with its matches: for its hostnames, only requests that other routes for these \
                      hostnames match are served"
            .to_owned(),
        (_, false) if left_out.rules.is_empty() => {
            "The route is left out: its requests are answered with an error".to_owned()
        }
        (_, false) => of_rules(left_out),
    };
    let cause = match left_out.is_suspect {
        false => "proxies reject it",
        true => "proxies may reject it, which Heliograph is still finding out",
    };
    format!(
        "{effect}, because {cause}: {}. Heliograph tries it again when it changes, or when its annotation {RETRY} changes",
        left_out.words.trim_end_matches('.')
    )
}

fn of_rules(left_out: &LeftOut) -> String {
    let rules: Vec<_> = left_out.rules.iter().map(|rule| rule.index.to_string()).collect();
    let mut effect = format!("Requests of rule {} are answered with an error", rules.join(", "));
    let dropped = left_out.rules.iter().flat_map(|rule| {
        rule.dropped.iter().map(move |index| format!("{index} of rule {}", rule.index))
    });
    let dropped: Vec<_> = dropped.collect();
    if !dropped.is_empty() {
        effect += &format!(
            ", and match {} is dropped: requests that only a regular expression distinguishes from its own are answered with \
             an error, too",
            dropped.join(", ")
        );
    }
    effect
}

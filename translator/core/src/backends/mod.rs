//! What routes send requests to: one file per kind of backend.

mod service;

use crate::accept::is_granted;
use crate::ir::{Backend, Cluster, Endpoints};
use crate::objects::{Kind, ObjectName};
use crate::status::Condition;
use crate::world::Reader;

/// A backendRef with its defaults filled in.
pub(crate) struct Reference<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: ObjectName,
    pub(crate) port: Option<i32>,
}

/// Follows a reference, or says with a condition why it leads nowhere. A new kind of backend is a file here and an arm
/// in each of the three functions.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    from: (Kind, &str),
    reference: &Reference<'_>,
) -> Result<Backend, Condition> {
    let unresolved = |reason: &'static str, why: &str| {
        let message = format!("backend {} {}: {why}", reference.kind, reference.name);
        Condition::no("ResolvedRefs", reason, message)
    };
    let follow = match Kind::find(reference.group, reference.kind) {
        Some(Kind::Service) => service::resolve,
        _ => return Err(unresolved("InvalidKind", "backends of this kind are not supported")),
    };
    let to = reference.name.clone().of(Kind::Service);
    if !is_granted(reader, from, &to) {
        return Err(unresolved("RefNotPermitted", "no ReferenceGrant allows it"));
    }
    follow(reader, reference).map_err(|(reason, why)| unresolved(reason, &why))
}

pub(crate) fn cluster(reader: &Reader<'_>, backend: &Backend) -> Cluster {
    service::cluster(reader, backend)
}

pub(crate) fn endpoints(reader: &Reader<'_>, backend: &Backend) -> Endpoints {
    service::endpoints(reader, backend)
}

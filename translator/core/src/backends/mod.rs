//! What routes send requests to: one file per kind of backend.

pub(crate) mod policy;
mod service;

use crate::accept::is_granted;
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::status::Condition;
use crate::status::reasons::Reason;
use crate::status::reasons::route::resolved_refs::{INVALID_KIND, REF_NOT_PERMITTED};
use crate::world::Reader;
use heliograph_model::{Endpoints, Target, UpstreamId, UpstreamKind, UpstreamProtocol};
use std::collections::BTreeSet;

/// A backendRef with its defaults filled in.
pub(crate) struct Reference<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: ObjectName,
    pub(crate) port: Option<i32>,
}

/// Why a reference leads nowhere: the reason that Gateway API has for it, and words.
type Lost = (&'static Reason, String);

/// Follows a reference of the route `from`, which speaks so to a backend that does not say; or says with a condition why it leads nowhere. A new kind of backend is a
/// file here and an arm in each of the two functions.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    from: &ObjectKey,
    speaks: UpstreamProtocol,
    reference: &Reference<'_>,
) -> Result<Target, Condition> {
    let lost = |(reason, why): Lost| {
        let message = format!("backend {} {}: {why}", reference.kind, reference.name);
        Condition::new(reason, message)
    };
    let (kind, follow) = match Kind::find(reference.group, reference.kind) {
        Some(kind @ Kind::Service) => (kind, service::resolve),
        _ => {
            return Err(lost((INVALID_KIND, "backends of this kind are not supported".to_owned())));
        }
    };
    let to = reference.name.clone().of(kind);
    if !is_granted(reader, from, &to) {
        return Err(lost((REF_NOT_PERMITTED, "no ReferenceGrant allows it".to_owned())));
    }
    let upstream = follow(reader, to, reference.port, speaks).map_err(lost)?;
    Ok(match policy::upstream(reader, &upstream) {
        // To speak to it otherwise than its policy asks would be worse than not to. The policy says what is wrong.
        Some(None) => Target::Invalid,
        None | Some(Some(_)) => Target::Upstream(upstream),
    })
}

/// Of their labels, only those are taken that clients prefer endpoints by.
pub(crate) fn endpoints(
    reader: &Reader<'_>,
    upstream: &UpstreamId,
    preferred_by: &BTreeSet<&str>,
) -> Endpoints {
    match upstream.kind {
        UpstreamKind::Service => service::endpoints(reader, upstream, preferred_by),
    }
}

//! The backends of routes: one file per kind.

mod service;

use crate::accept::is_granted;
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::policies;
use crate::status::Condition;
use crate::status::reasons::Reason;
use crate::status::reasons::route::resolved_refs::{INVALID_KIND, REF_NOT_PERMITTED};
use crate::world::Reader;
use heliograph_model::{
    Effective, Endpoints, Target, Upstream, UpstreamId, UpstreamKind, UpstreamObject,
    UpstreamProtocol,
};
use heliograph_snapshot::FleetName;
use std::collections::BTreeSet;

/// A backendRef with its defaults filled in.
pub(crate) struct Reference<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: ObjectName,
    pub(crate) port: Option<i32>,
}

/// Why a reference cannot be resolved: the reason that Gateway API has for it, and a message.
type ResolveError = (&'static Reason, String);

/// Resolves a reference of the route `from`, or returns the condition that says why it cannot be resolved. A backend that names
/// no protocol gets `default_protocol`. A new kind of backend is a file here and an arm in `resolve`, `port_name`, `missing` and
/// `endpoints`.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    from: &ObjectKey,
    default_protocol: UpstreamProtocol,
    reference: &Reference<'_>,
) -> Result<Target, Condition> {
    let condition = |(reason, why): ResolveError| {
        let message = format!("backend {} {}: {why}", reference.kind, reference.name);
        Condition::new(reason, message)
    };
    let (kind, follow) = match Kind::find(reference.group, reference.kind) {
        Some(kind @ Kind::Service) => (kind, service::resolve),
        _ => {
            return Err(condition((
                INVALID_KIND,
                "backends of this kind are not supported".to_owned(),
            )));
        }
    };
    let to = reference.name.clone().of(kind);
    if !is_granted(reader, from, &to) {
        return Err(condition((REF_NOT_PERMITTED, "no ReferenceGrant allows it".to_owned())));
    }
    let upstream = follow(reader, to, reference.port, default_protocol).map_err(condition)?;
    Ok(match policies::upstream_tls(reader, &upstream) {
        // To speak to it otherwise than its policy asks would be worse than not to. The policy says what is wrong.
        Effective::Closed(_) => Target::Invalid,
        Effective::Absent | Effective::InForce(_) => Target::Upstream(upstream),
    })
}

/// How a fleet speaks to an upstream. `None` for one that cannot be spoken to as its policy asks.
pub(crate) fn upstream(
    reader: &Reader<'_>,
    fleet: &FleetName,
    id: &UpstreamId,
) -> Option<Upstream> {
    let tls = match policies::upstream_tls(reader, id) {
        Effective::Absent => return Some(Upstream::default()),
        Effective::Closed(_) => return None,
        Effective::InForce(tls) => Some(tls.clone()),
    };
    let client_certificate = reader.fleet(fleet).and_then(|it| it.client_certificate.clone());
    Some(Upstream { tls, client_certificate })
}

/// The name of the port that an upstream is, if it has one.
pub(crate) fn port_name<'a>(reader: &Reader<'a>, upstream: &UpstreamId) -> Option<&'a str> {
    match upstream.kind {
        UpstreamKind::Service => service::port_name(reader, upstream),
    }
}

/// Names the missing part of an upstream: the object, or its port with this name.
pub(crate) fn missing(
    reader: &Reader<'_>,
    object: &UpstreamObject,
    port: Option<&str>,
) -> Option<String> {
    match object.kind {
        UpstreamKind::Service => service::missing(reader, object, port),
    }
}

/// The endpoints of an upstream, with the labels that clients of a fleet prefer by.
pub(crate) fn endpoints_for(reader: &Reader<'_>, fleet: &FleetName, id: &UpstreamId) -> Endpoints {
    let preferences = reader.plan(fleet).into_iter().flat_map(|plan| &plan.preferences);
    let preferred_by = preferences.flat_map(|it| it.labels.iter().map(String::as_str)).collect();
    endpoints(reader, id, &preferred_by)
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

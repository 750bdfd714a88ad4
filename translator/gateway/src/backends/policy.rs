//! BackendTLSPolicies: how a Service is to be spoken to.

use crate::accept::authorities::{self, AuthorityRef, Unusable};
use crate::objects::backend_tls_policy::{BackendTlsPolicy, BackendTlsPolicySpec, targets};
use crate::objects::core::Service;
use crate::objects::created;
use crate::objects::gateway::{BackendTlsValidation, SubjectAltName, SubjectAltNameType};
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::status::Condition;
use crate::status::reasons::backend_tls_policy::{accepted, resolved_refs};
use crate::world::Reader;
use heliograph_model::{Hostname, Seniority, SubjectName, Trust, UpstreamId, UpstreamTls};

/// What there is to say of a policy, apart from who uses it.
pub(crate) struct Verdict {
    /// `None`: what it asks for cannot be done, and nothing else is done instead.
    pub(crate) tls: Option<UpstreamTls>,
    pub(crate) accepted: Condition,
    pub(crate) resolved: Condition,
}

/// How a policy asks for a backend to be spoken to, if there is one. `Some(None)`: not at all, since what it asks for cannot
/// be done.
pub(crate) fn upstream(reader: &Reader<'_>, upstream: &UpstreamId) -> Option<Option<UpstreamTls>> {
    let policy = effective(reader, &upstream.name.clone().of(Kind::Service), upstream.port)?;
    Some(verdict(reader, policy).tls)
}

/// All of a policy that others do not decide: whether it is understood, and what its references lead to.
pub(crate) fn verdict(reader: &Reader<'_>, policy: &BackendTlsPolicy) -> Verdict {
    let mut verdict = Verdict {
        tls: None,
        accepted: Condition::new(accepted::ACCEPTED, "The policy is valid"),
        resolved: Condition::new(resolved_refs::RESOLVED_REFS, "All references are resolved"),
    };
    let invalid = |why: String| Condition::new(accepted::NOT_UNDERSTOOD, why);
    // All fields by name: one that is not understood must not be ignored.
    let BackendTlsPolicySpec { options, validation } = match &policy.spec {
        Ok(spec) => spec,
        Err(fault) => {
            verdict.accepted = invalid(fault.to_string());
            return verdict;
        }
    };
    let BackendTlsValidation {
        ca_certificate_refs,
        hostname,
        subject_alt_names,
        well_known_ca_certificates,
    } = validation;
    if let Some((option, _)) = options.iter().flatten().next() {
        verdict.accepted = invalid(format!("options: {option} is not supported"));
        return verdict;
    }
    let names = match names(hostname, subject_alt_names.as_deref().unwrap_or_default()) {
        Ok(names) => names,
        Err(why) => {
            verdict.accepted = invalid(why);
            return verdict;
        }
    };
    let trust = match (ca_certificate_refs.as_deref(), well_known_ca_certificates.as_deref()) {
        (None | Some([]), Some("System")) => Some(Trust::System),
        (None | Some([]), other) => {
            let what = other.unwrap_or("no authority");
            verdict.accepted = invalid(format!("validation: {what} cannot be trusted"));
            return verdict;
        }
        (Some(references), _) => {
            let references = references.iter().map(|it| (&*it.group, &*it.kind, &*it.name));
            trusted(reader, &key_of(policy), references, &mut verdict.resolved)
        }
    };
    match trust {
        Some(trust) => verdict.tls = Some(UpstreamTls { sni: hostname.clone(), names, trust }),
        None => {
            let why = "No certificate of an authority can be used";
            verdict.accepted = Condition::new(accepted::NO_VALID_CA_CERTIFICATE, why);
        }
    }
    verdict
}

/// The policy that stands in another's way: it has one of its targets, and is older.
pub(crate) fn rival<'a>(
    reader: &Reader<'a>,
    policy: &BackendTlsPolicy,
) -> Option<&'a BackendTlsPolicy> {
    targets(policy).find_map(|(service, section)| {
        let others = reader.pointing::<BackendTlsPolicy>(&service);
        let mut others = others.filter(|other| {
            age(other) < age(policy)
                && targets(other).any(|(at, of)| (&at, of) == (&service, section))
        });
        others.next()
    })
}

/// Gateway API: the one for the port before the one for all of the Service, and the oldest of those.
fn effective<'a>(
    reader: &Reader<'a>,
    service: &ObjectKey,
    port: u16,
) -> Option<&'a BackendTlsPolicy> {
    let policies: Vec<&BackendTlsPolicy> = reader.pointing(service).collect();
    if policies.is_empty() {
        return None;
    }
    let object = reader.object::<Service>(&service.name);
    let named = object.and_then(|object| super::service::port_of(object, port)?.name.as_deref());
    let of = |section: Option<&str>| {
        let about = |policy: &&&BackendTlsPolicy| {
            targets(policy).any(|(at, of)| at == *service && of == section)
        };
        policies.iter().filter(about).min_by_key(|policy| age(policy)).copied()
    };
    named.and_then(|name| of(Some(name))).or_else(|| of(None))
}

fn age(policy: &BackendTlsPolicy) -> impl Ord + use<> {
    Seniority::new(created(&policy.metadata), key_of(policy))
}

fn key_of(policy: &BackendTlsPolicy) -> ObjectKey {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    ObjectName::new(&part(&policy.metadata.namespace), &part(&policy.metadata.name))
        .of(Kind::BackendTLSPolicy)
}

/// The names of which the certificate must have one: the hostname, unless others are given.
fn names(hostname: &str, given: &[SubjectAltName]) -> Result<Vec<SubjectName>, String> {
    if !matches!(hostname.parse(), Ok(Hostname::Exact(_))) {
        return Err(format!("validation: {hostname:?} is not the name of a host"));
    }
    if given.is_empty() {
        return Ok(vec![SubjectName::Dns(hostname.to_owned())]);
    }
    let name = |given: &SubjectAltName| {
        let SubjectAltName { hostname, r#type, uri } = given;
        let name = match r#type {
            SubjectAltNameType::Hostname => hostname.clone().map(SubjectName::Dns),
            SubjectAltNameType::Uri => uri.clone().map(SubjectName::Uri),
        };
        name.ok_or_else(|| "validation: a subjectAltName is empty".to_owned())
    };
    given.iter().map(name).collect()
}

/// `None` where nobody is. One bad reference among good ones is told and left out.
fn trusted<'a>(
    reader: &Reader<'_>,
    policy: &ObjectKey,
    references: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
    resolved: &mut Condition,
) -> Option<Trust> {
    let mut authorities = Vec::new();
    for (group, kind, name) in references {
        let name = ObjectName::new(&policy.name.namespace, name);
        match authorities::resolve(reader, policy, &AuthorityRef { group, kind, name }) {
            Ok(name) => authorities.push(name),
            Err(unusable) if resolved.is_true() => {
                let reason = match unusable {
                    Unusable::Kind(_) => resolved_refs::INVALID_KIND,
                    Unusable::NotPermitted(_) | Unusable::Content(_) => {
                        resolved_refs::INVALID_CA_CERTIFICATE_REF
                    }
                };
                *resolved = Condition::new(reason, unusable.message());
            }
            Err(_) => {}
        }
    }
    (!authorities.is_empty()).then(|| Trust::Authorities(authorities::pem(reader, &authorities)))
}

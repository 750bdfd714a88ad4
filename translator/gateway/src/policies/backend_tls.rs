//! BackendTLSPolicies: TLS towards a Service.

use super::{Accepted, Policy, Rejection, TargetKind};
use crate::accept::ca::{self, CaError, CaRef};
use crate::objects::backend_tls_policy::BackendTlsPolicySpec;
use crate::objects::gateway::{BackendTlsValidation, SubjectAltName, SubjectAltNameType};
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::status::Condition;
use crate::status::reasons::backend_tls_policy::{accepted, resolved_refs};
use crate::world::Reader;
use heliograph_model::{
    Hostname, PolicyId, PolicyKind, PolicySections, SubjectName, Trust, UpstreamKind, UpstreamTls,
};

impl Policy for BackendTlsPolicySpec {
    const IGNORES_OTHER_TARGETS: bool = true;

    fn can_target(kind: TargetKind) -> bool {
        match kind {
            TargetKind::Upstream(UpstreamKind::Service) => true,
            TargetKind::ListenerOwner(_) | TargetKind::Route(_) => false,
        }
    }

    fn accept(&self, reader: &Reader<'_>, id: &PolicyId) -> Accepted {
        let Self { options, validation } = self;
        let mut resolved =
            Condition::new(resolved_refs::RESOLVED_REFS, "All references are resolved");
        let tls = match options.iter().flatten().next() {
            Some((option, _)) => Err(invalid("options", format!("{option} is not supported"))),
            None => upstream_tls(reader, id, validation, &mut resolved),
        };
        Accepted { sections: tls.map(PolicySections::BackendTls), resolved: Some(resolved) }
    }
}

fn upstream_tls(
    reader: &Reader<'_>,
    id: &PolicyId,
    validation: &BackendTlsValidation,
    resolved: &mut Condition,
) -> Result<UpstreamTls, Rejection> {
    let BackendTlsValidation {
        ca_certificate_refs,
        hostname,
        subject_alt_names,
        well_known_ca_certificates,
    } = validation;
    let names = names(hostname, subject_alt_names.as_deref().unwrap_or_default())?;
    let trust = match (ca_certificate_refs.as_deref(), well_known_ca_certificates.as_deref()) {
        (None | Some([]), Some("System")) => Some(Trust::System),
        (None | Some([]), other) => {
            let why = match other {
                Some(name) => format!("{name} cannot be trusted"),
                None => "it names no CA".to_owned(),
            };
            return Err(invalid("validation", why));
        }
        (Some(references), _) => {
            let references = references.iter().map(|it| (&*it.group, &*it.kind, &*it.name));
            let policy = id.name.clone().of(Kind::from(id.kind));
            trusted(reader, &policy, references, resolved)
        }
    };
    let trust = trust.ok_or_else(|| Rejection {
        reason: accepted::NO_VALID_CA_CERTIFICATE,
        field: "validation.caCertificateRefs".to_owned(),
        message: "No CA certificate can be used".to_owned(),
    })?;
    Ok(UpstreamTls { sni: hostname.clone(), names, trust })
}

/// The names of which the certificate must have one: the hostname, unless others are given.
fn names(hostname: &str, given: &[SubjectAltName]) -> Result<Vec<SubjectName>, Rejection> {
    if !matches!(hostname.parse(), Ok(Hostname::Exact(_))) {
        return Err(invalid("validation", format!("{hostname:?} is not the name of a host")));
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
        name.ok_or_else(|| invalid("validation", "a subjectAltName is empty"))
    };
    given.iter().map(name).collect()
}

/// `None` where nothing can be trusted. The first bad reference among good ones has a condition and is left out.
fn trusted<'a>(
    reader: &Reader<'_>,
    policy: &ObjectKey,
    references: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
    resolved: &mut Condition,
) -> Option<Trust> {
    let mut authorities = Vec::new();
    for (group, kind, name) in references {
        let name = ObjectName::new(&policy.name.namespace, name);
        match ca::resolve(reader, policy, &CaRef { group, kind, name }) {
            Ok(name) => authorities.push(name),
            Err(unusable) if resolved.is_true() => {
                let reason = match unusable {
                    CaError::Kind(_) => resolved_refs::INVALID_KIND,
                    CaError::NotPermitted(_) | CaError::Content(_) => {
                        resolved_refs::INVALID_CA_CERTIFICATE_REF
                    }
                };
                *resolved = Condition::new(reason, unusable.message());
            }
            Err(_) => {}
        }
    }
    (!authorities.is_empty()).then(|| Trust::Authorities(ca::pem(reader, &authorities)))
}

fn invalid(field: &str, why: impl std::fmt::Display) -> Rejection {
    Rejection::invalid(PolicyKind::BackendTls, field, why)
}

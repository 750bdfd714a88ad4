//! The TLS settings of a Gateway, for all its listeners and towards backends.

use super::ca::{self, CaError, CaRef};
use super::certificates::{self, Certificate, CertificateReasons};
use super::listener::AcceptedListener;
use crate::objects::gateway::{
    self, FrontendCaRef as Reference, GatewayTls, PortValidation, Validation, ValidationMode,
};
use crate::objects::{ObjectKey, ObjectName};
use crate::status::Condition;
use crate::status::reasons::listener::{accepted, resolved_refs};
use crate::world::Reader;
use heliograph_model::{ClientValidation, Protocol};

/// Sets how the HTTPS listeners verify clients, by the Gateway's settings for their port or its default. A listener
/// whose clients cannot be verified is rejected: to serve it to every client would be worse.
pub(super) fn verify_clients(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    tls: Option<&GatewayTls>,
    listeners: &mut [AcceptedListener],
) {
    let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) else { return };
    for listener in listeners {
        let served = listener.listener.as_ref();
        let Some(served) = served.filter(|it| it.protocol == Protocol::Https) else { continue };
        let port = i32::from(served.port.number);
        let validation = match frontend.per_port.iter().flatten().find(|of| of.port == port) {
            Some(of_port) => of_port.tls.validation.as_ref().map(as_default),
            None => frontend.default.validation.clone(),
        };
        if let Some(validation) = validation {
            verify(reader, owner, &validation, listener);
        }
    }
}

/// Whether some clients without a valid certificate are served: the Gateway's status has to say so.
pub(super) fn has_insecure_fallback(tls: Option<&GatewayTls>) -> bool {
    let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) else { return false };
    let of_ports = frontend.per_port.iter().flatten().filter_map(|of| of.tls.validation.as_ref());
    let default = frontend.default.validation.clone();
    of_ports.map(as_default).chain(default).any(|validation| is_insecure(&validation))
}

/// The certificate that backends are shown, if one is asked for.
pub(super) fn client_certificate(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    tls: Option<&GatewayTls>,
) -> Option<Certificate> {
    let reference = tls?.backend.as_ref()?.client_certificate_ref.clone()?;
    let gateway::ClientCertificateRef { group, kind, name, namespace } = reference;
    let reference = gateway::CertificateRef { group, kind, name, namespace };
    Some(certificates::certificate(reader, owner, &reference, CertificateReasons::OF_GATEWAY))
}

/// Reports bad references among good ones and leaves them out.
fn verify(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    validation: &Validation,
    listener: &mut AcceptedListener,
) {
    let mut authorities = Vec::new();
    let mut unusable = None;
    for Reference { group, kind, name, namespace } in &validation.ca_certificate_refs {
        let namespace = namespace.as_deref().unwrap_or(&owner.name.namespace);
        let name = ObjectName::new(namespace, name);
        match ca::resolve(reader, owner, &CaRef { group, kind, name }) {
            Ok(name) => authorities.push(name),
            Err(reason) => unusable = unusable.or(Some(reason)),
        }
    }
    if let Some(unusable) = &unusable {
        let reason = match unusable {
            CaError::Kind(_) => resolved_refs::INVALID_CA_CERTIFICATE_KIND,
            CaError::NotPermitted(_) => resolved_refs::REF_NOT_PERMITTED,
            CaError::Content(_) => resolved_refs::INVALID_CA_CERTIFICATE_REF,
        };
        let message = format!("client validation: {}", unusable.message());
        listener.conditions.set(Condition::new(reason, message));
    }
    if authorities.is_empty() {
        listener
            .refuse(accepted::NO_VALID_CA_CERTIFICATE, "Client certificates cannot be verified");
    } else if let Some(listener) = &mut listener.listener {
        let insecure_fallback = is_insecure(validation);
        listener.client_validation = Some(ClientValidation { authorities, insecure_fallback });
    }
}

fn is_insecure(validation: &Validation) -> bool {
    validation.mode == Some(ValidationMode::AllowInsecureFallback)
}

/// The generated types for ports and for the default differ in name alone.
fn as_default(validation: &PortValidation) -> Validation {
    let PortValidation { ca_certificate_refs, mode } = validation.clone();
    let reference = |gateway::PortAuthorityRef { group, kind, name, namespace }| Reference {
        group,
        kind,
        name,
        namespace,
    };
    Validation {
        ca_certificate_refs: ca_certificate_refs.into_iter().map(reference).collect(),
        mode: mode.map(|mode| match mode {
            gateway::PortValidationMode::AllowValidOnly => ValidationMode::AllowValidOnly,
            gateway::PortValidationMode::AllowInsecureFallback => {
                ValidationMode::AllowInsecureFallback
            }
        }),
    }
}

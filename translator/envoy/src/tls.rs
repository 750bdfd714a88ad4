//! TLS towards clients and towards backends.

use crate::names;
use crate::ads;
use heliograph_model::{ClientValidation, SecretId, ServedListener, SubjectName, Trust, UpstreamProtocol, UpstreamTls, self};
use bytes::Bytes;
use heliograph_envoy::envoy::config::core::v3::{
    DataSource, TransportSocket, data_source::Specifier, transport_socket,
};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    SubjectAltNameMatcher, UpstreamTlsContext,
};
use heliograph_envoy::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use heliograph_envoy::google::protobuf::BoolValue;
use heliograph_envoy::{Any, any};

/// Where Envoy's own images have it, as Debian and its like do. Envoy's `system_root_certs` would look in more places, and Envoy
/// verifies no names with it.
const SYSTEM_CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The certificates that an HTTPS listener sends to clients, and its verification of theirs.
pub(super) fn downstream(served: &ServedListener) -> TransportSocket {
    let ServedListener { listener, client_ca_bundle, .. } = served;
    let validation = listener.client_validation.as_ref();
    let ca_bundle = client_ca_bundle.clone().unwrap_or_default();
    socket(any(&DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: listener.certificates.iter().map(secret).collect(),
            alpn_protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
            validation_context_type: validation.map(|it| of_clients(it, ca_bundle)),
            ..Default::default()
        }),
        require_client_certificate: validation
            .map(|validation| BoolValue { value: !validation.insecure_fallback }),
        ..Default::default()
    }))
}

/// `certificate` is what a backend is shown.
pub(super) fn upstream(
    tls: &UpstreamTls,
    protocol: UpstreamProtocol,
    certificate: Option<&SecretId>,
) -> TransportSocket {
    let alpn = match protocol {
        UpstreamProtocol::Http1 => Some("http/1.1"),
        UpstreamProtocol::Http2 => Some("h2"),
        // What clients speak is not known.
        UpstreamProtocol::Tcp => None,
    };
    let trusted_ca = match &tls.trust {
        Trust::System => DataSource {
            specifier: Some(Specifier::Filename(SYSTEM_CA_BUNDLE.to_owned())),
            ..Default::default()
        },
        Trust::Authorities(pem) => inline(pem.clone()),
    };
    let validation = CertificateValidationContext {
        trusted_ca: Some(trusted_ca),
        match_typed_subject_alt_names: tls.names.iter().map(name).collect(),
        ..Default::default()
    };
    socket(any(&UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: certificate.map(secret).into_iter().collect(),
            alpn_protocols: alpn.map(str::to_owned).into_iter().collect(),
            validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
            ..Default::default()
        }),
        sni: tls.sni.clone(),
        ..Default::default()
    }))
}

fn of_clients(validation: &ClientValidation, ca_bundle: Bytes) -> ValidationContextType {
    ValidationContextType::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(inline(ca_bundle)),
        trust_chain_verification: match validation.insecure_fallback {
            true => TrustChainVerification::AcceptUntrusted,
            false => TrustChainVerification::VerifyTrustChain,
        }
        .into(),
        ..Default::default()
    })
}

fn name(name: &SubjectName) -> SubjectAltNameMatcher {
    let (san_type, text) = match name {
        SubjectName::Dns(name) => (SanType::Dns, name),
        SubjectName::Uri(uri) => (SanType::Uri, uri),
    };
    SubjectAltNameMatcher {
        san_type: san_type.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(MatchPattern::Exact(text.clone())),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn secret(id: &SecretId) -> SdsSecretConfig {
    SdsSecretConfig { name: names::secret(id), sds_config: Some(ads()) }
}

fn inline(bytes: Bytes) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes)), ..Default::default() }
}

fn socket(context: Any) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(context)),
    }
}

//! Authorities, certificates and tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) const ISSUER: &str = "https://issuer.example";

pub(crate) struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Who signs tokens.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    id: &'static str,
}

impl CertificateAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Not the name of those it signs: they would seem to have signed themselves.
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a SPIFFE URI, a DNS name or an address.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_until(name, 2040)
    }

    /// Valid until the first day of a year.
    pub(crate) fn issue_until(&self, name: &str, year: i32) -> Issued {
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.subject_alt_names = vec![match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains(':') => SanType::URI(name.try_into().unwrap()),
            Err(_) => SanType::DnsName(name.try_into().unwrap()),
        }];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    /// A client that trusts servers of this authority, and shows what it has.
    pub(crate) fn client(&self, shows: Option<&Issued>) -> ClientConfig {
        self.client_of(shows, rustls::ALL_VERSIONS)
    }

    pub(crate) fn client_of(
        &self,
        shows: Option<&Issued>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let Some(Issued { certificate, key }) = shows else { return config.with_no_client_auth() };
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        config.with_client_auth_cert(vec![certificate], key).unwrap()
    }
}

impl Signer {
    pub(crate) fn new(id: &'static str) -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self { key: EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap(), id }
    }

    /// A key set of these signers.
    pub(crate) fn jwks(signers: &[&Self]) -> String {
        let jwk = |signer: &&Self| {
            let point = signer.key.public_key().as_ref();
            let coordinate = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            json!({
                "kty": "EC", "crv": "P-256", "kid": signer.id, "use": "sig",
                "x": coordinate(&point[1..33]), "y": coordinate(&point[33..]),
            })
        };
        json!({ "keys": signers.iter().map(jwk).collect::<Vec<_>>() }).to_string()
    }

    /// A token of the expected issuer for the expected audience that lives so many seconds, unless `other` claims say
    /// otherwise.
    pub(crate) fn token(&self, subject: &str, seconds: i64, other: &Value) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": ISSUER, "aud": ["heliograph"], "sub": subject, "exp": now as i64 + seconds,
        });
        claims.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed =
            format!("{}.{}", part(&json!({ "alg": "ES256", "kid": self.id })), part(&claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

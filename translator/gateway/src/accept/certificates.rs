use super::is_granted;
use crate::objects::{Kind, ObjectKey, ObjectName, content, core, gateway};
use crate::status::Condition;
use crate::status::reasons::{Reason, gateway as of_gateway, listener as of_listener};
use crate::world::Reader;
use bytes::Bytes;
use heliograph_model::{KeyPair, SecretId};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

/// A Secret with a certificate that Envoy will take, or the condition that says why not.
pub(crate) type Certificate = Result<ObjectName, Condition>;

/// The reasons for a reference that does not lead to a certificate.
#[derive(Clone, Copy)]
pub(super) struct CertificateReasons {
    invalid: &'static Reason,
    not_permitted: &'static Reason,
}

/// The parts of a TLS Secret.
struct Parts<'a> {
    chain: &'a [u8],
    key: &'a [u8],
}

/// The identifier of the extension "TLS feature" (1.3.6.1.5.5.7.1.24), as certificates have it.
const MUST_STAPLE: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x18];

impl CertificateReasons {
    const OF_LISTENER: Self = Self {
        invalid: of_listener::resolved_refs::INVALID_CERTIFICATE_REF,
        not_permitted: of_listener::resolved_refs::REF_NOT_PERMITTED,
    };
    pub(super) const OF_GATEWAY: Self = Self {
        invalid: of_gateway::resolved_refs::INVALID_CLIENT_CERTIFICATE_REF,
        not_permitted: of_gateway::resolved_refs::REF_NOT_PERMITTED,
    };
}

pub(super) fn resolve(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    tls: Option<&gateway::ListenerTls>,
) -> Vec<Certificate> {
    let reasons = CertificateReasons::OF_LISTENER;
    let invalid = |message: &str| Condition::new(reasons.invalid, message);
    let Some(tls) = tls else {
        return vec![Err(invalid("An HTTPS listener needs tls.certificateRefs"))];
    };
    if matches!(tls.mode, Some(gateway::TlsMode::Passthrough)) {
        return vec![Err(invalid("An HTTPS listener cannot have the TLS mode Passthrough"))];
    }
    let references: Vec<_> = tls.certificate_refs.iter().flatten().collect();
    if references.is_empty() {
        return vec![Err(invalid("An HTTPS listener needs tls.certificateRefs"))];
    }
    let certificate = |reference| certificate(reader, owner, reference, reasons);
    references.into_iter().map(certificate).collect()
}

pub(super) fn certificate(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    reference: &gateway::CertificateRef,
    reasons: CertificateReasons,
) -> Certificate {
    let group = reference.group.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or("Secret");
    let namespace = reference.namespace.as_deref().unwrap_or(&owner.name.namespace);
    let name = ObjectName::new(namespace, &reference.name);
    let invalid = |why: &str| Condition::new(reasons.invalid, format!("{kind} {name}: {why}"));
    if Kind::find(group, kind) != Some(Kind::Secret) {
        return Err(invalid("only Secrets can contain certificates"));
    }
    // The grant is checked first: without one, a condition must not reveal whether the Secret exists.
    let to = name.clone().of(Kind::Secret);
    if !is_granted(reader, owner, &to) {
        let message = format!("{to}: no ReferenceGrant allows it");
        return Err(Condition::new(reasons.not_permitted, message));
    }
    let Some(secret) = reader.object::<core::Secret>(&name) else {
        return Err(invalid("it does not exist"));
    };
    if content::is_withheld(&secret.metadata) {
        return Err(invalid(&content::beyond_budget(&name, reader.limits())));
    }
    parts(secret).map_err(|why| invalid(&why))?;
    Ok(name)
}

/// `None` for a Secret that Envoy would refuse.
pub(crate) fn key_pair(reader: &Reader<'_>, id: &SecretId) -> Option<KeyPair> {
    let Parts { chain, key } = parts(reader.object::<core::Secret>(&id.0)?).ok()?;
    Some(KeyPair { chain: Bytes::copy_from_slice(chain), key: Bytes::copy_from_slice(key) })
}

/// The key pair of a Secret, if Envoy would take it: it refuses a whole listener for one bad certificate.
/// The reason of a refusal holds nothing of the content.
fn parts(secret: &core::Secret) -> Result<Parts<'_>, String> {
    let part = |name: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(name)).map(|data| &*data.0);
        data.or_else(|| {
            secret.string_data.as_ref().and_then(|data| data.get(name)).map(String::as_bytes)
        })
        .filter(|bytes| !bytes.is_empty())
        .ok_or_else(|| format!("it has no {name}"))
    };
    let pair = Parts { chain: part(content::CHAIN)?, key: part(content::KEY)? };
    if !content::is_small(pair.chain, pair.key) {
        let most = content::SECRET_BYTES >> 10;
        return Err(format!("tls.crt and tls.key have more than {most} KiB together"));
    }
    let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pair.chain)
        .collect::<Result<_, _>>()
        .map_err(|_| "tls.crt is not PEM")?;
    if chain.is_empty() {
        return Err("tls.crt holds no certificate".to_owned());
    }
    // Envoy loads the whole chain, and the check of the key below reads its first certificate only.
    if chain.iter().any(|certificate| ParsedCertificate::try_from(certificate).is_err()) {
        return Err("tls.crt holds something that is not a certificate".to_owned());
    }
    if chain[0].windows(MUST_STAPLE.len()).any(|bytes| bytes == MUST_STAPLE) {
        return Err(
            "tls.crt must be stapled with an OCSP response, and none can be given".to_owned()
        );
    }
    let key = PrivateKeyDer::from_pem_slice(pair.key)
        .map_err(|_| "tls.key holds no private key in PEM")?;
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(_) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err("tls.key is not the key of tls.crt".to_owned())
        }
        Err(rustls::Error::InvalidCertificate(_)) => {
            Err("tls.crt is not a valid certificate".to_owned())
        }
        Err(_) => Err("tls.key is of a kind that cannot be used".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn a_secret_that_is_too_large_is_refused_before_it_is_looked_at() {
        let secret = |chain: usize, key: usize| {
            let part = |name: &str, size| (name.to_owned(), ByteString(vec![b'x'; size]));
            let data = [part("tls.crt", chain), part("tls.key", key)].into();
            let mut secret = core::Secret::default();
            secret.data = Some(data);
            secret
        };
        let refusal = |chain, key| parts(&secret(chain, key)).err().unwrap_or_default();
        assert_eq!(refusal(60 << 10, 4 << 10), "tls.crt holds no certificate");
        let too_large = "tls.crt and tls.key have more than 64 KiB together";
        assert_eq!(refusal(60 << 10, (4 << 10) + 1), too_large);
        assert_eq!(refusal(1, 1 << 20), too_large);
    }
}

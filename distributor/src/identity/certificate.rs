use super::Identity;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The certificates that a client showed in its handshake, its own first.
pub(crate) struct Peer {
    chain: Box<[CertificateDer<'static>]>,
    /// Ends the connection.
    leave: CancellationToken,
}

/// The identity in a certificate, and until when it is valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertificateOwner {
    pub(super) identity: Identity,
    pub(super) valid_until: SystemTime,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoOwner {
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error(
        "the client certificate has no identity: give it one subject alternative name that is a SPIFFE URI, or DNS names"
    )]
    Unnamed,
    #[error("the client certificate has several URIs, and a SPIFFE certificate must have one")]
    Ambiguous,
}

impl Peer {
    /// `None` for a client that showed no certificate.
    pub(crate) fn new(
        chain: Option<&[CertificateDer<'static>]>,
        leave: CancellationToken,
    ) -> Option<Self> {
        let chain = chain.filter(|chain| !chain.is_empty())?;
        Some(Self { chain: chain.into(), leave })
    }

    /// Ends the connection that has this certificate: another call on it would have the same certificate, while the
    /// client may have a newer one by now.
    pub(super) fn leave(&self) {
        self.leave.cancel();
    }

    pub(super) fn own(&self) -> &[u8] {
        self.chain.first().map_or(&[], |certificate| certificate)
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// The owner of a certificate that was verified. A SPIFFE URI is the whole identity: DNS names beside it say where the
/// workload is reached, not who it is.
pub(super) fn owner(certificate: &[u8]) -> Result<CertificateOwner, NoOwner> {
    let certificate = Certificate::from_der(certificate).map_err(|_| NoOwner::Unreadable)?;
    let names = match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(names)))) => names,
        Ok(None) => Vec::new(),
        Err(_) => return Err(NoOwner::Unreadable),
    };
    let (mut uris, mut hosts) = (Vec::new(), Vec::new());
    for name in &names {
        match name {
            GeneralName::UniformResourceIdentifier(uri) => uris.push(uri.as_str()),
            GeneralName::DnsName(host) => hosts.push(host.as_str().to_ascii_lowercase()),
            _ => {}
        }
    }
    let identity = match &uris[..] {
        [] if hosts.is_empty() => return Err(NoOwner::Unnamed),
        [] => Identity::Dns(hosts),
        [uri] => Identity::of_spiffe(uri).ok_or(NoOwner::Unnamed)?,
        _ => return Err(NoOwner::Ambiguous),
    };
    Ok(CertificateOwner { identity, valid_until: valid_until(&certificate) })
}

/// When a certificate ends.
pub(crate) fn expiry(certificate: &[u8]) -> Option<SystemTime> {
    Certificate::from_der(certificate).ok().map(|certificate| valid_until(&certificate))
}

fn valid_until(certificate: &Certificate) -> SystemTime {
    // Their years have four digits, so this does not overflow.
    SystemTime::UNIX_EPOCH + certificate.tbs_certificate.validity.not_after.to_unix_duration()
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} certificates)", self.chain.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn owner_of(names: &[&str]) -> Result<Identity, NoOwner> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.contains(':') {
                true => SanType::URI((*name).try_into().unwrap()),
                false => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.not_after = rcgen::date_time_ymd(2031, 5, 7);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let owner = owner(certificate.der())?;
        let since_epoch = owner.valid_until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since_epoch.as_secs(), 1_935_878_400);
        assert_eq!(expiry(certificate.der()), Some(owner.valid_until));
        Ok(owner.identity)
    }

    #[test]
    fn a_certificate_tells_its_owner() {
        let id = "spiffe://example.org/ns/edge/sa/envoy";
        assert_eq!(owner_of(&[id]), Ok(Identity::Spiffe(id.into())));
        assert_eq!(owner_of(&["envoy.example.org", id]), Ok(Identity::Spiffe(id.into())));
        let hosts = Identity::Dns(vec!["envoy.example.org".into(), "b".into()]);
        assert_eq!(owner_of(&["Envoy.example.org", "b"]), Ok(hosts));
    }

    #[test]
    fn a_certificate_without_one_owner_is_refused() {
        assert_eq!(owner_of(&[]), Err(NoOwner::Unnamed));
        assert_eq!(owner_of(&["https://example.org/x", "b"]), Err(NoOwner::Unnamed));
        let two = ["spiffe://example.org/a", "spiffe://example.org/b"];
        assert_eq!(owner_of(&two), Err(NoOwner::Ambiguous));
        assert_eq!(owner(b"no certificate"), Err(NoOwner::Unreadable));
    }
}

use anyhow::{Context, bail};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{SubjectAltName, SubjectKeyIdentifier};

/// For clocks that differ.
const EARLIER: Duration = Duration::from_secs(300);

/// From when until when something is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: SystemTime,
    pub(super) until: SystemTime,
}

/// The CA that signs the certificates of distributors.
pub(super) struct CertificateAuthority {
    pub(super) subject: String,
    pub(super) validity: Validity,
    pem: String,
    key: KeyPair,
}

/// The certificate of distributors, and the CAs that Envoys trust.
#[derive(Clone)]
pub(super) struct ServerCertificate {
    /// The subject of the CA that signed it.
    pub(super) issuer: String,
    pub(super) names: Vec<String>,
    pub(super) validity: Validity,
    pub(super) trusted: Vec<Trusted>,
    /// Since when the newest CA is among them; `None` if this is not recorded.
    pub(super) trusted_since: Option<SystemTime>,
    pem: String,
    key: String,
}

/// A CA that Envoys trust.
#[derive(Clone)]
pub(super) struct Trusted {
    pub(super) subject: String,
    pub(super) validity: Validity,
    pem: String,
}

impl Validity {
    /// Two thirds are over: time for the next.
    pub(super) fn is_due(self, now: SystemTime) -> bool {
        let life = self.until.duration_since(self.from).unwrap_or_default();
        now >= self.from + life * 2 / 3
    }

    fn of(certificate: &Certificate) -> Self {
        let validity = &certificate.tbs_certificate.validity;
        // Their years have four digits, so this does not overflow.
        Self {
            from: SystemTime::UNIX_EPOCH + validity.not_before.to_unix_duration(),
            until: SystemTime::UNIX_EPOCH + validity.not_after.to_unix_duration(),
        }
    }
}

impl CertificateAuthority {
    pub(super) fn make(now: SystemTime, life: Duration) -> anyhow::Result<Self> {
        // Each has a name of its own, so that a certificate says which of two it is from.
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("heliograph {}", since.as_secs());
        let mut params = params(&name, now, life);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        let read = read(&pem)?;
        let (subject, validity) = (subject(&read), Validity::of(&read));
        Ok(Self { subject, validity, pem, key })
    }

    /// From PEM. Only one that [`Self::make`] made: the names of others may have parts that a certificate from here would not
    /// repeat, and Envoys would not find them.
    pub(super) fn read(pem: &str, key: &str) -> anyhow::Result<Self> {
        let read = read(pem)?;
        let subject = subject(&read);
        // Without the cause, which could quote the key.
        let key = KeyPair::from_pem(key).ok().context("tls.key cannot be used")?;
        let expected = params("", SystemTime::UNIX_EPOCH, Duration::ZERO).key_identifier(&key);
        let identifier = read.tbs_certificate.get::<SubjectKeyIdentifier>();
        let is_ours = matches!(&identifier, Ok(Some((_, found))) if found.0.as_bytes() == expected);
        if !is_ours || name_of(&subject).is_none() {
            bail!("its certificate is not one that helio made for its key");
        }
        let validity = Validity::of(&read);
        Ok(Self { subject, validity, pem: pem.to_owned(), key })
    }

    pub(super) fn sign(
        &self,
        names: &[String],
        now: SystemTime,
        life: Duration,
    ) -> anyhow::Result<ServerCertificate> {
        let mut params = params("heliograph-distributor", now, life);
        for name in names {
            // Envoys look for an address among addresses and not among names.
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.clone().try_into().with_context(|| {
                    format!("--server-name: {name:?} is neither a DNS name nor an IP address")
                })?),
            });
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let name = name_of(&self.subject).context("a CA without a name")?;
        let issuer = Issuer::new(self::params(name, now, life), &self.key);
        let key = KeyPair::generate()?;
        let pem = params.signed_by(&key, &issuer)?.pem();
        let validity = Validity::of(&read(&pem)?);
        Ok(ServerCertificate {
            issuer: self.subject.clone(),
            names: names.to_vec(),
            validity,
            trusted: vec![self.trusted()],
            trusted_since: None,
            pem,
            key: key.serialize_pem(),
        })
    }

    /// What Envoys receive of it.
    pub(super) fn trusted(&self) -> Trusted {
        let Self { subject, validity, pem, .. } = self;
        Trusted { subject: subject.clone(), validity: *validity, pem: pem.clone() }
    }

    pub(super) fn data(&self) -> [(&'static str, String); 2] {
        [("tls.crt", self.pem.clone()), ("tls.key", self.key.serialize_pem())]
    }
}

impl ServerCertificate {
    /// From PEM, with the CAs that Envoys trust and, as text, since when.
    pub(super) fn read(
        pem: &str,
        key: &str,
        trusted: &str,
        since: Option<&str>,
    ) -> anyhow::Result<Self> {
        let certificate = read(pem).context("tls.crt")?;
        let trusted = Trusted::read_all(trusted).context("ca.crt")?;
        let since = since.and_then(|text| text.parse().ok());
        let mut names = Vec::new();
        if let Ok(Some((_, SubjectAltName(all)))) = certificate.tbs_certificate.get() {
            for name in &all {
                match name {
                    GeneralName::DnsName(host) => names.push(host.as_str().to_owned()),
                    GeneralName::IpAddress(octets) => names.extend(address(octets.as_bytes())),
                    _ => {}
                }
            }
        }
        Ok(Self {
            issuer: certificate.tbs_certificate.issuer.to_string(),
            names,
            validity: Validity::of(&certificate),
            trusted,
            trusted_since: since.map(|since: Timestamp| since.into()),
            pem: pem.to_owned(),
            key: key.to_owned(),
        })
    }

    pub(super) fn data(&self) -> [(&'static str, String); 3] {
        let trusted = self.trusted.iter().map(|trusted| trusted.pem.as_str()).collect();
        [("tls.crt", self.pem.clone()), ("tls.key", self.key.clone()), ("ca.crt", trusted)]
    }
}

impl Trusted {
    fn read_all(text: &str) -> anyhow::Result<Vec<Self>> {
        const END: &str = "-----END CERTIFICATE-----";
        let mut all = Vec::new();
        for block in text.split_inclusive(END).filter(|block| block.contains(END)) {
            let read = read(block)?;
            let pem = format!("{}\n", block.trim());
            all.push(Self { subject: subject(&read), validity: Validity::of(&read), pem });
        }
        Ok(all)
    }
}

/// A time for people and for annotations, to the second.
pub(super) fn shown(time: SystemTime) -> String {
    Timestamp::try_from(time)
        .and_then(|time| time.round(jiff::Unit::Second))
        .map_or_else(|_| "?".to_owned(), |time| time.to_string())
}

fn params(name: &str, now: SystemTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now.checked_sub(EARLIER).unwrap_or(now).into();
    params.not_after = (now + life).into();
    params
}

fn read(pem: &str) -> anyhow::Result<Certificate> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let read = der.and_then(|der| Certificate::from_der(&der).ok());
    read.context("the certificate cannot be read")
}

fn address(octets: &[u8]) -> Option<String> {
    let address = match octets.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(octets).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
    };
    Some(address.to_string())
}

fn subject(certificate: &Certificate) -> String {
    certificate.tbs_certificate.subject.to_string()
}

/// The common name, if that is all there is of a subject.
fn name_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("CN=").filter(|name| !name.contains([',', '+', '\\']))
}

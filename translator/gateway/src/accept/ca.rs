use super::is_granted;
use crate::objects::{Kind, ObjectKey, ObjectName, content, core};
use crate::world::Reader;
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::ParsedCertificate;

/// A reference to CA certificates.
pub(crate) struct CaRef<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: ObjectName,
}

/// Why a reference to CA certificates cannot be used. Each kind of object that refers to them has its own reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaError {
    Kind(String),
    NotPermitted(String),
    Content(String),
}

/// The ConfigMap that a reference leads to, if Envoy would take what is in it.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    reference: &CaRef<'_>,
) -> Result<ObjectName, CaError> {
    let CaRef { group, kind, name } = reference;
    if Kind::find(group, kind) != Some(Kind::ConfigMap) {
        let message = format!("{kind} {name}: only ConfigMaps can contain CA certificates");
        return Err(CaError::Kind(message));
    }
    // The grant is checked first: without one, a condition must not reveal whether the ConfigMap exists.
    let to = name.clone().of(Kind::ConfigMap);
    if !is_granted(reader, owner, &to) {
        return Err(CaError::NotPermitted(format!("{to}: no ReferenceGrant allows it")));
    }
    let unusable = |reason: &str| CaError::Content(format!("{to}: {reason}"));
    let object =
        reader.object::<core::ConfigMap>(name).ok_or_else(|| unusable("it does not exist"))?;
    if content::is_withheld(&object.metadata) {
        return Err(unusable(&content::beyond_budget(name, reader.limits())));
    }
    certificates(object).map_err(unusable)?;
    Ok(name.clone())
}

/// The certificates of several ConfigMaps, in PEM. Those that cannot be used are left out.
pub(crate) fn pem(reader: &Reader<'_>, names: &[ObjectName]) -> Bytes {
    let mut all = String::new();
    for name in names {
        let object = reader.object::<core::ConfigMap>(name);
        if let Some(Ok(text)) = object.map(certificates) {
            all.push_str(text.trim_end());
            all.push('\n');
        }
    }
    all.into()
}

fn certificates(object: &core::ConfigMap) -> Result<&str, &'static str> {
    let text = object.data.as_ref().and_then(|data| data.get(content::CA_KEY));
    let text = text.ok_or("it has no ca.crt")?;
    if text.len() > content::CONFIG_MAP_BYTES {
        return Err("ca.crt has more than 256 KiB");
    }
    let found: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| "ca.crt is not PEM")?;
    if found.is_empty() {
        return Err("ca.crt holds no certificate");
    }
    match found.iter().all(|found| ParsedCertificate::try_from(found).is_ok()) {
        true => Ok(text),
        false => Err("ca.crt holds something that is not a certificate"),
    }
}

impl CaError {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Kind(message) | Self::NotPermitted(message) | Self::Content(message) => message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_that_is_too_large_is_refused_before_it_is_looked_at() {
        let refusal = |size: usize| {
            let data = [("ca.crt".to_owned(), "x".repeat(size))].into();
            let object = core::ConfigMap { data: Some(data), ..core::ConfigMap::default() };
            certificates(&object).err().unwrap_or_default().to_owned()
        };
        assert_eq!(refusal(content::CONFIG_MAP_BYTES), "ca.crt holds no certificate");
        assert_eq!(refusal(content::CONFIG_MAP_BYTES + 1), "ca.crt has more than 256 KiB");
        assert_eq!(content::CONFIG_MAP_BYTES, 256 << 10);
    }
}

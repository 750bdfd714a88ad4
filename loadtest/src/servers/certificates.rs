use super::ServersError;
use crate::security::Security;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An authority for the time of a run, with a certificate for servers on loopback and one for all clients.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) authority: PathBuf,
    pub(super) server: Pair,
    client: Pair,
    _folder: TempDir,
}

/// Files with a certificate and its key.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// May read the fleets of the workloads, which are in this namespace.
const CLIENT: &str = "spiffe://loadtest/ns/loadtest/sa/client";

impl Certificates {
    pub(super) fn make() -> Result<Self, ServersError> {
        let prepare = |cause| ServersError::Prepare { path: std::env::temp_dir(), cause };
        let folder = tempfile::Builder::new().prefix("loadtest-").tempdir().map_err(prepare)?;
        let issuer = authority()?;
        let path = folder.path().join("authority.pem");
        write(&path, &issuer.pem())?;
        let address = SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let identity = SanType::URI(CLIENT.try_into().map_err(failed)?);
        Ok(Self {
            authority: path,
            server: Pair::make(folder.path(), "server", address, &issuer)?,
            client: Pair::make(folder.path(), "client", identity, &issuer)?,
            _folder: folder,
        })
    }

    pub(super) fn of_clients(&self) -> Security {
        Security {
            tls_ca: Some(self.authority.clone()),
            tls_certificate: Some(self.client.certificate.clone()),
            tls_key: Some(self.client.key.clone()),
            token_file: None,
        }
    }
}

impl Pair {
    fn make(
        folder: &Path,
        name: &str,
        owner: SanType,
        issuer: &CertifiedIssuer<'static, KeyPair>,
    ) -> Result<Self, ServersError> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![owner];
        let key = KeyPair::generate().map_err(failed)?;
        let signed = params.signed_by(&key, issuer).map_err(failed)?;
        let pair = Self {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}-key.pem")),
        };
        write(&pair.certificate, &signed.pem())?;
        write(&pair.key, &key.serialize_pem())?;
        Ok(pair)
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, ServersError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Not the name of those it signs: they would seem to have signed themselves.
    params.distinguished_name.push(DnType::CommonName, "loadtest");
    let key = KeyPair::generate().map_err(failed)?;
    CertifiedIssuer::self_signed(params, key).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> ServersError {
    ServersError::Certificates(error.to_string())
}

/// Only its owner may read it: some are keys.
fn write(path: &Path, pem: &str) -> Result<(), ServersError> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(pem.as_bytes()))
        .map_err(|cause| ServersError::Prepare { path: path.to_owned(), cause })
}

//! The credentials of clients, and the CA bundle by which they verify servers, as files.

use anyhow::{Context, bail};
use heliograph_client::Server;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Security {
    /// PEM file with the CA bundle that verifies the certificate of an https server
    #[arg(long, help_heading = "TLS", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// PEM file with the clients' certificate
    #[arg(long, help_heading = "TLS", value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with its key
    #[arg(long, help_heading = "TLS", value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// File with the clients' bearer token
    #[arg(long, help_heading = "TLS", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl Security {
    pub fn server(&self, address: &str) -> anyhow::Result<Server> {
        let tls = if address.starts_with("https:") { Some(self.tls()?) } else { None };
        let token = match &self.token_file {
            Some(file) => Some(
                std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read --token-file {}", file.display()))?,
            ),
            None => None,
        };
        Ok(Server::new(address, tls, token.as_deref().map(str::trim))?)
    }

    fn tls(&self) -> anyhow::Result<ClientConfig> {
        let Some(authorities) = &self.tls_ca else {
            bail!(
                "an https server needs --tls-ca FILE: the certificates that its own is to be signed by"
            );
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            let added = roots.add(certificate);
            added
                .with_context(|| format!("{} is no certificate to trust", authorities.display()))?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else {
            return Ok(config.with_no_client_auth());
        };
        let private = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("{} has no private key in PEM", key.display()))?;
        config
            .with_client_auth_cert(certificates(certificate)?, private)
            .with_context(|| format!("{} and {} do not fit", certificate.display(), key.display()))
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || -> Result<Vec<_>, _> { CertificateDer::pem_file_iter(file)?.collect() };
    let certificates =
        read().with_context(|| format!("cannot read certificates from {}", file.display()))?;
    if certificates.is_empty() {
        bail!("{} has no certificate in PEM", file.display());
    }
    Ok(certificates)
}

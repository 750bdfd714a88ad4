use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A CA of its own, and what it signed, as files.
pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut ca = named("authority", Vec::new());
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = ca.self_signed(&key).unwrap();
        fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(ca, key);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        sign(directory.path(), "server", names, &issuer);
        sign(directory.path(), "client", vec!["client".to_owned()], &issuer);
        Self { directory }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// What a client shows: certificate and key.
    pub(crate) fn client(&self) -> (PathBuf, PathBuf) {
        self.pair("client")
    }

    /// What a server shows, for localhost and 127.0.0.1: certificate and key.
    pub(crate) fn server(&self) -> (PathBuf, PathBuf) {
        self.pair("server")
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        let file = |ending| self.directory.path().join(format!("{name}{ending}"));
        (file(".pem"), file(".key"))
    }
}

fn sign(directory: &Path, name: &str, names: Vec<String>, issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let certificate = named(name, names).signed_by(&key, issuer).unwrap();
    fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// With a name of its own: whoever is called like its issuer is taken for one that signed itself.
fn named(name: &str, names: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

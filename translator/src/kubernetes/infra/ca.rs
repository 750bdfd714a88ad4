use heliograph_shared::failure_log::FailureLog;
use std::fs;
use std::path::{Path, PathBuf};

/// The file of the distributors' CA bundle. Envoys follow it without a restart, so the translator follows it too: a certificate of
/// a new CA would otherwise lock out every Envoy that connects again.
pub(super) struct CaFile {
    path: PathBuf,
    log: FailureLog<String>,
}

impl CaFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, log: FailureLog::default() }
    }

    /// The content of the file, if it differs from `current`. A file that cannot be used changes nothing.
    pub(super) fn read_if_changed(&mut self, current: Option<&str>) -> Option<String> {
        let path = self.path.display();
        match read(&self.path) {
            Ok(found) => {
                if self.log.worked().is_some() {
                    tracing::info!("--proxy-xds-ca: {path} can be used again");
                }
                (Some(&*found) != current).then_some(found)
            }
            Err(why) => {
                if self.log.failed(&why) {
                    tracing::warn!(
                        "--proxy-xds-ca: {path}: {why}; Envoys keep the CA bundle that they have"
                    );
                }
                None
            }
        }
    }
}

/// Says why not, as a clause.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let found = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    match found.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(found),
        false => Err("has no certificate in PEM".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "-----BEGIN CERTIFICATE-----\nold\n";
    const NEW: &str = "-----BEGIN CERTIFICATE-----\nnew\n";

    #[test]
    fn a_file_is_followed_and_one_that_is_not_good_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let mut file = CaFile::new(path.clone());
        assert_eq!(file.read_if_changed(Some(OLD)), None, "there is no file");
        fs::write(&path, OLD).unwrap();
        assert_eq!(file.read_if_changed(Some(OLD)), None, "it is the same");
        assert_eq!(file.read_if_changed(None).as_deref(), Some(OLD));
        fs::write(&path, "").unwrap();
        assert_eq!(file.read_if_changed(Some(OLD)), None, "it is empty");
        fs::write(&path, NEW).unwrap();
        assert_eq!(file.read_if_changed(Some(OLD)).as_deref(), Some(NEW));
    }
}

use std::fs;
use std::path::{Path, PathBuf};

/// The file of the distributors' authorities. Envoys follow what they are given of it without a restart, so who gives it to
/// them follows the file: a certificate of a new authority would otherwise lock out every Envoy that connects again.
pub(super) struct Authorities {
    path: PathBuf,
    /// What is wrong with it and was told.
    fault: Option<String>,
}

impl Authorities {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, fault: None }
    }

    /// What the file has, if that is something else than `current`. One that cannot be used changes nothing.
    pub(super) fn look(&mut self, current: Option<&str>) -> Option<String> {
        let place = self.path.display();
        match read(&self.path) {
            Ok(found) => {
                if self.fault.take().is_some() {
                    tracing::info!("--proxy-xds-ca: {place} can be used again");
                }
                (Some(&*found) != current).then_some(found)
            }
            Err(why) => {
                if self.fault.as_ref() != Some(&why) {
                    tracing::warn!(
                        "--proxy-xds-ca: {place}: {why}; Envoys keep the authorities that they have"
                    );
                    self.fault = Some(why);
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
        let mut authorities = Authorities::new(path.clone());
        assert_eq!(authorities.look(Some(OLD)), None, "there is no file");
        fs::write(&path, OLD).unwrap();
        assert_eq!(authorities.look(Some(OLD)), None, "it is the same");
        assert_eq!(authorities.look(None).as_deref(), Some(OLD));
        fs::write(&path, "").unwrap();
        assert_eq!(authorities.look(Some(OLD)), None, "it is empty");
        fs::write(&path, NEW).unwrap();
        assert_eq!(authorities.look(Some(OLD)).as_deref(), Some(NEW));
    }
}

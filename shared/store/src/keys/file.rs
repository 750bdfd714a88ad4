use super::ring::KeyRing;
use super::text::RingError;
use heliograph_shared::failure_log::FailureLog;
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A key ring that follows its file.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    ring: RwLock<KeyRing>,
    log: Mutex<FailureLog<KeyError>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "{}: there is no key ring: mount it there, or create one with `helio store keys new FILE`",
        .path.display()
    )]
    Missing { path: PathBuf },
    #[error("{}: the key ring cannot be read: {cause}: grant this program read access", .path.display())]
    Unreadable { path: PathBuf, cause: String },
    #[error("{}: larger than any key ring: name a file that `helio store keys new FILE` made", .path.display())]
    TooLarge { path: PathBuf },
    #[error("{}: {cause}", .path.display())]
    Wrong { path: PathBuf, cause: RingError },
    #[error(
        "{}: the root key is another one, and a running program keeps the one it has: put the old one back, or \
         restart all programs to change it, which gives every secret a new version",
        .path.display()
    )]
    RootChanged { path: PathBuf },
}

/// Hundreds of keys.
const LARGEST: u64 = 64 * 1024;

impl KeyRing {
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        Self::parse(&text).map_err(|cause| KeyError::Wrong { path: path.to_owned(), cause })
    }
}

impl KeyFile {
    /// Warns if all users may read the file. Its group may: that is how a volume reaches a program that is not root.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let ring = KeyRing::read(&path)?;
        if is_open_to_all(&path) {
            tracing::warn!(
                file = %path.display(),
                "the key ring is readable by all users: run `chmod 600`, or set `defaultMode: 0440` on its volume"
            );
        }
        Ok(Self { path, ring: RwLock::new(ring), log: Mutex::default() })
    }

    /// The ring as it was last good.
    pub fn current(&self) -> KeyRing {
        self.ring.read().clone()
    }

    /// Reads the file again, and returns whether the ring changed. A file that is no longer valid changes nothing; that
    /// is logged once, and returned until it is repaired. To be called every second or two.
    ///
    /// The file is read each time, whatever its modification time: it is small, and two versions of it can have the same
    /// length within one tick of the clock.
    pub fn refresh(&self) -> Result<bool, KeyError> {
        let outcome = self.read_again();
        let mut log = self.log.lock();
        match &outcome {
            Err(error) if log.failed(error) => {
                tracing::warn!(%error, "the key ring file cannot be used; the previous key ring stays in use");
            }
            Ok(_) if log.worked().is_some() => {
                tracing::info!(file = %self.path.display(), "the key ring file can be used again");
            }
            _ => {}
        }
        outcome
    }

    fn read_again(&self) -> Result<bool, KeyError> {
        let read = KeyRing::read(&self.path)?;
        let current = self.current();
        if read == current {
            return Ok(false);
        }
        if !read.same_root(&current) {
            return Err(KeyError::RootChanged { path: self.path.clone() });
        }
        tracing::info!(file = %self.path.display(), before = ?current, after = ?read, "the key ring changed");
        *self.ring.write() = read;
        Ok(true)
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let unreadable = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => KeyError::Missing { path: path.to_owned() },
        // Bytes that are no text.
        io::ErrorKind::InvalidData => {
            KeyError::Wrong { path: path.to_owned(), cause: RingError::Malformed { line: 1 } }
        }
        _ => KeyError::Unreadable { path: path.to_owned(), cause: cause.to_string() },
    };
    let file = File::open(path).map_err(unreadable)?;
    // Room for all of it: a string that grows leaves its old self behind, unwiped.
    let mut text = Zeroizing::new(String::with_capacity(LARGEST as usize + 1));
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LARGEST {
        return Err(KeyError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o007 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn ring_in(folder: &TempDir) -> (PathBuf, Zeroizing<String>) {
        let path = folder.path().join("keys.yaml");
        let text = KeyRing::generate("a").unwrap();
        fs::write(&path, &text).unwrap();
        (path, text)
    }

    #[test]
    fn a_new_key_is_found() {
        let folder = TempDir::new().unwrap();
        let (path, text) = ring_in(&folder);
        let file = KeyFile::open(&path).unwrap();
        assert_eq!(file.refresh(), Ok(false));
        let before = file.current();

        fs::write(&path, KeyRing::rotate(&text, "b").unwrap()).unwrap();
        assert_eq!(file.current().active_id(), Some("a"), "only a refresh reads");
        assert_eq!(file.refresh(), Ok(true));
        assert_eq!(file.refresh(), Ok(false));
        assert_eq!(file.current().active_id(), Some("b"));
        assert_eq!(before.active_id(), Some("a"), "a ring in use does not change");
    }

    /// As Kubernetes does it: the file is a link through a folder that is a link, and the latter is swapped.
    #[test]
    fn a_swapped_mount_is_found() {
        let folder = TempDir::new().unwrap();
        let text = KeyRing::generate("a").unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [("1", &text), ("2", &KeyRing::rotate(&text, "b").unwrap())] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("keys.yaml"), text).unwrap();
        }
        symlink("1", at("data")).unwrap();
        symlink("data/keys.yaml", at("keys.yaml")).unwrap();
        let file = KeyFile::open(at("keys.yaml")).unwrap();

        symlink("2", at("swap")).unwrap();
        fs::rename(at("swap"), at("data")).unwrap();
        fs::remove_dir_all(at("1")).unwrap();
        assert_eq!(file.refresh(), Ok(true));
        assert_eq!(file.current().active_id(), Some("b"));
    }

    #[test]
    fn a_bad_file_leaves_the_last_good_ring() {
        let folder = TempDir::new().unwrap();
        let (path, text) = ring_in(&folder);
        let file = KeyFile::open(&path).unwrap();
        let good = file.current();
        let wrong = |cause| KeyError::Wrong { path: path.clone(), cause };

        for (bad, error) in [
            (b"".to_vec(), wrong(RingError::Malformed { line: 1 })),
            (text[..text.len() - 9].into(), wrong(RingError::WrongKey { line: 11 })),
            (vec![0xff; 50], wrong(RingError::Malformed { line: 1 })),
            (vec![b'#'; LARGEST as usize + 1], KeyError::TooLarge { path: path.clone() }),
            (
                KeyRing::generate("a").unwrap().as_bytes().to_vec(),
                KeyError::RootChanged { path: path.clone() },
            ),
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(file.refresh(), Err(error.clone()));
            assert_eq!(file.refresh(), Err(error), "until it is repaired");
            assert_eq!(file.current(), good);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(file.refresh(), Err(KeyError::Missing { path: path.clone() }));
        assert_eq!(file.current(), good);

        fs::write(&path, &text).unwrap();
        assert_eq!(file.refresh(), Ok(false));
    }

    #[test]
    fn nothing_shows_a_key() {
        let folder = TempDir::new().unwrap();
        let (path, text) = ring_in(&folder);
        let file = KeyFile::open(&path).unwrap();
        fs::write(&path, text.replacen("root: ", "root: x", 1)).unwrap();
        let error = file.refresh().unwrap_err();
        let shown = format!("{file:?} {error} {error:?}");
        assert!(shown.contains(r#"["a"]"#) && shown.contains("line 6"), "{shown}");
        for key in text.split_whitespace().filter(|word| word.ends_with('=')) {
            assert!(!shown.contains(&key[..8]), "{shown}");
        }
    }

    #[test]
    fn a_file_that_anybody_may_read_is_noticed() {
        let folder = TempDir::new().unwrap();
        let (path, _) = ring_in(&folder);
        for (mode, open) in [(0o600, false), (0o400, false), (0o640, false), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_all(&path), open, "{mode:o}");
        }
    }
}

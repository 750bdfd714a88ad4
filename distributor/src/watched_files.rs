use heliograph_shared::failure_log::FailureLog;
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A value that is read from files, and read again when they change, without a restart. Files that are no longer good change
/// nothing.
pub(crate) struct WatchedFiles<T> {
    /// For people: "the access rules".
    what: &'static str,
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    checks: Mutex<FileChecks>,
}

/// A file as it was read. Wiped when it is dropped, since some hold keys.
pub(crate) struct Content {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{}: cannot be read: {cause}", .path.display())]
    Unreadable { path: PathBuf, cause: String },
    #[error("{}: larger than {LARGEST} bytes", .path.display())]
    TooLarge { path: PathBuf },
    #[error("{}: {cause}", .path.display())]
    Wrong { path: PathBuf, cause: String },
}

/// The outcome of reading the files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshOutcome {
    Same,
    Changed,
    /// They are not good, and what was read before holds.
    Bad,
}

/// Fails with the file that is wrong.
type Parse<T> = Box<dyn Fn(&[Content]) -> Result<T, FileError> + Send + Sync>;

struct FileChecks {
    /// Of what is current.
    good: blake3::Hash,
    /// What was wrong when they were last read.
    fault: Option<FileError>,
    log: FailureLog<FileError>,
}

/// A large CA bundle has a quarter of it.
const LARGEST: u64 = 1 << 20;

impl<T> WatchedFiles<T> {
    pub(crate) fn open(
        what: &'static str,
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Content]) -> Result<T, FileError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let contents = read(&paths)?;
        let current = RwLock::new(Arc::new(parse(&contents)?));
        let checks =
            FileChecks { good: digest(&contents), fault: None, log: FailureLog::default() };
        Ok(Self { what, paths, parse: Box::new(parse), current, checks: Mutex::new(checks) })
    }

    /// As it was last good.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Reads the files again. To be called every second or two.
    ///
    /// The content is compared and no stamp of a file trusted: a mount that is swapped can bring an older one.
    pub(crate) fn refresh(&self) -> RefreshOutcome {
        let mut checks = self.checks.lock();
        let outcome = self.read_again(checks.good);
        match outcome {
            Ok(found) => {
                if let Some(fault) = checks.log.worked() {
                    tracing::info!(%fault, "{} can be used again", self.what);
                }
                checks.fault = None;
                let Some((digest, value)) = found else { return RefreshOutcome::Same };
                checks.good = digest;
                *self.current.write() = Arc::new(value);
                tracing::info!(file = %self.paths[0].display(), "{} changed", self.what);
                RefreshOutcome::Changed
            }
            Err(fault) => {
                // At the second look: between two files of a mount that is just being swapped, the first can be from
                // before and the second from after.
                let lasts = checks.fault.as_ref() == Some(&fault);
                if lasts && checks.log.failed(&fault) {
                    tracing::warn!(%fault, "{} cannot be used; the previous content stays in force until this program restarts", self.what);
                }
                checks.fault = Some(fault);
                if lasts { RefreshOutcome::Bad } else { RefreshOutcome::Same }
            }
        }
    }

    /// The content of the files, if it differs from the current one.
    fn read_again(&self, good: blake3::Hash) -> Result<Option<(blake3::Hash, T)>, FileError> {
        let contents = read(&self.paths)?;
        let digest = digest(&contents);
        if digest == good {
            return Ok(None);
        }
        Ok(Some((digest, (self.parse)(&contents)?)))
    }
}

impl Content {
    pub(crate) fn wrong(&self, cause: impl ToString) -> FileError {
        FileError::Wrong { path: self.path.clone(), cause: cause.to_string() }
    }

    pub(crate) fn text(&self) -> Result<&str, FileError> {
        std::str::from_utf8(&self.bytes).map_err(|_| self.wrong("it is no text"))
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<Content>, FileError> {
    let read = |path: &PathBuf| {
        let unreadable = |cause: io::Error| FileError::Unreadable {
            path: path.clone(),
            cause: cause.to_string(),
        };
        let file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len().min(LARGEST) as usize;
        // Room for all of it: a vector that grows leaves its old self behind, unwiped.
        let mut bytes = Zeroizing::new(Vec::with_capacity(size + 1));
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        match bytes.len() as u64 > LARGEST {
            true => Err(FileError::TooLarge { path: path.clone() }),
            false => Ok(Content { path: path.clone(), bytes }),
        }
    };
    paths.iter().map(read).collect()
}

fn digest(contents: &[Content]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for content in contents {
        hasher.update(&(content.bytes.len() as u64).to_le_bytes());
        hasher.update(&content.bytes);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// Two numbers that must be the same, as a certificate and its key must fit.
    fn pair(folder: &TempDir) -> Result<WatchedFiles<u32>, FileError> {
        let paths = vec![folder.path().join("one"), folder.path().join("two")];
        WatchedFiles::open("the pair", paths, |contents| {
            let number =
                |content: &Content| content.text()?.parse().map_err(|_| content.wrong("no number"));
            let (one, two): (u32, u32) = (number(&contents[0])?, number(&contents[1])?);
            if one == two { Ok(one) } else { Err(contents[1].wrong("another number")) }
        })
    }

    fn write(folder: &TempDir, one: &str, two: &str) {
        fs::write(folder.path().join("one"), one).unwrap();
        fs::write(folder.path().join("two"), two).unwrap();
    }

    #[test]
    fn it_follows_its_files() {
        let folder = TempDir::new().unwrap();
        assert!(matches!(pair(&folder), Err(FileError::Unreadable { .. })));
        write(&folder, "1", "1");
        let watched = pair(&folder).unwrap();
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Same, 1));
        write(&folder, "2", "2");
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Changed, 2));
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Same, 2));
    }

    /// As Kubernetes does it: the files are links through a folder that is a link, and the latter is swapped.
    #[test]
    fn it_follows_a_swapped_mount() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for number in ["1", "2"] {
            fs::create_dir(at(number)).unwrap();
            fs::write(at(number).join("one"), number).unwrap();
            fs::write(at(number).join("two"), number).unwrap();
        }
        symlink("1", at("data")).unwrap();
        symlink("data/one", at("one")).unwrap();
        symlink("data/two", at("two")).unwrap();
        let watched = pair(&folder).unwrap();
        symlink("2", at("swap")).unwrap();
        fs::rename(at("swap"), at("data")).unwrap();
        fs::remove_dir_all(at("1")).unwrap();
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Changed, 2));
    }

    #[test]
    fn bad_files_leave_what_was_good() {
        let folder = TempDir::new().unwrap();
        write(&folder, "1", "1");
        let watched = pair(&folder).unwrap();
        write(&folder, "2", "1");
        assert_eq!(watched.refresh(), RefreshOutcome::Same, "they may be just being swapped");
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Bad, 1));
        write(&folder, "x", &"9".repeat(LARGEST as usize + 1));
        assert_eq!(
            (watched.refresh(), watched.refresh()),
            (RefreshOutcome::Same, RefreshOutcome::Bad)
        );
        fs::remove_file(folder.path().join("two")).unwrap();
        assert_eq!(
            (watched.refresh(), watched.refresh()),
            (RefreshOutcome::Same, RefreshOutcome::Bad)
        );
        assert_eq!(*watched.current(), 1);
        write(&folder, "1", "1");
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Same, 1));
        write(&folder, "3", "3");
        assert_eq!((watched.refresh(), *watched.current()), (RefreshOutcome::Changed, 3));
    }
}

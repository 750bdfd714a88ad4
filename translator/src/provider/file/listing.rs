use super::in_words;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// What a walk through a directory tree saw.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) files: BTreeMap<Arc<Path>, Fingerprint>,
    pub(super) directories: BTreeMap<Arc<Path>, Identity>,
    /// Files and directories that could not be looked at, and why.
    pub(super) unreadable: BTreeMap<Arc<Path>, String>,
}

/// Tells whether a file is still the one that was read. Size and times catch a write in place, the identity
/// catches a rename or a symlink that leads elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    identity: Identity,
    pub(super) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity(u64, u64);

impl Listing {
    /// Looks at every manifest under `root`, in path order. Symlinks are followed; each directory is walked once,
    /// whatever leads to it, so that loops end.
    pub(super) fn of(root: &Path) -> Self {
        let mut listing = Self::default();
        let mut walked = BTreeSet::new();
        let mut pending: Vec<Arc<Path>> = vec![root.into()];
        while let Some(path) = pending.pop() {
            match listing.walk(&path, &mut walked, &mut pending) {
                Ok(()) => {}
                // A directory below that went since it was listed. The root is another matter: it is where to look.
                Err(error) if error.kind() == io::ErrorKind::NotFound && *path != *root => {}
                Err(error) => {
                    listing.unreadable.insert(path, in_words(&error));
                }
            }
        }
        listing
    }

    /// Whether `path` or a directory on the way to it could not be looked at, so that not seeing it means nothing.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        !self.unreadable.is_empty()
            && path.ancestors().any(|ancestor| self.unreadable.contains_key(ancestor))
    }

    fn walk(
        &mut self,
        directory: &Arc<Path>,
        walked: &mut BTreeSet<Identity>,
        pending: &mut Vec<Arc<Path>>,
    ) -> io::Result<()> {
        let identity = Identity::of(&fs::metadata(directory)?);
        if !walked.insert(identity) {
            return Ok(());
        }
        let entries = fs::read_dir(directory)?;
        self.directories.insert(directory.clone(), identity);
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A ConfigMap mount keeps its versions in directories that begin with a dot; the names beside them are
            // symlinks into the newest.
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                paths.push(Arc::<Path>::from(entry.path()));
            }
        }
        // The last is taken first.
        paths.sort_by(|one, other| other.cmp(one));
        for path in paths {
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => pending.push(path),
                Ok(metadata) if metadata.is_file() && is_manifest(&path) => {
                    self.files.insert(path, Fingerprint::of(&metadata));
                }
                // Neither read nor waited for: a pipe with a manifest's name would block its reader.
                Ok(_) => {}
                // Gone since it was listed, or a symlink that leads nowhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if is_manifest(&path) => {
                    self.unreadable.insert(path, in_words(&error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Fingerprint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            identity: Identity::of(metadata),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// Whether a name is that of a file to be read.
pub(super) fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(root: &Path) -> Vec<String> {
        let relative = |path: &Arc<Path>| path.strip_prefix(root).unwrap().display().to_string();
        Listing::of(root).files.keys().map(relative).collect()
    }

    #[test]
    fn manifests_are_found_by_name_through_directories_and_symlinks() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("deep/.git")).unwrap();
        for name in ["b.yaml", "a.yml", "c.json", "notes.txt", ".hidden.yaml", "x.yaml~"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        fs::write(root.path().join("deep/d.yaml"), "").unwrap();
        fs::write(root.path().join("deep/.git/e.yaml"), "").unwrap();
        fs::write(outside.path().join("target"), "").unwrap();
        fs::write(outside.path().join("far.yaml"), "").unwrap();
        symlink(outside.path().join("target"), root.path().join("link.yaml")).unwrap();
        symlink(outside.path(), root.path().join("elsewhere")).unwrap();
        symlink("nowhere", root.path().join("dangling.yaml")).unwrap();
        assert_eq!(
            names(root.path()),
            ["a.yml", "b.yaml", "c.json", "deep/d.yaml", "elsewhere/far.yaml", "link.yaml"]
        );
    }

    #[test]
    fn loops_of_symlinks_end() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["one", "two", "three"] {
            fs::create_dir(root.path().join(directory)).unwrap();
            fs::write(root.path().join(directory).join("f.yaml"), "").unwrap();
        }
        for directory in ["one", "two", "three"] {
            symlink(root.path(), root.path().join(directory).join("up")).unwrap();
        }
        symlink("self.yaml", root.path().join("self.yaml")).unwrap();
        let listing = Listing::of(root.path());
        assert_eq!(listing.files.len(), 3);
        assert_eq!(listing.unreadable.len(), 1, "a symlink to itself is said");
    }

    #[test]
    fn what_is_behind_an_unreadable_place_is_hidden() {
        let missing = Listing::of(Path::new("/nonexistent/manifests"));
        assert!(missing.is_hidden(Path::new("/nonexistent/manifests/a.yaml")));
        assert!(!missing.is_hidden(Path::new("/nonexistent/other/a.yaml")));
    }
}

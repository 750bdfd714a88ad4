use super::in_words;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The result of a walk through a directory tree.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: BTreeMap<Arc<Path>, ScannedFile>,
    pub(super) directories: BTreeMap<Arc<Path>, Identity>,
    /// Directories that could not be listed, and why.
    pub(super) unreadable: BTreeMap<Arc<Path>, String>,
    /// The symlinks with a manifest's name, and the file that each leads to, if there is one.
    pub(super) links: BTreeMap<Arc<Path>, Option<Identity>>,
    /// Whether a symlink leads to a directory.
    pub(super) links_directories: bool,
    /// Whether something was reported since it began that another is to find out.
    pub(super) is_outdated: bool,
}

/// A file with a manifest's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScannedFile {
    Present(Fingerprint),
    /// Why its metadata cannot be read.
    Unreadable(String),
}

/// The entry at one path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(Fingerprint),
    Directory,
    /// Why its metadata cannot be read.
    Unreadable(String),
    /// Nothing that a manifest is read from: no file, a symlink that leads nowhere, a pipe.
    Absent,
}

/// Identifies the version of a file that was read. Size and times change with a write in place, the identity with a
/// rename or a symlink that leads elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) identity: Identity,
    pub(super) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity(u64, u64);

/// The entries of a directory.
#[derive(Default)]
struct Listed {
    files: Vec<(Arc<Path>, ScannedFile)>,
    directories: Vec<Arc<Path>>,
}

impl Scan {
    /// Lists every manifest under `root`. Symlinks are followed; each directory is walked once, in path order,
    /// whatever leads to it, so that loops end.
    pub(super) fn of(root: &Path) -> Self {
        let mut scan = Self::default();
        let (mut files, mut walked) = (Vec::new(), BTreeSet::new());
        let mut pending: Vec<Arc<Path>> = vec![root.into()];
        while let Some(path) = pending.pop() {
            match scan.list(&path, &mut walked) {
                Ok(listed) => {
                    files.extend(listed.files);
                    pending.extend(listed.directories);
                }
                // A directory below that was removed since its parent was listed. The root must exist.
                Err(error) if error.kind() == io::ErrorKind::NotFound && *path != *root => {}
                Err(error) => {
                    scan.unreadable.insert(path, in_words(&error));
                }
            }
        }
        scan.files = files.into_iter().collect();
        scan
    }

    /// Whether `path` or a directory on the way to it could not be listed, so that its absence means nothing.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        !self.unreadable.is_empty()
            && path.ancestors().any(|ancestor| self.unreadable.contains_key(ancestor))
    }

    /// The directories in `directory` are in reverse order: the last is walked first.
    fn list(
        &mut self,
        directory: &Arc<Path>,
        walked: &mut BTreeSet<Identity>,
    ) -> io::Result<Listed> {
        let identity = Identity::of(&fs::metadata(directory)?);
        let mut listed = Listed::default();
        if !walked.insert(identity) {
            return Ok(listed);
        }
        let entries = fs::read_dir(directory)?;
        self.directories.insert(directory.clone(), identity);
        for entry in entries {
            let entry = entry?;
            // A ConfigMap mount keeps its versions in directories that begin with a dot; the names beside them are
            // symlinks into the newest.
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // An error says that it was removed meanwhile.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                listed.directories.push(entry.path().into());
            } else if kind.is_symlink() {
                self.follow(entry.path().into(), &mut listed);
            } else if kind.is_file() {
                let path: Arc<Path> = entry.path().into();
                if is_manifest(&path) {
                    listed.add(path, Entry::of(entry.metadata()));
                }
            }
        }
        listed.directories.sort_by(|one, other| other.cmp(one));
        Ok(listed)
    }

    fn follow(&mut self, path: Arc<Path>, listed: &mut Listed) {
        let entry = Entry::of(fs::metadata(&path));
        if entry == Entry::Directory {
            self.links_directories = true;
            listed.directories.push(path);
        } else if is_manifest(&path) {
            self.links.insert(path.clone(), entry.identity());
            listed.add(path, entry);
        }
    }
}

impl Listed {
    fn add(&mut self, path: Arc<Path>, entry: Entry) {
        match entry {
            Entry::File(fingerprint) => {
                self.files.push((path, ScannedFile::Present(fingerprint)));
            }
            Entry::Unreadable(reason) => self.files.push((path, ScannedFile::Unreadable(reason))),
            Entry::Directory => self.directories.push(path),
            Entry::Absent => {}
        }
    }
}

impl Entry {
    /// The entry at `path`, and whether it is a symlink.
    pub(super) fn at(path: &Path) -> (Self, bool) {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => (Self::of(fs::metadata(path)), true),
            metadata => (Self::of(metadata), false),
        }
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        match self {
            Self::File(fingerprint) => Some(fingerprint.identity),
            Self::Directory | Self::Unreadable(_) | Self::Absent => None,
        }
    }

    fn of(metadata: io::Result<Metadata>) -> Self {
        match metadata {
            Ok(metadata) if metadata.is_dir() => Self::Directory,
            Ok(metadata) if metadata.is_file() => Self::File(Fingerprint::of(&metadata)),
            // A pipe with a manifest's name would block its reader.
            Ok(_) => Self::Absent,
            // It was removed since it was listed, or a symlink leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(error) => Self::Unreadable(in_words(&error)),
        }
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
        Scan::of(root).files.keys().map(relative).collect()
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
        let scan = Scan::of(root.path());
        assert!(scan.links_directories);
        let links: Vec<_> = scan.links.iter().map(|(path, to)| (&**path, to.is_some())).collect();
        assert_eq!(
            links,
            [(&*root.path().join("dangling.yaml"), false), (&*root.path().join("link.yaml"), true)]
        );
    }

    /// A walk and the inspection of one path say the same.
    #[test]
    fn an_entry_is_what_a_walk_finds() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("file.yaml"), "text").unwrap();
        fs::create_dir(path("directory.yaml")).unwrap();
        symlink("file.yaml", path("link.yaml")).unwrap();
        symlink("directory.yaml", path("up.yaml")).unwrap();
        symlink("nowhere", path("dangling.yaml")).unwrap();
        symlink("loop.yaml", path("loop.yaml")).unwrap();
        let scan = Scan::of(root.path());
        for name in ["file", "directory", "link", "up", "dangling", "loop", "missing"] {
            let path = path(&format!("{name}.yaml"));
            let (entry, is_link) = Entry::at(&path);
            let expected = match scan.files.get(&*path) {
                Some(ScannedFile::Present(fingerprint)) => Entry::File(*fingerprint),
                Some(ScannedFile::Unreadable(reason)) => Entry::Unreadable(reason.clone()),
                None if fs::metadata(&path).is_ok_and(|metadata| metadata.is_dir()) => {
                    Entry::Directory
                }
                None => Entry::Absent,
            };
            assert_eq!(entry, expected, "{name}");
            let is_link = is_link && entry != Entry::Directory;
            assert_eq!(is_link, scan.links.contains_key(&*path), "{name}");
        }
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
        let files = Scan::of(root.path()).files;
        let unreadable =
            files.values().filter(|file| matches!(file, ScannedFile::Unreadable(_))).count();
        assert_eq!((files.len(), unreadable), (4, 1), "a symlink to itself is reported");
    }

    #[test]
    fn what_is_behind_an_unreadable_directory_is_hidden() {
        let missing = Scan::of(Path::new("/nonexistent/manifests"));
        assert!(missing.is_hidden(Path::new("/nonexistent/manifests/a.yaml")));
        assert!(!missing.is_hidden(Path::new("/nonexistent/other/a.yaml")));
    }
}

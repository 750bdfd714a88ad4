use super::catalogue::{Catalogue, Difference, FoundFile};
use super::debounce::FileDebounce;
use super::links::Links;
use super::notifications::{DirectoryWatcher, Notifications, Notified};
use super::reading;
use super::remarks::RemarkList;
use super::scan::{Entry, Fingerprint, Identity, Scan, ScannedFile, is_manifest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon to inspect a file again that changed while it was read.
const READ_AGAIN: Duration = Duration::from_millis(20);

/// The manifests of a directory tree, as far as they have been read. Its IO blocks.
///
/// A notification costs the inspection of the path that it names. A scan costs a walk through the tree, and says which
/// files to inspect besides: it finds what the system does not report, and what it reports of directories.
pub(super) struct Directory {
    root: PathBuf,
    watcher: DirectoryWatcher,
    debounce: FileDebounce,
    catalogue: Catalogue,
    /// Those that the last scan walked.
    directories: BTreeMap<Arc<Path>, Identity>,
    links: Links,
    /// The directories that the last scan could not list, and why.
    unreadable_directories: BTreeMap<Arc<Path>, String>,
    /// The files whose metadata could not be read when they were last inspected.
    unreadable_files: BTreeSet<Arc<Path>>,
    /// Since when a scan is to find out what changed.
    scan_wanted: Option<Instant>,
}

/// The result of an update of the directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryStep {
    pub(super) difference: Difference,
    /// When to update it again, if nothing is reported before.
    pub(super) update_in: Option<Duration>,
    /// Whether a scan is to find out what changed.
    pub(super) wants_scan: bool,
    /// How many files were inspected.
    pub(super) inspected: usize,
    /// How many of those were read.
    pub(super) read: usize,
}

type FileContents = (Arc<Path>, FoundFile);

impl Directory {
    /// Reads every manifest under `root` as it is.
    pub(super) fn open(root: &Path) -> (Self, Notifications, Difference) {
        let (watcher, notifications) = DirectoryWatcher::new(root);
        let mut directory = Self {
            root: root.to_owned(),
            watcher,
            debounce: FileDebounce::default(),
            catalogue: Catalogue::default(),
            directories: BTreeMap::new(),
            links: Links::default(),
            unreadable_directories: BTreeMap::new(),
            unreadable_files: BTreeSet::new(),
            scan_wanted: None,
        };
        let scan = Scan::of(root);
        let mut contents = Vec::new();
        for (path, file) in &scan.files {
            match file {
                ScannedFile::Present(_) => contents.extend(directory.read(path, None)),
                // The first update inspects it again.
                ScannedFile::Unreadable(reason) => {
                    directory.unreadable_files.insert(path.clone());
                    contents.push((path.clone(), FoundFile::Unreadable(reason.clone())));
                }
            }
        }
        directory.reconcile(scan, &mut contents);
        let difference = directory.catalogue.update(contents);
        (directory, notifications, difference)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn remarks(&self) -> &RemarkList {
        self.catalogue.remarks()
    }

    /// Inspects the files that may have changed, and reads those that did and are ready.
    pub(super) fn update(
        &mut self,
        now: Instant,
        notified: &Notified,
        scan: Option<Scan>,
    ) -> DirectoryStep {
        let mut step = DirectoryStep {
            wants_scan: notified.lost || notified.elsewhere,
            ..DirectoryStep::default()
        };
        let (mut paths, mut contents) = (BTreeSet::new(), Vec::new());
        if notified.lost {
            self.debounce.forget_writers();
            self.watcher.distrust();
        }
        notified.paths.keys().for_each(|path| self.watcher.forget(path));
        let is_scanned = scan.as_ref().is_some_and(|scan| !scan.is_outdated);
        if let Some(scan) = scan {
            paths.extend(self.debounce.differing(&scan));
            step.wants_scan |= self.reconcile(scan, &mut contents);
            paths.extend(self.unreadable_files.iter().cloned());
        }
        for path in notified.paths.keys() {
            match self.affected_by(path) {
                Some(affected) => paths.extend(affected),
                None => step.wants_scan = true,
            }
        }
        paths.extend(self.debounce.waiting().cloned());
        step.inspected = paths.len();
        for path in paths {
            let is_clear = self.inspect(now, path, notified, &mut contents);
            step.wants_scan |= !is_clear;
        }
        if step.wants_scan {
            self.scan_wanted.get_or_insert(now);
        } else if is_scanned {
            self.scan_wanted = None;
        }
        let decision = self.debounce.decide(now, self.scan_wanted);
        step.update_in = decision.decide_in;
        step.read = decision.read.len();
        for (path, fingerprint) in decision.read {
            match self.read(&path, Some(fingerprint)) {
                Some(read) => contents.push(read),
                None => {
                    let sooner = step.update_in.filter(|it| *it < READ_AGAIN);
                    step.update_in = Some(sooner.unwrap_or(READ_AGAIN));
                }
            }
        }
        for path in decision.gone {
            self.debounce.accept(path.clone(), None);
            contents.push((path, FoundFile::Gone));
        }
        step.difference = self.catalogue.update(contents);
        step
    }

    /// The files that a change at `path` may concern. None if only a scan can say.
    fn affected_by(&self, path: &Path) -> Option<Vec<Arc<Path>>> {
        let is_walked = |path: &Path| self.directories.contains_key(path);
        if is_walked(path) || !path.parent().is_some_and(is_walked) {
            return None;
        }
        if is_manifest(path) {
            let identities = self.debounce.fingerprints(path).map(|it| it.identity);
            let links = self.links.affected_by(identities).cloned();
            return Some(links.chain([path.into()]).collect());
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() || metadata.is_symlink() => None,
            // It may have been a part of the way to a directory.
            Err(_) if self.links.lead_to_directories() => None,
            // Symlinks may lead to it, or did.
            Ok(_) | Err(_) => Some(self.links.all().cloned().collect()),
        }
    }

    /// Adopts what a scan found of directories. Returns whether another scan is needed: there are directories in which
    /// something may have happened before they were watched.
    fn reconcile(&mut self, scan: Scan, contents: &mut Vec<FileContents>) -> bool {
        let has_new = self.watcher.follow(&scan);
        self.debounce.stop_waiting(|path| scan.is_hidden(path));
        for path in self.unreadable_directories.keys() {
            if scan.files.contains_key(path) {
                self.unreadable_files.insert(path.clone());
            } else if !scan.unreadable.contains_key(path) && !self.debounce.knows(path) {
                contents.push((path.clone(), FoundFile::Gone));
            }
        }
        for (path, reason) in &scan.unreadable {
            contents.push((path.clone(), FoundFile::Unreadable(reason.clone())));
        }
        self.links = Links::of(&scan);
        self.directories = scan.directories;
        self.unreadable_directories = scan.unreadable;
        has_new
    }

    /// Finds out whether a file changed. Returns false if only a scan can say.
    fn inspect(
        &mut self,
        now: Instant,
        path: Arc<Path>,
        notified: &Notified,
        contents: &mut Vec<FileContents>,
    ) -> bool {
        // Without its directory it is hidden, or another path leads there.
        let is_listed = path.parent().is_some_and(|parent| self.directories.contains_key(parent));
        let (entry, is_link) = if is_listed { Entry::at(&path) } else { (Entry::Absent, false) };
        self.links.update(&path, &entry, is_link);
        let mut is_clear = true;
        let found = match entry {
            Entry::File(fingerprint) => {
                if self.unreadable_files.remove(&path) {
                    self.debounce.forget(&path);
                }
                Some(fingerprint)
            }
            Entry::Unreadable(reason) => {
                // Its directory may be what cannot be read.
                is_clear = !self.unreadable_files.insert(path.clone());
                self.debounce.stop_waiting(|waiting| *waiting == *path);
                contents.push((path, FoundFile::Unreadable(reason)));
                return is_clear;
            }
            // That it is not there means nothing.
            Entry::Absent if self.is_hidden(&path) => {
                self.debounce.stop_waiting(|waiting| *waiting == *path);
                return true;
            }
            Entry::Absent if fs::metadata(&self.root).is_err() => return false,
            Entry::Directory | Entry::Absent => {
                if self.unreadable_files.remove(&path) && !self.debounce.knows(&path) {
                    contents.push((path.clone(), FoundFile::Gone));
                }
                let is_new = !self.directories.contains_key(&path);
                is_clear = !(entry == Entry::Directory && is_new && notified.names(&path));
                None
            }
        };
        let writer = notified.writer(&path);
        self.debounce.observe(now, path, found, writer);
        is_clear
    }

    /// Whether the last scan could not list a directory on the way to `path`.
    fn is_hidden(&self, path: &Path) -> bool {
        path.ancestors().any(|ancestor| self.unreadable_directories.contains_key(ancestor))
    }

    /// None if the file did not stay as it was when it was chosen for reading.
    fn read(&mut self, path: &Arc<Path>, expected: Option<Fingerprint>) -> Option<FileContents> {
        let (contents, fingerprint) = reading::read(path)?;
        if expected.is_some_and(|expected| expected != fingerprint) {
            return None;
        }
        self.debounce.accept(path.clone(), Some(fingerprint));
        Some((path.clone(), contents))
    }
}

#[cfg(test)]
mod tests;

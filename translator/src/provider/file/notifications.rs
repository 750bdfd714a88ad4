use super::debounce::WriterState;
use super::scan::{Identity, Scan, is_manifest};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// More than this many at once cost as much as a scan of everything.
const CAPACITY: usize = 1024;

/// Has the system report changes in exactly the directories that a scan walked.
pub(super) struct DirectoryWatcher {
    /// None if the system reports nothing; then only scans find changes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<Arc<Path>, Identity>,
    /// Whether what is watched may not be any more.
    is_distrusted: bool,
}

/// Notifications of the system. A lost notification delays a change and never hides it: a scan finds it.
pub(super) struct Notifications {
    receiver: mpsc::Receiver<Notification>,
    /// Set when a notification was lost.
    lost: Arc<AtomicBool>,
    root: PathBuf,
    /// The system reports absolute paths.
    absolute_root: PathBuf,
}

/// The notifications since the last call.
#[derive(Debug, Default)]
pub(super) struct Notified {
    /// The paths at which something changed, with the last that is known of the writer of each.
    pub(super) paths: BTreeMap<PathBuf, Option<WriterState>>,
    /// Whether something changed at a path that was not named.
    pub(super) elsewhere: bool,
    /// Whether there was more than could be kept.
    pub(super) lost: bool,
}

enum Notification {
    At(PathBuf, Option<WriterState>),
    Elsewhere,
}

impl DirectoryWatcher {
    /// For the directories under `root`.
    pub(super) fn new(root: &Path) -> (Self, Notifications) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let lost = Arc::new(AtomicBool::new(false));
        let losing = lost.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.as_ref().is_ok_and(notify::Event::need_rescan) {
                losing.store(true, Ordering::Relaxed);
            }
            for notification in event.map_or_else(|_| vec![Notification::Elsewhere], decode) {
                if sender.try_send(notification).is_err() {
                    losing.store(true, Ordering::Relaxed);
                }
            }
        });
        let watcher = watcher.inspect_err(fall_back).ok();
        let absolute_root =
            std::env::current_dir().map_or_else(|_| root.to_owned(), |base| base.join(root));
        let notifications = Notifications { receiver, lost, root: root.to_owned(), absolute_root };
        (Self { watcher, watched: BTreeMap::new(), is_distrusted: false }, notifications)
    }

    /// Something happened to this directory itself: it may be another one by now, of the same name and even of the same inode,
    /// which a file system gives out again. The next scan watches it anew.
    pub(super) fn forget(&mut self, directory: &Path) {
        self.watched.remove(directory);
    }

    /// Notifications were lost, and that of a directory which is another one now may be among them. The next scan watches
    /// all directories again, which changes nothing for those that are watched.
    pub(super) fn distrust(&mut self) {
        self.is_distrusted = true;
    }

    /// Watches the directories of `scan` and no others. Returns whether there are new ones, in which something may
    /// have happened before they were watched.
    pub(super) fn follow(&mut self, scan: &Scan) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        // A directory that was replaced by another of its name is another.
        let stale = self
            .watched
            .iter()
            .filter(|(path, identity)| scan.directories.get(*path) != Some(identity));
        let stale: Vec<Arc<Path>> = stale.map(|(path, _)| path.clone()).collect();
        for path in stale {
            // It fails when the directory is gone, and the watch with it.
            let _ = watcher.unwatch(&path);
            self.watched.remove(&path);
        }
        let is_distrusted = std::mem::take(&mut self.is_distrusted);
        let mut new = false;
        for (path, identity) in &scan.directories {
            let is_watched = self.watched.contains_key(path);
            if is_watched && !is_distrusted {
                continue;
            }
            match watcher.watch(path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(path.clone(), *identity);
                    new |= !is_watched;
                }
                Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                    fall_back(&error);
                    self.watcher = None;
                    return false;
                }
                // Most likely it is gone since it was listed; otherwise the next scan tries again.
                Err(_) => {}
            }
        }
        new
    }
}

impl Notifications {
    /// Waits until something happened. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Notified {
        let mut notified = Notified::default();
        let mut next = match self.receiver.recv().await {
            Some(notification) => Some(notification),
            // There is no watcher.
            None => std::future::pending().await,
        };
        while let Some(notification) = next {
            match notification {
                Notification::At(path, writer) => {
                    let known = notified.paths.entry(self.as_scanned(path)).or_default();
                    *known = writer.or(*known);
                }
                Notification::Elsewhere => notified.elsewhere = true,
            }
            next = self.receiver.try_recv().ok();
        }
        notified.lost = self.lost.swap(false, Ordering::Relaxed);
        notified
    }

    fn as_scanned(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.absolute_root) {
            Ok(below) => self.root.join(below),
            Err(_) => path,
        }
    }
}

impl Notified {
    pub(super) fn names(&self, path: &Path) -> bool {
        self.paths.contains_key(path)
    }

    /// The state of a file's writer. `None` also for a writer at work if notifications were lost: one that it closed the
    /// file may be among them.
    pub(super) fn writer(&self, path: &Path) -> Option<WriterState> {
        let writer = self.paths.get(path).copied().flatten();
        writer.filter(|writer| *writer == WriterState::Closed || !self.lost)
    }
}

fn decode(event: notify::Event) -> Vec<Notification> {
    let of_manifests = |paths: Vec<PathBuf>, writer: Option<WriterState>| {
        let manifests = paths.into_iter().filter(|path| is_manifest(path));
        manifests.map(|path| Notification::At(path, writer)).collect::<Vec<Notification>>()
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            of_manifests(event.paths, Some(WriterState::Closed))
        }
        // This program opens files itself.
        EventKind::Access(_) => Vec::new(),
        // Other files in the same directory, such as logs, may be written all the time.
        EventKind::Modify(ModifyKind::Data(_)) => {
            of_manifests(event.paths, Some(WriterState::Writing))
        }
        EventKind::Modify(ModifyKind::Metadata(_)) => of_manifests(event.paths, None),
        // A rename may be of a directory, or of the symlink behind which a ConfigMap's files are. Where a pair is
        // reported, the first path is the old one, at which there is no file.
        EventKind::Modify(ModifyKind::Name(_)) => {
            let writer = |path: &Path| is_manifest(path).then_some(WriterState::Closed);
            let paths = event.paths.into_iter();
            paths
                .map(|path| (writer(&path), path))
                .map(|(it, path)| Notification::At(path, it))
                .collect()
        }
        _ if event.paths.is_empty() => vec![Notification::Elsewhere],
        _ => event.paths.into_iter().map(|path| Notification::At(path, None)).collect(),
    }
}

fn fall_back(error: &notify::Error) {
    tracing::warn!(%error, "the operating system does not report changed files; scanning every few seconds instead");
}

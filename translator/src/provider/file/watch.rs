use super::listing::{Identity, Listing, is_manifest};
use super::patience::{Sign, Told};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// More than this many at once are as good as a look at everything.
const CAPACITY: usize = 1024;

/// Asks the system to tell of changes in exactly the directories that are walked.
pub(super) struct Watch {
    /// None if the system cannot tell; then looking from time to time is all there is.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<Arc<Path>, Identity>,
}

/// What the system told. A hint that gets lost costs time, never a change: everything is looked at from time to
/// time.
pub(super) struct Hints {
    receiver: mpsc::Receiver<Hint>,
    /// Set when a hint was lost.
    lost: Arc<AtomicBool>,
    root: PathBuf,
    /// The system tells absolute paths.
    told_root: PathBuf,
}

enum Hint {
    Something,
    Of(PathBuf, Sign),
}

impl Watch {
    /// For the directories under `root`.
    pub(super) fn new(root: &Path) -> (Self, Hints) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let lost = Arc::new(AtomicBool::new(false));
        let losing = lost.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.as_ref().is_ok_and(notify::Event::need_rescan) {
                losing.store(true, Ordering::Relaxed);
            }
            for hint in event.map_or_else(|_| vec![Hint::Something], hints_of) {
                if sender.try_send(hint).is_err() {
                    losing.store(true, Ordering::Relaxed);
                }
            }
        });
        let watcher = watcher.inspect_err(fall_back).ok();
        let told_root =
            std::env::current_dir().map_or_else(|_| root.to_owned(), |base| base.join(root));
        let hints = Hints { receiver, lost, root: root.to_owned(), told_root };
        (Self { watcher, watched: BTreeMap::new() }, hints)
    }

    /// Watches the directories of `listing` and no others. Returns whether there are new ones, in which something
    /// may have happened before they were watched.
    pub(super) fn follow(&mut self, listing: &Listing) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        // A directory that was replaced by another of its name is another.
        let stale = self
            .watched
            .iter()
            .filter(|(path, identity)| listing.directories.get(*path) != Some(identity));
        let stale: Vec<Arc<Path>> = stale.map(|(path, _)| path.clone()).collect();
        for path in stale {
            // It fails when the directory is gone, and the watch with it.
            let _ = watcher.unwatch(&path);
            self.watched.remove(&path);
        }
        let mut new = false;
        for (path, identity) in &listing.directories {
            if self.watched.contains_key(path) {
                continue;
            }
            match watcher.watch(path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(path.clone(), *identity);
                    new = true;
                }
                Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                    fall_back(&error);
                    self.watcher = None;
                    return false;
                }
                // Most likely gone since it was listed; otherwise it is tried again at the next look.
                Err(_) => {}
            }
        }
        new
    }
}

impl Hints {
    /// Waits until something happened, but no longer than `patience`.
    pub(super) async fn wait(&mut self, patience: Duration) -> Told {
        let mut told = Told::default();
        let mut hint = match tokio::time::timeout(patience, self.receiver.recv()).await {
            Ok(Some(hint)) => Some(hint),
            Err(_) => None,
            // There is no watcher: time is all there is to wait for.
            Ok(None) => {
                tokio::time::sleep(patience).await;
                None
            }
        };
        while let Some(next) = hint {
            if let Hint::Of(path, sign) = next {
                told.signs.insert(self.as_listed(path), sign);
            }
            hint = self.receiver.try_recv().ok();
        }
        told.lost = self.lost.swap(false, Ordering::Relaxed);
        told
    }

    fn as_listed(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.told_root) {
            Ok(below) => self.root.join(below),
            Err(_) => path,
        }
    }
}

fn hints_of(event: notify::Event) -> Vec<Hint> {
    let of_manifests = |paths: Vec<PathBuf>, sign: Sign| {
        let manifests = paths.into_iter().filter(|path| is_manifest(path));
        manifests.map(|path| Hint::Of(path, sign)).collect::<Vec<Hint>>()
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            of_manifests(event.paths, Sign::Done)
        }
        // We open files ourselves.
        EventKind::Access(_) => Vec::new(),
        // Somebody's log in the same directory is no reason to look.
        EventKind::Modify(ModifyKind::Data(_)) => of_manifests(event.paths, Sign::Writing),
        EventKind::Modify(ModifyKind::Metadata(_)) => {
            let any = event.paths.iter().any(|path| is_manifest(path));
            any.then_some(Hint::Something).into_iter().collect()
        }
        // A rename may be of a directory, or of the symlink behind which a ConfigMap's files are. Where a pair is
        // told, the first path is the old one and names no file.
        EventKind::Modify(ModifyKind::Name(_)) => {
            let mut hints = of_manifests(event.paths, Sign::Done);
            hints.push(Hint::Something);
            hints
        }
        _ => vec![Hint::Something],
    }
}

fn fall_back(error: &notify::Error) {
    tracing::warn!(%error, "the system does not tell of changed files: looking every few seconds instead");
}

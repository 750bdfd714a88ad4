use super::listing::{Identity, Listing, is_manifest};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
pub(super) struct Hints(mpsc::Receiver<Hint>);

enum Hint {
    Something,
    /// The writer of this file closed it, or it was renamed to this.
    Complete(PathBuf),
}

impl Watch {
    pub(super) fn new() -> (Self, Hints) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            for hint in event.map_or_else(|_| vec![Hint::Something], hints_of) {
                // When it is full, the one who reads it will look at everything anyway.
                let _ = sender.try_send(hint);
            }
        });
        let watcher = watcher.inspect_err(fall_back).ok();
        (Self { watcher, watched: BTreeMap::new() }, Hints(receiver))
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
    /// Waits until something happened, but no longer than `patience`. Returns the files whose writers are done.
    pub(super) async fn wait(&mut self, patience: Duration) -> BTreeSet<PathBuf> {
        let mut complete = BTreeSet::new();
        let mut hint = match tokio::time::timeout(patience, self.0.recv()).await {
            Ok(Some(hint)) => Some(hint),
            Err(_) => None,
            // There is no watcher: time is all there is to wait for.
            Ok(None) => {
                tokio::time::sleep(patience).await;
                None
            }
        };
        while let Some(told) = hint {
            if let Hint::Complete(path) = told {
                complete.insert(path);
            }
            hint = self.0.try_recv().ok();
        }
        complete
    }
}

fn hints_of(event: notify::Event) -> Vec<Hint> {
    let of_manifests = |paths: Vec<PathBuf>, hint: fn(PathBuf) -> Hint| {
        paths.into_iter().filter(|path| is_manifest(path)).map(hint).collect()
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            of_manifests(event.paths, Hint::Complete)
        }
        // We open files ourselves.
        EventKind::Access(_) => Vec::new(),
        // Somebody's log in the same directory is no reason to look.
        EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => {
            of_manifests(event.paths, |_| Hint::Something)
        }
        // A rename may be of a directory, or of the symlink behind which a ConfigMap's files are. Where a pair is
        // told, the first path is the old one and names no file.
        EventKind::Modify(ModifyKind::Name(_)) => {
            let mut hints: Vec<Hint> = of_manifests(event.paths, Hint::Complete);
            hints.push(Hint::Something);
            hints
        }
        _ => vec![Hint::Something],
    }
}

fn fall_back(error: &notify::Error) {
    tracing::warn!(%error, "the system does not tell of changed files: looking every few seconds instead");
}

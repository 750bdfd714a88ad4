//! Objects from a directory of manifests.
//!
//! [`Catalogue`] and `Patience` decide: the first what the files say, the second when a file is ready to be read.
//! The rest looks, reads and waits.

mod catalogue;
mod listing;
mod patience;
mod reading;
mod watch;

pub use catalogue::{Catalogue, Contents, Difference, Remark, RemarkKind};

use crate::metrics::FileMetrics;
use crate::provider::Input;
use heliograph_translator_core::objects::gateway;
use listing::Listing;
use patience::{Patience, Told};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};
use tokio::sync::{mpsc, watch as latest};
use tokio_util::sync::CancellationToken;
use watch::{Hints, Watch};

/// How long a change goes unnoticed of which the system did not tell, such as one behind a symlink.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// How soon to look again at a file that changed while it was read.
const READ_AGAIN: Duration = Duration::from_millis(20);

/// A directory whose manifests have been read once and are watched from then on.
pub struct File {
    directory: Directory,
    hints: Hints,
    first: Difference,
    remarks: latest::Sender<Arc<[Remark]>>,
    metrics: FileMetrics,
}

#[derive(Debug, thiserror::Error)]
#[error("{} {}", path.display(), in_words(cause))]
pub struct OpenError {
    path: PathBuf,
    cause: io::Error,
}

#[derive(Debug, thiserror::Error)]
#[error("reading the files failed: {0}")]
pub struct WatchError(#[from] tokio::task::JoinError);

/// A directory in which something cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first}{}", more_of(*more))]
pub struct Faults {
    first: Remark,
    more: usize,
}

/// The part that blocks, so it is run where that harms nobody.
struct Directory {
    root: PathBuf,
    watch: Watch,
    patience: Patience,
    catalogue: Catalogue,
    /// What could not be looked at the last time.
    unreadable: BTreeSet<Arc<Path>>,
}

impl File {
    /// Reads all manifests under `root`.
    pub fn open(root: &Path, metrics: FileMetrics) -> Result<Self, OpenError> {
        check_directory(root)?;
        let (watch, hints) = Watch::new(root);
        let mut directory = Directory {
            root: root.to_owned(),
            watch,
            patience: Patience::default(),
            catalogue: Catalogue::default(),
            unreadable: BTreeSet::new(),
        };
        let difference = directory.read_all();
        let remarks = latest::Sender::new(difference.remarks.as_slice().into());
        Ok(Self { directory, hints, first: difference, remarks, metrics })
    }

    /// What is to be said of the files now.
    pub fn remarks(&self) -> latest::Receiver<Arc<[Remark]>> {
        self.remarks.subscribe()
    }

    /// Tells everything, then every change, until it is stopped.
    pub async fn run(
        mut self,
        inputs: mpsc::Sender<Input>,
        stop: CancellationToken,
    ) -> Result<(), WatchError> {
        let first = std::mem::take(&mut self.first);
        self.remark(&first.remarks);
        let mut heard = inputs.send(Input::Batch(first.events)).await.is_ok()
            && inputs.send(Input::Synced).await.is_ok();
        let mut patience = Duration::ZERO;
        while heard {
            let told = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                told = self.hints.wait(patience) => told,
            };
            let mut directory = self.directory;
            let look = tokio::task::spawn_blocking(move || {
                let (difference, look_again) = directory.look(Instant::now(), &told);
                (directory, difference, look_again)
            });
            let (directory, difference, look_again) = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                looked = look => looked?,
            };
            self.directory = directory;
            patience = look_again.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
            self.remark(&difference.remarks);
            if !difference.events.is_empty() {
                heard = inputs.send(Input::Batch(difference.events)).await.is_ok();
            }
        }
        // Nobody listens: whoever did has ended, and it is for them to say why.
        stop.cancelled().await;
        Ok(())
    }

    fn remark(&self, new: &[Remark]) {
        for remark in new {
            match remark.kind {
                RemarkKind::Fault => tracing::error!("{remark}"),
                RemarkKind::Duplicate => tracing::warn!("{remark}"),
                // Of the API that is spoken here, a kind that is not known is most often a misspelt one.
                RemarkKind::Ignored if remark.text.starts_with(gateway::GROUP) => {
                    tracing::warn!("{remark}");
                }
                RemarkKind::Ignored => tracing::debug!("{remark}"),
            }
        }
        let now: Arc<[Remark]> = self.directory.catalogue.remarks().cloned().collect();
        for file in faulty(&self.remarks.borrow()).difference(&faulty(&now)) {
            tracing::info!("{file}: has no fault any more");
        }
        self.metrics.remarks(&now);
        self.remarks.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }
}

impl Directory {
    /// Reads every file as it is.
    fn read_all(&mut self) -> Difference {
        let listing = Listing::of(&self.root);
        self.watch.follow(&listing);
        let mut found = self.unseen(&listing);
        found.extend(listing.files.keys().filter_map(|path| self.read(path, None)));
        self.catalogue.update(found)
    }

    /// Reads what has changed and is ready. Returns also when to look again, if that is soon.
    fn look(&mut self, now: Instant, told: &Told) -> (Difference, Option<Duration>) {
        let mut listing = Listing::of(&self.root);
        // Until no directory appears: what was put into one before it was watched was not told.
        while self.watch.follow(&listing) {
            listing = Listing::of(&self.root);
        }
        let mut found = self.unseen(&listing);
        let decision = self.patience.decide(now, &listing, told);
        let mut look_again = decision.look_again;
        for (path, fingerprint) in decision.read {
            match self.read(&path, Some(fingerprint)) {
                Some(contents) => found.push(contents),
                None => look_again = Some(READ_AGAIN),
            }
        }
        for path in decision.gone {
            self.patience.accept(path.clone(), None);
            found.push((path, Contents::Gone));
        }
        (self.catalogue.update(found), look_again)
    }

    /// None if the file did not stay as it was when it was chosen for reading.
    fn read(
        &mut self,
        path: &Arc<Path>,
        expected: Option<listing::Fingerprint>,
    ) -> Option<(Arc<Path>, Contents)> {
        let (contents, fingerprint) = reading::read(path)?;
        if expected.is_some_and(|expected| expected != fingerprint) {
            return None;
        }
        self.patience.accept(path.clone(), Some(fingerprint));
        Some((path.clone(), contents))
    }

    /// What is to be said of places that cannot be looked at. What they held stays.
    fn unseen(&mut self, listing: &Listing) -> Vec<(Arc<Path>, Contents)> {
        let now: BTreeSet<Arc<Path>> = listing.unreadable.keys().cloned().collect();
        let mut found: Vec<(Arc<Path>, Contents)> = listing
            .unreadable
            .iter()
            .map(|(path, reason)| (path.clone(), Contents::Unreadable(reason.clone())))
            .collect();
        for path in self.unreadable.difference(&now) {
            if listing.files.contains_key(path) {
                self.patience.forget(path);
            } else if !self.patience.knows(path) {
                found.push((path.clone(), Contents::Gone));
            }
        }
        self.unreadable = now;
        found
    }
}

/// Reads files and directories once: the events that their objects give, and all that is to be said of them.
pub fn read_once(paths: &[PathBuf]) -> Result<Difference, OpenError> {
    let mut catalogue = Catalogue::default();
    let mut found = Vec::new();
    for path in paths {
        let metadata =
            fs::metadata(path).map_err(|cause| OpenError { path: path.clone(), cause })?;
        if metadata.is_dir() {
            check_directory(path)?;
            let listing = Listing::of(path);
            let unreadable = |(path, reason)| (path, Contents::Unreadable(reason));
            found.extend(listing.unreadable.into_iter().map(unreadable));
            let files = listing.files.into_keys();
            found.extend(files.filter_map(|path| Some((path.clone(), reading::read(&path)?.0))));
        } else {
            let (contents, _) = reading::read(path).ok_or_else(|| OpenError {
                path: path.clone(),
                cause: io::Error::other("it changed while it was read"),
            })?;
            found.push((Arc::from(path.as_path()), contents));
        }
    }
    Ok(catalogue.update(found))
}

/// For the start of a program: then there is no earlier version that could go on to count.
pub fn refuse_faults(remarks: &[Remark]) -> Result<(), Faults> {
    let mut faults = remarks.iter().filter(|remark| remark.kind == RemarkKind::Fault);
    match faults.next() {
        None => Ok(()),
        Some(first) => Err(Faults { first: first.clone(), more: faults.count() }),
    }
}

fn more_of(faults: usize) -> String {
    if faults == 0 { String::new() } else { format!(" (and {faults} more like it)") }
}

/// The files that could not be understood.
fn faulty(remarks: &[Remark]) -> BTreeSet<&str> {
    let faults = remarks.iter().filter(|remark| remark.kind == RemarkKind::Fault);
    faults.map(|remark| remark.file.as_str()).collect()
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

fn check_directory(path: &Path) -> Result<(), OpenError> {
    fs::read_dir(path).map(drop).map_err(|cause| OpenError { path: path.to_owned(), cause })
}

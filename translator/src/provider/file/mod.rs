//! Objects from a directory of manifests.
//!
//! [`Catalogue`] and `FileDebounce` decide: the first has the contents of the files, the second decides when a file is
//! ready to be read. `Directory` does the IO, and [`File`] decides when. A notification of the system costs as much as
//! the files that it names. A scan of everything runs beside that from time to time, and finds what the system did not
//! report.

mod catalogue;
mod debounce;
mod directory;
mod links;
mod notifications;
mod reading;
mod remarks;
mod scan;

pub use catalogue::{Catalogue, Difference, FoundFile};
pub use remarks::{Remark, RemarkKind, RemarkList};

use crate::metrics::FileMetrics;
use crate::provider::Input;
use directory::{Directory, DirectoryStep};
use heliograph_gateway::objects::gateway;
use notifications::{Notifications, Notified};
use remarks::{RemarkSubject, has_fault};
use scan::{Scan, ScannedFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a change stays unnoticed that the system does not report, such as one behind a symlink.
const SCAN_EVERY: Duration = Duration::from_secs(3);

/// A directory whose manifests have been read once and are watched from then on.
pub struct File {
    directory: Directory,
    notifications: Notifications,
    first: Difference,
    remarks: watch::Sender<RemarkList>,
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
pub struct FileWatchError(#[from] JoinError);

/// A directory in which something cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first}{}", more_of(*more))]
pub struct Faults {
    first: Remark,
    more: usize,
}

/// When the directory is scanned. A scan runs beside the updates, so that none waits for it.
struct Scans {
    /// The one that runs.
    running: Option<JoinHandle<Scan>>,
    /// When the next one starts, if none runs then.
    due: Instant,
}

impl File {
    /// Reads all manifests under `root`.
    pub fn open(root: &Path, metrics: FileMetrics) -> Result<Self, OpenError> {
        check_directory(root)?;
        let (directory, notifications, first) = Directory::open(root);
        let remarks = watch::Sender::new(directory.remarks().clone());
        Ok(Self { directory, notifications, first, remarks, metrics })
    }

    /// All remarks on the files as they are now.
    pub fn remarks(&self) -> watch::Receiver<RemarkList> {
        self.remarks.subscribe()
    }

    /// Sends everything, then every change, until it is stopped.
    pub async fn run(
        mut self,
        inputs: mpsc::Sender<Input>,
        stop: CancellationToken,
    ) -> Result<(), FileWatchError> {
        let first = std::mem::take(&mut self.first);
        log_remarks(&first.remarks);
        self.metrics.remarks(&self.remarks.borrow());
        let mut is_open = inputs.send(Input::Batch(first.events)).await.is_ok()
            && inputs.send(Input::Synced).await.is_ok();
        // The first finds what changed before the directories were watched.
        let mut scans = Scans { running: None, due: Instant::now() };
        let mut update_at = None;
        while is_open {
            let (mut notified, mut scan) = (Notified::default(), None);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                reported = self.notifications.next() => notified = reported,
                found = scans.next(self.directory.root()) => scan = Some(found?),
                () = sleep_until(update_at.unwrap_or_else(Instant::now)), if update_at.is_some() => {}
            }
            let mut directory = self.directory;
            let update = spawn_blocking(move || {
                let step = directory.update(std::time::Instant::now(), &notified, scan);
                (directory, step)
            });
            let (directory, step) = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                updated = update => updated?,
            };
            self.directory = directory;
            let DirectoryStep { difference, update_in, wants_scan, inspected, read } = step;
            tracing::trace!(inspected, read, wants_scan, "updated");
            update_at = update_in.map(|wait| Instant::now() + wait);
            if wants_scan {
                scans.due = Instant::now();
            }
            log_remarks(&difference.remarks);
            self.replace_remarks(difference.subjects);
            if !difference.events.is_empty() {
                is_open = inputs.send(Input::Batch(difference.events)).await.is_ok();
            }
        }
        // The receiver has ended, and it reports why.
        stop.cancelled().await;
        Ok(())
    }

    fn replace_remarks(&self, subjects: impl IntoIterator<Item = (RemarkSubject, Arc<[Remark]>)>) {
        let mut mended = Vec::new();
        let is_changed = self.remarks.send_if_modified(|remarks| {
            let mut is_changed = false;
            for (subject, now) in subjects {
                is_changed = true;
                let (has_fault_now, name) = (has_fault(&now), subject.file());
                let before = remarks.set(subject, now);
                if has_fault(&before) && !has_fault_now {
                    mended.push(name);
                }
            }
            is_changed
        });
        if is_changed {
            self.metrics.remarks(&self.remarks.borrow());
        }
        for file in mended {
            tracing::info!("{}: has no error any more", file.display());
        }
    }
}

impl Scans {
    /// Waits for the next one to end. Dropping the future loses nothing.
    async fn next(&mut self, root: &Path) -> Result<Scan, JoinError> {
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                sleep_until(self.due).await;
                self.due = Instant::now() + SCAN_EVERY;
                let root = root.to_owned();
                self.running.insert(spawn_blocking(move || Scan::of(&root)))
            }
        };
        let scan = running.await;
        self.running = None;
        let is_outdated = self.due <= Instant::now();
        scan.map(|scan| Scan { is_outdated, ..scan })
    }
}

/// Reads files and directories once: the events that their objects give, and all remarks on them.
pub fn read_once(paths: &[PathBuf]) -> Result<Difference, OpenError> {
    let mut catalogue = Catalogue::default();
    let mut found = Vec::new();
    for path in paths {
        let metadata =
            fs::metadata(path).map_err(|cause| OpenError { path: path.clone(), cause })?;
        if metadata.is_dir() {
            check_directory(path)?;
            let Scan { files, unreadable, .. } = Scan::of(path);
            let directories = unreadable.into_iter();
            found.extend(directories.map(|(path, reason)| (path, FoundFile::Unreadable(reason))));
            for (path, file) in files {
                let contents = match file {
                    ScannedFile::Present(_) => reading::read(&path).map(|(contents, _)| contents),
                    ScannedFile::Unreadable(reason) => Some(FoundFile::Unreadable(reason)),
                };
                found.extend(contents.map(|contents| (path, contents)));
            }
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
pub fn refuse_faults<'a>(remarks: impl IntoIterator<Item = &'a Remark>) -> Result<(), Faults> {
    let faults = remarks.into_iter().filter(|remark| remark.kind == RemarkKind::Fault);
    let mut faults = faults.fuse();
    match faults.next() {
        None => Ok(()),
        Some(first) => Err(Faults { first: first.clone(), more: faults.count() }),
    }
}

fn log_remarks(new: &[Remark]) {
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
}

fn more_of(faults: usize) -> String {
    if faults == 0 { String::new() } else { format!(" (and {faults} more like it)") }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "is not readable for this user".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

fn check_directory(path: &Path) -> Result<(), OpenError> {
    fs::read_dir(path).map(drop).map_err(|cause| OpenError { path: path.to_owned(), cause })
}

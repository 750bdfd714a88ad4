use super::scan::{Fingerprint, Scan, ScannedFile};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file of whose writer nothing is known is read once it has not changed for this long.
const QUIET: Duration = Duration::from_millis(100);

/// A file that a writer has open is read when the writer closes it, or, for a writer that keeps its files open, after
/// this long without a change.
const WRITING: Duration = Duration::from_secs(30);

/// Some editors rename the old file away before they write the new one, so a file that is gone may come back.
const GONE: Duration = Duration::from_millis(300);

/// For this long a file that is being written, or a scan, delays the others, so that changes made together are applied
/// together.
const HOLD: Duration = Duration::from_millis(500);

/// Truncated and not yet written looks like emptied on purpose, which is rare.
const EMPTIED: Duration = Duration::from_secs(1);

/// Decides which files are ready to be read. It does no IO, and time comes in as a value.
#[derive(Debug, Default)]
pub(super) struct FileDebounce {
    /// The files as they were when they were last read.
    accepted: BTreeMap<Arc<Path>, Fingerprint>,
    waiting: BTreeMap<Arc<Path>, Waiting>,
}

/// The state of a file's writer, as the system reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterState {
    /// It has written, and has the file open.
    Writing,
    /// It closed the file, or renamed it into place.
    Closed,
}

/// The files to read now, and those that are gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DebounceDecision {
    pub(super) read: Vec<(Arc<Path>, Fingerprint)>,
    pub(super) gone: Vec<Arc<Path>>,
    /// When to decide again, if nothing changes before.
    pub(super) decide_in: Option<Duration>,
}

/// A file that is not as it was when it was read.
#[derive(Debug)]
struct Waiting {
    /// None if it is gone.
    found: Option<Fingerprint>,
    /// Since when it is as it was found last.
    since: Instant,
    /// Since when it differs from what was accepted.
    differs_since: Instant,
    /// None if nothing is known of its writer.
    writer: Option<WriterState>,
}

impl FileDebounce {
    /// Records how a file was found, and what the system reported of its writer.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        path: Arc<Path>,
        found: Option<Fingerprint>,
        writer: Option<WriterState>,
    ) {
        let writer = writer.filter(|_| found.is_some());
        // A file that was closed is read even if it looks the same: two writes of equal length may carry the
        // same time.
        if self.accepted.get(&path) == found.as_ref() && writer != Some(WriterState::Closed) {
            self.waiting.remove(&path);
            return;
        }
        let fresh = Waiting { found, since: now, differs_since: now, writer };
        let waiting = self.waiting.entry(path).or_insert(fresh);
        if waiting.found != found {
            waiting.found = found;
            waiting.since = now;
            // A closed file that changed has another writer. One that is being written still is, unless it is gone.
            let is_open = |writer: &WriterState| *writer == WriterState::Writing && found.is_some();
            waiting.writer = waiting.writer.filter(is_open);
        }
        waiting.writer = writer.or(waiting.writer);
    }

    /// Reports of the system were lost. That a writer closed its file may be among them.
    pub(super) fn forget_writers(&mut self) {
        self.waiting.values_mut().for_each(|waiting| waiting.writer = None);
    }

    /// Nothing is known any more of files that cannot be inspected.
    pub(super) fn stop_waiting(&mut self, is_hidden: impl Fn(&Path) -> bool) {
        self.waiting.retain(|path, _| !is_hidden(path));
    }

    /// `scan_wanted` is since when a scan is to find out what changed besides: the others wait for it, too.
    pub(super) fn decide(&self, now: Instant, scan_wanted: Option<Instant>) -> DebounceDecision {
        let ready_in: BTreeMap<&Arc<Path>, Duration> = self
            .waiting
            .iter()
            .map(|(path, waiting)| (path, self.ready_in(now, path, waiting)))
            .collect();
        let next = ready_in.values().filter(|wait| !wait.is_zero()).min().copied();
        let held_for = self
            .waiting
            .iter()
            .filter(|(path, waiting)| {
                let wait = ready_in.get(path).copied().unwrap_or_default();
                let is_written = waiting.writer == Some(WriterState::Writing);
                !wait.is_zero() && (wait <= GONE || is_written)
            })
            .map(|(_, waiting)| waiting.differs_since)
            .chain(scan_wanted.filter(|_| !self.waiting.is_empty()))
            .map(|since| (since + HOLD).saturating_duration_since(now))
            .max()
            .unwrap_or_default();
        let mut decision = DebounceDecision { decide_in: next, ..DebounceDecision::default() };
        if !held_for.is_zero() {
            decision.decide_in = Some(next.map_or(held_for, |next| next.min(held_for)));
            return decision;
        }
        for (path, waiting) in &self.waiting {
            if ready_in.get(path).is_some_and(Duration::is_zero) {
                match waiting.found {
                    Some(fingerprint) => decision.read.push((path.clone(), fingerprint)),
                    None => decision.gone.push(path.clone()),
                }
            }
        }
        decision
    }

    /// A file was read as it was at `fingerprint`, or is considered gone.
    pub(super) fn accept(&mut self, path: Arc<Path>, fingerprint: Option<Fingerprint>) {
        self.waiting.remove(&path);
        match fingerprint {
            Some(fingerprint) => self.accepted.insert(path, fingerprint),
            None => self.accepted.remove(&path),
        };
    }

    /// Makes a file be read again though it did not change.
    pub(super) fn forget(&mut self, path: &Path) {
        self.accepted.remove(path);
    }

    pub(super) fn knows(&self, path: &Path) -> bool {
        self.accepted.contains_key(path)
    }

    /// The files that are not as they were when they were read.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.waiting.keys()
    }

    /// How a file was when it was read, and when it was last inspected.
    pub(super) fn fingerprints(&self, path: &Path) -> impl Iterator<Item = Fingerprint> {
        let waiting = self.waiting.get(path).and_then(|waiting| waiting.found);
        self.accepted.get(path).copied().into_iter().chain(waiting)
    }

    /// The files that a scan found otherwise than they were when they were read, and those that it did not find.
    pub(super) fn differing(&self, scan: &Scan) -> Vec<Arc<Path>> {
        let mut differing = Vec::new();
        let (mut found, mut accepted) =
            (scan.files.iter().peekable(), self.accepted.iter().peekable());
        loop {
            let order = match (found.peek(), accepted.peek()) {
                (None, None) => return differing,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                // To compare bytes is much faster than to compare paths, and nearly all are the same.
                (Some((one, _)), Some((other, _))) if one.as_os_str() == other.as_os_str() => {
                    Ordering::Equal
                }
                (Some((one, _)), Some((other, _))) => one.cmp(other),
            };
            let found = if order.is_le() { found.next() } else { None };
            let accepted = if order.is_ge() { accepted.next() } else { None };
            match (found, accepted) {
                (Some((_, ScannedFile::Present(found))), Some((_, accepted)))
                    if found == accepted => {}
                (Some((path, _)), _) => differing.push(path.clone()),
                (None, Some((path, _))) if !scan.is_hidden(path) => differing.push(path.clone()),
                (None, _) => {}
            }
        }
    }

    fn ready_in(&self, now: Instant, path: &Arc<Path>, waiting: &Waiting) -> Duration {
        let was_empty = self.accepted.get(path).is_none_or(|before| before.size == 0);
        let delay = match waiting.found {
            Some(_) if waiting.writer == Some(WriterState::Writing) => WRITING,
            Some(found) if found.size == 0 && !was_empty => EMPTIED,
            Some(_) if waiting.writer == Some(WriterState::Closed) => Duration::ZERO,
            Some(_) => QUIET,
            None => GONE,
        };
        (waiting.since + delay).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests;

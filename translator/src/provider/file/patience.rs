use super::listing::{Fingerprint, Listing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file of whose writer the system does not tell is read once it has not changed for this long.
const QUIET: Duration = Duration::from_millis(100);

/// A file whose writer is known to be at work is read when that one is done. One that keeps its files open is given
/// up on after this long without a change.
const WRITING: Duration = Duration::from_secs(30);

/// Some editors rename the old file away before they write the new one, so one that is gone may come back.
const GONE: Duration = Duration::from_millis(300);

/// For this long a file that is being written holds up the others, so that changes made together are applied
/// together.
const HOLD: Duration = Duration::from_millis(500);

/// Truncated and not yet written looks like emptied on purpose, which is rare.
const EMPTIED: Duration = Duration::from_secs(1);

/// Decides which files are ready to be read. It does no IO, and time comes in as a value.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The files as they were when they were last read.
    accepted: BTreeMap<Arc<Path>, Fingerprint>,
    waiting: BTreeMap<Arc<Path>, Waiting>,
}

/// What the system told since the last decision.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The last of each file.
    pub(super) signs: BTreeMap<PathBuf, Sign>,
    /// Whether there was more than could be kept.
    pub(super) lost: bool,
}

/// What is known of the writer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It has written, and has the file open.
    Writing,
    /// It closed the file, or renamed it into place.
    Done,
}

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) read: Vec<(Arc<Path>, Fingerprint)>,
    pub(super) gone: Vec<Arc<Path>>,
    /// When to look again, if nothing happens before.
    pub(super) look_again: Option<Duration>,
}

/// A file that is not as it was when it was read.
#[derive(Debug)]
struct Waiting {
    /// None if it is gone.
    seen: Option<Fingerprint>,
    /// Since when it looks like that.
    since: Instant,
    /// Since when it differs from what was accepted.
    differs_since: Instant,
    /// None if its writer is not heard.
    sign: Option<Sign>,
}

impl Patience {
    pub(super) fn decide(&mut self, now: Instant, listing: &Listing, told: &Told) -> Decision {
        self.notice(now, listing, told);
        let ripe_in: BTreeMap<&Arc<Path>, Duration> = self
            .waiting
            .iter()
            .map(|(path, waiting)| (path, self.ripe_in(now, path, waiting)))
            .collect();
        let next = ripe_in.values().filter(|wait| !wait.is_zero()).min().copied();
        let held_for = self
            .waiting
            .iter()
            .filter(|(path, waiting)| {
                let wait = ripe_in.get(path).copied().unwrap_or_default();
                !wait.is_zero() && (wait <= GONE || waiting.sign == Some(Sign::Writing))
            })
            .map(|(_, waiting)| (waiting.differs_since + HOLD).saturating_duration_since(now))
            .max()
            .unwrap_or_default();
        let mut decision = Decision { look_again: next, ..Decision::default() };
        if !held_for.is_zero() {
            decision.look_again = next.map(|next| next.min(held_for));
            return decision;
        }
        for (path, waiting) in &self.waiting {
            if ripe_in.get(path).is_some_and(Duration::is_zero) {
                match waiting.seen {
                    Some(fingerprint) => decision.read.push((path.clone(), fingerprint)),
                    None => decision.gone.push(path.clone()),
                }
            }
        }
        decision
    }

    /// A file was read as it was at `fingerprint`, or is taken to be gone.
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

    /// Brings `waiting` up to date with what is seen.
    fn notice(&mut self, now: Instant, listing: &Listing, told: &Told) {
        if told.lost {
            // That a writer is done may be among what was lost.
            self.waiting.values_mut().for_each(|waiting| waiting.sign = None);
        }
        self.waiting.retain(|path, _| !listing.is_hidden(path));
        let known = self
            .accepted
            .keys()
            .chain(self.waiting.keys())
            .filter(|path| !listing.files.contains_key(*path) && !listing.is_hidden(path));
        let missing: BTreeSet<Arc<Path>> = known.cloned().collect();
        let files =
            listing.files.iter().map(|(path, fingerprint)| (path.clone(), Some(*fingerprint)));
        for (path, seen) in files.chain(missing.into_iter().map(|path| (path, None))) {
            let sign = told.signs.get(&*path).copied();
            let sign = sign.filter(|sign| seen.is_some() && (*sign == Sign::Done || !told.lost));
            // A file that was closed is read even if it looks the same: two writes of equal length may carry the
            // same time.
            if self.accepted.get(&path) == seen.as_ref() && sign != Some(Sign::Done) {
                self.waiting.remove(&path);
                continue;
            }
            let fresh = Waiting { seen, since: now, differs_since: now, sign };
            let waiting = self.waiting.entry(path).or_insert(fresh);
            if waiting.seen != seen {
                waiting.seen = seen;
                waiting.since = now;
                // What was done is not any more; what is being written goes on to be, unless it is gone.
                waiting.sign = waiting.sign.filter(|sign| *sign == Sign::Writing && seen.is_some());
            }
            waiting.sign = sign.or(waiting.sign);
        }
    }

    fn ripe_in(&self, now: Instant, path: &Arc<Path>, waiting: &Waiting) -> Duration {
        let was_empty = self.accepted.get(path).is_none_or(|before| before.size == 0);
        let patience = match waiting.seen {
            Some(_) if waiting.sign == Some(Sign::Writing) => WRITING,
            Some(seen) if seen.size == 0 && !was_empty => EMPTIED,
            Some(_) if waiting.sign == Some(Sign::Done) => Duration::ZERO,
            Some(_) => QUIET,
            None => GONE,
        };
        (waiting.since + patience).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory, a clock that stands still unless told otherwise, and the one who decides.
    struct Scene {
        root: tempfile::TempDir,
        patience: Patience,
        now: Instant,
    }

    impl Scene {
        /// The files are there and have been read.
        fn new(files: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            let mut scene = Self { root, patience: Patience::default(), now: Instant::now() };
            for file in files {
                scene.write(file, "old");
            }
            for (path, fingerprint) in Listing::of(scene.root.path()).files {
                scene.patience.accept(path, Some(fingerprint));
            }
            scene
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.root.path().join(file), text).unwrap();
        }

        /// What is read and (with a minus) given up, and after how many milliseconds to look again.
        fn after(&mut self, milliseconds: u64, done: &[&str]) -> (Vec<String>, Option<u128>) {
            let signs: Vec<_> = done.iter().map(|file| (*file, Sign::Done)).collect();
            self.after_signs(milliseconds, &signs, false)
        }

        fn after_signs(
            &mut self,
            milliseconds: u64,
            signs: &[(&str, Sign)],
            lost: bool,
        ) -> (Vec<String>, Option<u128>) {
            self.now += Duration::from_millis(milliseconds);
            let path = |file: &str| self.root.path().join(file);
            let signs = signs.iter().map(|(file, sign)| (path(file), *sign)).collect();
            let listing = Listing::of(self.root.path());
            let decision = self.patience.decide(self.now, &listing, &Told { signs, lost });
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut done: Vec<String> = decision.read.iter().map(|(path, _)| name(path)).collect();
            done.extend(decision.gone.iter().map(|path| format!("-{}", name(path))));
            for (path, fingerprint) in decision.read {
                self.patience.accept(path, Some(fingerprint));
            }
            for path in decision.gone {
                self.patience.accept(path, None);
            }
            (done, decision.look_again.map(|wait| wait.as_millis()))
        }
    }

    fn nothing(look_again: Option<u128>) -> (Vec<String>, Option<u128>) {
        (vec![], look_again)
    }

    fn only(file: &str) -> (Vec<String>, Option<u128>) {
        (vec![file.to_owned()], None)
    }

    #[test]
    fn an_unchanged_file_is_left_alone() {
        let mut scene = Scene::new(&["a.yaml"]);
        assert_eq!(scene.after(0, &[]), nothing(None));
        assert_eq!(scene.after(9_000, &[]), nothing(None));
    }

    #[test]
    fn a_file_that_was_closed_is_read_at_once() {
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "new text");
        assert_eq!(scene.after(0, &["a.yaml"]), only("a.yaml"));
        assert_eq!(scene.after(0, &[]), nothing(None));
    }

    #[test]
    fn a_file_whose_writer_is_not_heard_is_read_once_it_is_quiet() {
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "half");
        assert_eq!(scene.after(0, &[]), nothing(Some(100)));
        scene.write("a.yaml", "the whole");
        assert_eq!(scene.after(60, &[]), nothing(Some(100)));
        assert_eq!(scene.after(60, &[]), nothing(Some(40)));
        assert_eq!(scene.after(40, &[]), only("a.yaml"));
    }

    #[test]
    fn a_file_that_is_being_written_is_read_when_its_writer_is_done() {
        let writing = [("a.yaml", Sign::Writing)];
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "half");
        // The change was seen before it was told.
        assert_eq!(scene.after(0, &[]), nothing(Some(100)));
        assert_eq!(scene.after_signs(10, &writing, false), nothing(Some(490)));
        assert_eq!(scene.after(9_990, &[]), nothing(Some(20_000)));
        scene.write("a.yaml", "the whole");
        assert_eq!(scene.after(0, &[]), nothing(Some(30_000)), "it goes on to be written");
        assert_eq!(scene.after(2_000, &["a.yaml"]), only("a.yaml"));
        // One that keeps its files open is done after a while too.
        scene.write("a.yaml", "more");
        assert_eq!(scene.after_signs(0, &writing, false), nothing(Some(500)));
        assert_eq!(scene.after(30_000, &[]), only("a.yaml"));
    }

    #[test]
    fn a_file_that_is_emptied_and_not_yet_written_is_not_read() {
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "");
        let writing = [("a.yaml", Sign::Writing)];
        assert_eq!(scene.after_signs(0, &writing, false), nothing(Some(500)));
        assert_eq!(scene.after(10_000, &[]), nothing(Some(20_000)));
        scene.write("a.yaml", "filled again");
        assert_eq!(scene.after(0, &["a.yaml"]), only("a.yaml"));
    }

    #[test]
    fn where_signs_were_lost_nobody_waits_for_them() {
        let writing = [("a.yaml", Sign::Writing)];
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "new text");
        assert_eq!(scene.after_signs(0, &writing, false), nothing(Some(500)));
        assert_eq!(scene.after_signs(50, &writing, true), nothing(Some(50)));
        assert_eq!(scene.after(50, &[]), only("a.yaml"));
    }

    #[test]
    fn a_file_that_is_being_written_and_then_removed_is_gone() {
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "half");
        assert_eq!(scene.after_signs(0, &[("a.yaml", Sign::Writing)], false), nothing(Some(500)));
        fs::remove_file(scene.root.path().join("a.yaml")).unwrap();
        assert_eq!(scene.after(600, &[]), nothing(Some(300)));
        assert_eq!(scene.after(300, &[]), only("-a.yaml"));
    }

    #[test]
    fn a_file_that_was_renamed_away_may_come_back() {
        let mut scene = Scene::new(&["a.yaml"]);
        fs::rename(scene.root.path().join("a.yaml"), scene.root.path().join("a.yaml~")).unwrap();
        assert_eq!(scene.after(0, &[]), nothing(Some(300)));
        scene.write("a.yaml", "new text");
        assert_eq!(scene.after(250, &["a.yaml"]), only("a.yaml"));
        fs::remove_file(scene.root.path().join("a.yaml")).unwrap();
        assert_eq!(scene.after(50, &[]), nothing(Some(300)));
        assert_eq!(scene.after(300, &[]), only("-a.yaml"));
        assert_eq!(scene.after(0, &[]), nothing(None));
    }

    #[test]
    fn an_emptied_file_has_a_moment_to_be_filled() {
        let mut scene = Scene::new(&["a.yaml"]);
        scene.write("a.yaml", "");
        assert_eq!(scene.after(0, &["a.yaml"]), nothing(Some(1_000)));
        scene.write("a.yaml", "filled again");
        assert_eq!(scene.after(900, &["a.yaml"]), only("a.yaml"));
        scene.write("a.yaml", "");
        assert_eq!(scene.after(0, &["a.yaml"]), nothing(Some(1_000)));
        assert_eq!(scene.after(1_000, &[]), only("a.yaml"), "it was meant");
    }

    #[test]
    fn what_changes_together_is_read_together() {
        let mut scene = Scene::new(&["a.yaml"]);
        fs::rename(scene.root.path().join("a.yaml"), scene.root.path().join("b.yaml")).unwrap();
        assert_eq!(scene.after(0, &["b.yaml"]), nothing(Some(300)));
        assert_eq!(scene.after(300, &[]), (vec!["b.yaml".to_owned(), "-a.yaml".to_owned()], None));
    }

    #[test]
    fn a_file_that_never_rests_does_not_hold_up_the_others_for_long() {
        let mut scene = Scene::new(&["a.yaml", "log.yaml"]);
        scene.write("a.yaml", "new text");
        let mut text = "line\n".to_owned();
        for _ in 0..10 {
            scene.write("log.yaml", &text);
            assert_eq!(scene.after(50, &["a.yaml"]).0, [""; 0]);
            text += "another\n";
        }
        scene.write("log.yaml", &text);
        assert_eq!(scene.after(50, &[]), (vec!["a.yaml".to_owned()], Some(100)));
    }

    #[test]
    fn what_cannot_be_seen_is_not_gone() {
        let mut scene = Scene::new(&["a.yaml"]);
        let hidden = Listing {
            unreadable: BTreeMap::from([(scene.root.path().into(), "denied".to_owned())]),
            ..Listing::default()
        };
        let later = scene.now + Duration::from_secs(60);
        for now in [scene.now, later] {
            assert_eq!(scene.patience.decide(now, &hidden, &Told::default()), Decision::default());
        }
    }
}

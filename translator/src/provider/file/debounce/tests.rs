use super::*;
use crate::provider::file::notifications::Notified;
use crate::provider::file::scan::Entry;
use std::collections::BTreeSet;
use std::fs;

/// A directory, a clock that only the test moves, and what decides.
struct Scene {
    root: tempfile::TempDir,
    debounce: FileDebounce,
    now: Instant,
}

impl Scene {
    /// The files are there and have been read.
    fn new(files: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut scene = Self { root, debounce: FileDebounce::default(), now: Instant::now() };
        for file in files {
            scene.write(file, "old");
        }
        for (path, file) in Scan::of(scene.root.path()).files {
            let ScannedFile::Present(fingerprint) = file else { panic!("{file:?}") };
            scene.debounce.accept(path, Some(fingerprint));
        }
        scene
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.root.path().join(file), text).unwrap();
    }

    /// What is read and (with a minus) given up, and after how many milliseconds to decide again.
    fn after(&mut self, milliseconds: u64, closed: &[&str]) -> (Vec<String>, Option<u128>) {
        let writers: Vec<_> = closed.iter().map(|file| (*file, WriterState::Closed)).collect();
        self.after_writers(milliseconds, &writers, false)
    }

    fn after_writers(
        &mut self,
        milliseconds: u64,
        writers: &[(&str, WriterState)],
        lost: bool,
    ) -> (Vec<String>, Option<u128>) {
        self.now += Duration::from_millis(milliseconds);
        let path = |file: &str| self.root.path().join(file);
        let paths = writers.iter().map(|(file, writer)| (path(file), Some(*writer))).collect();
        let notified = Notified { paths, lost, ..Notified::default() };
        if lost {
            self.debounce.forget_writers();
        }
        let mut paths: BTreeSet<Arc<Path>> =
            notified.paths.keys().map(|path| Arc::from(path.as_path())).collect();
        paths.extend(self.debounce.waiting().cloned());
        paths.extend(self.debounce.differing(&Scan::of(self.root.path())));
        for path in paths {
            let found = match Entry::at(&path).0 {
                Entry::File(fingerprint) => Some(fingerprint),
                _ => None,
            };
            let writer = notified.writer(&path);
            self.debounce.observe(self.now, path, found, writer);
        }
        let decision = self.debounce.decide(self.now, None);
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut done: Vec<String> = decision.read.iter().map(|(path, _)| name(path)).collect();
        done.extend(decision.gone.iter().map(|path| format!("-{}", name(path))));
        for (path, fingerprint) in decision.read {
            self.debounce.accept(path, Some(fingerprint));
        }
        for path in decision.gone {
            self.debounce.accept(path, None);
        }
        (done, decision.decide_in.map(|wait| wait.as_millis()))
    }
}

fn nothing(decide_in: Option<u128>) -> (Vec<String>, Option<u128>) {
    (vec![], decide_in)
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
fn a_file_of_whose_writer_nothing_is_known_is_read_once_it_is_quiet() {
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
    let writing = [("a.yaml", WriterState::Writing)];
    let mut scene = Scene::new(&["a.yaml"]);
    scene.write("a.yaml", "half");
    // The change was found before the system reported it.
    assert_eq!(scene.after(0, &[]), nothing(Some(100)));
    assert_eq!(scene.after_writers(10, &writing, false), nothing(Some(490)));
    assert_eq!(scene.after(9_990, &[]), nothing(Some(20_000)));
    scene.write("a.yaml", "the whole");
    assert_eq!(scene.after(0, &[]), nothing(Some(30_000)), "the writer still has it open");
    assert_eq!(scene.after(2_000, &["a.yaml"]), only("a.yaml"));
    // A writer that keeps its files open counts as done after a while.
    scene.write("a.yaml", "more");
    assert_eq!(scene.after_writers(0, &writing, false), nothing(Some(500)));
    assert_eq!(scene.after(30_000, &[]), only("a.yaml"));
}

#[test]
fn a_file_that_is_emptied_and_not_yet_written_is_not_read() {
    let mut scene = Scene::new(&["a.yaml"]);
    scene.write("a.yaml", "");
    let writing = [("a.yaml", WriterState::Writing)];
    assert_eq!(scene.after_writers(0, &writing, false), nothing(Some(500)));
    assert_eq!(scene.after(10_000, &[]), nothing(Some(20_000)));
    scene.write("a.yaml", "filled again");
    assert_eq!(scene.after(0, &["a.yaml"]), only("a.yaml"));
}

#[test]
fn a_writer_of_which_reports_were_lost_is_not_waited_for() {
    let writing = [("a.yaml", WriterState::Writing)];
    let mut scene = Scene::new(&["a.yaml"]);
    scene.write("a.yaml", "new text");
    assert_eq!(scene.after_writers(0, &writing, false), nothing(Some(500)));
    assert_eq!(scene.after_writers(50, &writing, true), nothing(Some(50)));
    assert_eq!(scene.after(50, &[]), only("a.yaml"));
}

#[test]
fn a_file_that_is_being_written_and_then_removed_is_gone() {
    let mut scene = Scene::new(&["a.yaml"]);
    scene.write("a.yaml", "half");
    assert_eq!(
        scene.after_writers(0, &[("a.yaml", WriterState::Writing)], false),
        nothing(Some(500))
    );
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
fn a_file_that_never_rests_does_not_delay_the_others_for_long() {
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
fn a_scan_says_which_files_differ() {
    let mut scene = Scene::new(&["a.yaml", "b.yaml", "c.yaml", "d.yaml"]);
    let path = |file: &str| Arc::<Path>::from(scene.root.path().join(file));
    scene.write("a0.yaml", "new");
    scene.write("b.yaml", "changed");
    fs::remove_file(path("d.yaml")).unwrap();
    scene.write("e.yaml", "new");
    let differing = scene.debounce.differing(&Scan::of(scene.root.path()));
    assert_eq!(differing, ["a0.yaml", "b.yaml", "d.yaml", "e.yaml"].map(path));
    // A directory that cannot be listed says nothing of its files.
    let hidden = Scan {
        unreadable: BTreeMap::from([(scene.root.path().into(), "denied".to_owned())]),
        ..Scan::default()
    };
    assert_eq!(scene.debounce.differing(&hidden), []);
    assert_eq!(scene.after(0, &["a0.yaml"]).0, [""; 0]);
    scene.debounce.stop_waiting(|path| hidden.is_hidden(path));
    assert_eq!(scene.debounce.decide(scene.now, None), DebounceDecision::default());
}

#[test]
fn a_scan_is_waited_for_so_that_changes_are_applied_together() {
    let mut scene = Scene::new(&["a.yaml"]);
    let since = Some(scene.now);
    assert_eq!(scene.debounce.decide(scene.now, since), DebounceDecision::default());
    scene.write("a.yaml", "new text");
    let path: Arc<Path> = scene.root.path().join("a.yaml").into();
    let Entry::File(fingerprint) = Entry::at(&path).0 else { panic!("it is a file") };
    let closed = Some(WriterState::Closed);
    scene.debounce.observe(scene.now, path.clone(), Some(fingerprint), closed);
    let decision = scene.debounce.decide(scene.now, since);
    assert_eq!(decision, DebounceDecision { decide_in: Some(HOLD), ..DebounceDecision::default() });
    let ready = DebounceDecision { read: vec![(path, fingerprint)], ..DebounceDecision::default() };
    assert_eq!(scene.debounce.decide(scene.now, None), ready, "the scan has ended");
    scene.now += HOLD;
    assert_eq!(scene.debounce.decide(scene.now, since), ready, "it takes too long");
}

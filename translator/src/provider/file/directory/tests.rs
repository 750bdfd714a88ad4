mod from_scratch;

use super::*;
use crate::provider::file::remarks::{Remark, RemarkKind};
use from_scratch::FromScratch;
use heliograph_gateway::Event;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(20);

/// A directory that a real system watches, and a clock that only the test moves.
struct Scene {
    root: TempDir,
    directory: Directory,
    notifications: Notifications,
    now: Instant,
    barriers: usize,
}

/// What the steps of a change came to.
#[derive(Debug, Default)]
struct Sum {
    events: Vec<Event>,
    remarks: BTreeSet<Remark>,
    batches: usize,
    subjects: usize,
    scans: usize,
    inspected: usize,
    read: usize,
}

impl Scene {
    /// The directory as `prepare` leaves it has been read, and is watched.
    async fn new(prepare: impl FnOnce(&Path)) -> (Self, Difference) {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let (directory, notifications, first) = Directory::open(root.path());
        let mut scene = Self { root, directory, notifications, now: Instant::now(), barriers: 0 };
        let sum = scene.settle(Notified::default(), true);
        assert_eq!(sum.events, []);
        (scene, first)
    }

    fn path(&self, name: &str) -> Arc<Path> {
        self.root.path().join(name).into()
    }

    /// All that the system reports of what was done so far.
    async fn notified(&mut self) -> Notified {
        self.barriers += 1;
        let barrier = self.path(&format!("barrier-{}", self.barriers));
        fs::write(&barrier, "").unwrap();
        let mut all = Notified::default();
        while !all.names(&barrier) {
            let next = tokio::time::timeout(DEADLINE, self.notifications.next()).await.unwrap();
            all.elsewhere |= next.elsewhere;
            all.lost |= next.lost;
            for (path, writer) in next.paths {
                let known = all.paths.entry(path).or_default();
                *known = writer.or(*known);
            }
        }
        all
    }

    /// What comes of a change that was made, when nothing else happens until all of it has been read. There is no scan
    /// but those that are needed.
    async fn change(&mut self, change: impl FnOnce(&Path)) -> Sum {
        change(self.root.path());
        let notified = self.notified().await;
        self.settle(notified, false)
    }

    fn settle(&mut self, mut notified: Notified, mut wants_scan: bool) -> Sum {
        let mut sum = Sum::default();
        loop {
            let scan = wants_scan.then(|| Scan::of(self.root.path()));
            sum.scans += usize::from(wants_scan);
            let step = self.directory.update(self.now, &std::mem::take(&mut notified), scan);
            sum.batches += usize::from(!step.difference.events.is_empty());
            sum.subjects += step.difference.subjects.len();
            sum.events.extend(step.difference.events);
            sum.remarks.extend(step.difference.remarks);
            sum.inspected += step.inspected;
            sum.read += step.read;
            assert!(sum.scans < 20, "{sum:?}");
            wants_scan = step.wants_scan;
            match step.update_in {
                _ if wants_scan => {}
                Some(wait) => self.now += wait,
                None => return sum,
            }
        }
    }
}

fn service(name: &str, port: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

/// An object that all files contain, and one that is not used.
const SHARED: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n---\n";

/// Of two thousand files, all of which contain an object that the others contain, too, and have two remarks.
#[tokio::test]
async fn one_change_inspects_one_file() {
    let text = |number: usize, port: usize| service(&format!("s{number}"), port) + SHARED;
    let (mut scene, first) = Scene::new(|root| {
        for number in 0..2_000 {
            fs::write(root.join(format!("{number}.yaml")), text(number, 1)).unwrap();
        }
    })
    .await;
    assert_eq!((first.events.len(), first.remarks.len()), (2_001, 3_999));
    let figures = |sum: &Sum| (sum.inspected, sum.read, sum.scans, sum.events.len(), sum.subjects);

    let sum = scene.change(|root| fs::write(root.join("7.yaml"), text(7, 2)).unwrap()).await;
    assert_eq!(figures(&sum), (1, 1, 0, 1, 0), "written in place");
    let sum = scene
        .change(|root| {
            fs::write(root.join(".8.yaml.new"), text(8, 2)).unwrap();
            fs::rename(root.join(".8.yaml.new"), root.join("8.yaml")).unwrap();
        })
        .await;
    assert_eq!(figures(&sum), (1, 1, 0, 1, 0), "replaced");
    let sum = scene.change(|root| fs::write(root.join("new.yaml"), text(2_000, 1)).unwrap()).await;
    assert_eq!(figures(&sum), (1, 1, 0, 1, 2), "created");
    let sum = scene.change(|root| fs::write(root.join("7.yaml"), "kind: [").unwrap()).await;
    assert_eq!(figures(&sum), (1, 1, 0, 0, 1), "broken");
    let sum = scene.change(|root| fs::remove_file(root.join("new.yaml")).unwrap()).await;
    // Once when it was reported, and once before its absence counts.
    assert_eq!(figures(&sum), (2, 0, 0, 1, 2), "removed");
    let sum = scene.change(|root| fs::write(root.join("notes.txt"), "text").unwrap()).await;
    assert_eq!(figures(&sum), (0, 0, 0, 0, 0), "of no interest");
    // A scan costs a walk, and inspects no file besides.
    let sum = scene.settle(Notified::default(), true);
    assert_eq!(figures(&sum), (0, 0, 1, 0, 0), "nothing changed");
}

#[tokio::test]
async fn a_change_behind_a_symlink_in_the_tree_is_found_without_a_scan() {
    let (mut scene, _) = Scene::new(|root| {
        fs::write(root.join("real.yaml"), service("a", 1)).unwrap();
        fs::write(root.join("other.yaml"), service("b", 1)).unwrap();
        symlink("real.yaml", root.join("link.yaml")).unwrap();
        symlink("later.yaml", root.join("dangling.yaml")).unwrap();
    })
    .await;
    let sum =
        scene.change(|root| fs::write(root.join("real.yaml"), service("a", 20)).unwrap()).await;
    assert_eq!((sum.scans, sum.batches, sum.events.len(), sum.read), (0, 1, 1, 2));
    let sum = scene.change(|root| fs::write(root.join("later.yaml"), service("c", 1)).unwrap());
    let sum = sum.await;
    assert_eq!((sum.scans, sum.batches, sum.events.len(), sum.read), (0, 1, 1, 2));
}

/// Also where the files are found by what the system reports, and the directories by a scan.
#[tokio::test]
async fn what_changes_together_is_applied_together() {
    let (mut scene, _) = Scene::new(|root| {
        fs::create_dir(root.join("one")).unwrap();
        fs::write(root.join("one/a.yaml"), service("a", 1)).unwrap();
    })
    .await;
    let sum = scene.change(|root| {
        fs::write(root.join("b.yaml"), service("b", 1)).unwrap();
        fs::rename(root.join("one"), root.join("two")).unwrap();
        fs::create_dir_all(root.join("three/four")).unwrap();
        fs::write(root.join("three/four/c.yaml"), service("c", 1)).unwrap();
    });
    let sum = sum.await;
    assert_eq!((sum.batches, sum.events.len()), (1, 2), "{sum:?}");
}

/// The file system may give the new directory the inode of the old one.
#[tokio::test]
async fn a_directory_that_is_removed_and_made_again_is_watched() {
    let (mut scene, _) = Scene::new(|root| fs::create_dir(root.join("one")).unwrap()).await;
    for port in 1..9 {
        scene
            .change(|root| {
                fs::remove_dir_all(root.join("one")).unwrap();
                fs::create_dir(root.join("one")).unwrap();
            })
            .await;
        let sum = scene
            .change(|root| fs::write(root.join("one/x.yaml"), service("s", port)).unwrap())
            .await;
        assert_eq!((sum.events.len(), sum.scans), (1, 0), "{sum:?}");
    }
}

#[tokio::test]
async fn what_was_not_reported_is_found_by_a_scan() {
    let (mut scene, _) =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    let write = |scene: &Scene, port| fs::write(scene.path("a.yaml"), service("a", port)).unwrap();
    write(&scene, 20);
    let sum = scene.settle(Notified { lost: true, ..Notified::default() }, false);
    assert_eq!((sum.scans, sum.events.len()), (1, 1), "{sum:?}");
    write(&scene, 300);
    let sum = scene.settle(Notified { elsewhere: true, ..Notified::default() }, false);
    assert_eq!((sum.scans, sum.events.len()), (1, 1), "{sum:?}");
}

/// The root is not there any more, which says nothing of the files.
#[tokio::test]
async fn what_cannot_be_seen_is_not_gone() {
    let (mut scene, _) =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    let aside = scene.root.path().with_extension("aside");
    fs::rename(scene.root.path(), &aside).unwrap();
    let paths = BTreeMap::from([(scene.path("a.yaml").to_path_buf(), None)]);
    let sum = scene.settle(Notified { paths, ..Notified::default() }, false);
    assert_eq!((sum.events.len(), sum.scans, sum.subjects), (0, 1, 1), "{sum:?}");
    scene.now += Duration::from_secs(60);
    assert_eq!(scene.settle(Notified::default(), true).events, []);
    fs::rename(&aside, scene.root.path()).unwrap();
    let sum = scene.settle(Notified::default(), true);
    assert_eq!((sum.events.len(), sum.subjects), (0, 1), "{sum:?}");
    assert!(scene.directory.remarks().is_empty());
}

/// What is done to a directory between two updates. The names are numbers into the lists below.
#[derive(Clone, Debug)]
enum Edit {
    Write(usize, Vec<FilePart>),
    Replace(usize, Vec<FilePart>),
    Remove(usize),
    Rename(usize, usize),
    MakeDirectory(usize),
    RenameDirectory(usize, usize),
    RemoveDirectory(usize),
    LinkFile(usize, usize),
    LinkDirectory(usize, usize),
    /// As Kubernetes replaces the files of a ConfigMap.
    Swap(Vec<FilePart>),
}

/// A part of a file.
#[derive(Clone, Debug)]
enum FilePart {
    Service { name: usize, port: usize },
    Undecodable { name: usize },
    Unused,
    Garbage,
}

const FILES: [&str; 12] = [
    "a.yaml",
    "b.yaml",
    "c.json",
    "notes.txt",
    ".hidden.yaml",
    "d.yaml/a.yaml",
    "one/a.yaml",
    "one/b.yml",
    "two/a.yaml",
    "two/three/a.yaml",
    "two/three/z.yaml",
    "mount/own.yaml",
];

const DIRECTORIES: [&str; 6] = ["d.yaml", "one", "two", "two/three", "four", ".data"];

const SERVICES: [&str; 4] = ["s", "t", "u", "v"];

fn part() -> impl Strategy<Value = FilePart> {
    prop_oneof![
        8 => (0..SERVICES.len(), 1_usize..4).prop_map(|(name, port)| FilePart::Service { name, port }),
        2 => (0..SERVICES.len()).prop_map(|name| FilePart::Undecodable { name }),
        1 => Just(FilePart::Unused),
        1 => Just(FilePart::Garbage),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let parts = || proptest::collection::vec(part(), 0..4);
    let (file, directory) = (|| 0..FILES.len(), || 0..DIRECTORIES.len());
    prop_oneof![
        6 => (file(), parts()).prop_map(|(file, parts)| Edit::Write(file, parts)),
        6 => (file(), parts()).prop_map(|(file, parts)| Edit::Replace(file, parts)),
        3 => file().prop_map(Edit::Remove),
        3 => (file(), file()).prop_map(|(from, to)| Edit::Rename(from, to)),
        2 => directory().prop_map(Edit::MakeDirectory),
        1 => (directory(), directory()).prop_map(|(from, to)| Edit::RenameDirectory(from, to)),
        1 => directory().prop_map(Edit::RemoveDirectory),
        2 => (file(), file()).prop_map(|(to, at)| Edit::LinkFile(to, at)),
        1 => (directory(), directory()).prop_map(|(to, at)| Edit::LinkDirectory(to, at)),
        2 => parts().prop_map(Edit::Swap),
    ]
}

impl Edit {
    /// `number` is another for each edit. What cannot be done is not done.
    fn apply(&self, root: &Path, number: usize) -> std::io::Result<()> {
        match self {
            Self::Write(file, parts) => {
                let path = root.join(FILES[*file]);
                // The system does not report what is written into other files, and symlinks may lead there.
                let target = fs::canonicalize(&path).unwrap_or(path);
                if !is_manifest(&target) {
                    return Ok(());
                }
                fs::write(target, text(parts, number))
            }
            Self::Replace(file, parts) => {
                fs::write(root.join(".new"), text(parts, number))?;
                fs::rename(root.join(".new"), root.join(FILES[*file]))
            }
            Self::Remove(file) => fs::remove_file(root.join(FILES[*file])),
            Self::Rename(from, to) => fs::rename(root.join(FILES[*from]), root.join(FILES[*to])),
            Self::MakeDirectory(directory) => {
                fs::create_dir_all(root.join(DIRECTORIES[*directory]))
            }
            Self::RenameDirectory(from, to) => {
                fs::rename(root.join(DIRECTORIES[*from]), root.join(DIRECTORIES[*to]))
            }
            Self::RemoveDirectory(directory) => {
                let path = root.join(DIRECTORIES[*directory]);
                fs::remove_file(&path).or_else(|_| fs::remove_dir_all(path))
            }
            Self::LinkFile(to, at) => symlink(root.join(FILES[*to]), root.join(FILES[*at])),
            Self::LinkDirectory(to, at) => {
                symlink(root.join(DIRECTORIES[*to]), root.join(DIRECTORIES[*at]))
            }
            Self::Swap(parts) => {
                let mount = root.join("mount");
                let version = format!("..{number}");
                fs::create_dir_all(mount.join(&version))?;
                for (file, part) in ["x.yaml", "y.yaml"].into_iter().zip(parts) {
                    let text = text(std::slice::from_ref(part), number);
                    fs::write(mount.join(&version).join(file), text)?;
                    let _ = symlink(Path::new("..data").join(file), mount.join(file));
                }
                let old = fs::read_link(mount.join("..data"));
                symlink(&version, mount.join("..data_tmp"))?;
                fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
                old.map_or(Ok(()), |old| fs::remove_dir_all(mount.join(old)))
            }
        }
    }
}

/// Of another length for each edit, so that their fingerprints differ.
fn text(parts: &[FilePart], number: usize) -> String {
    let parts = parts.iter().map(|part| match part {
        FilePart::Service { name, port } => service(SERVICES[*name], *port),
        FilePart::Undecodable { name } => format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {}}}\nspec: [1]\n---\n",
            SERVICES[*name]
        ),
        FilePart::Unused => SHARED.to_owned(),
        FilePart::Garbage => "kind: [\n---\n".to_owned(),
    });
    format!("{}#{}\n", parts.collect::<String>(), "#".repeat(number))
}

async fn edits_are_as_reading_anew(steps: Vec<Vec<Edit>>) -> Result<(), TestCaseError> {
    let (mut scene, _) = Scene::new(|_| ()).await;
    let mut from_scratch = FromScratch::default();
    let mut number = 0;
    for edits in steps {
        let sum = scene.change(|root| {
            for edit in &edits {
                number += 1;
                let _ = edit.apply(root, number);
            }
        });
        let sum = sum.await;
        let (events, remarks) = from_scratch.read(scene.root.path());
        prop_assert_eq!(sum.events, events, "after {:?}", edits);
        prop_assert_eq!(sum.remarks, remarks, "after {:?}", edits);
        let now: Vec<Remark> = scene.directory.remarks().iter().cloned().collect();
        prop_assert_eq!(&now, &from_scratch.remarks(), "after {:?}", edits);
        let faults = now.iter().filter(|it| it.kind == RemarkKind::Fault).count();
        let duplicates = now.iter().filter(|it| it.kind == RemarkKind::Duplicate).count();
        let counted = (scene.directory.remarks().faults(), scene.directory.remarks().duplicates());
        prop_assert_eq!(counted, (faults, duplicates));
        let sum = scene.settle(Notified::default(), true);
        prop_assert_eq!(sum.events, [], "a scan finds more after {:?}", edits);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Random edits give the same events and remarks as reading everything anew after them, and so does what is kept.
    #[test]
    fn random_edits_are_as_reading_anew(
        steps in proptest::collection::vec(proptest::collection::vec(edit(), 1..6), 1..16),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(edits_are_as_reading_anew(steps))?;
    }
}

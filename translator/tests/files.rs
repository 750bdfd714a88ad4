//! The File provider on a real directory, changed the way editors, scripts and Kubernetes change one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::Event;
use heliograph_translator::FileMetrics;
use heliograph_translator::provider::Input;
use heliograph_translator::provider::file::{File, Remark, RemarkKind, RemarkList};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);

/// A directory under watch, and what has been told of it.
struct Scene {
    root: TempDir,
    inputs: mpsc::Receiver<Input>,
    remarks: watch::Receiver<RemarkList>,
    /// The port of each Service.
    services: BTreeMap<String, i32>,
    _stop: tokio_util::sync::DropGuard,
}

impl Scene {
    /// Starts with the directory as `prepare` leaves it, and waits until it has been read.
    async fn new(prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let path = root.path().to_owned();
        Self::open(root, &path).await
    }

    /// `path` leads to `root`.
    async fn open(root: TempDir, path: &Path) -> Self {
        let metrics = FileMetrics::register(&prometheus::Registry::new()).unwrap();
        let file = File::open(path, metrics).unwrap();
        let (sender, inputs) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let remarks = file.remarks();
        tokio::spawn(file.run(sender, stop.clone()));
        let _stop = stop.drop_guard();
        let mut scene = Self { root, inputs, remarks, services: BTreeMap::new(), _stop };
        scene.batch().await;
        let synced = tokio::time::timeout(DEADLINE, scene.inputs.recv()).await.unwrap();
        assert!(matches!(synced, Some(Input::Synced)));
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Takes the next batch, and returns how many events it had.
    async fn batch(&mut self) -> usize {
        let input = tokio::time::timeout(DEADLINE, self.inputs.recv()).await;
        let Ok(Some(Input::Batch(events))) = input else { panic!("no batch came: {input:?}") };
        let count = events.len();
        for event in events {
            match event {
                Event::Applied(object) => {
                    let heliograph_gateway::objects::Object::Service(service) = object else {
                        panic!("not a Service: {object:?}")
                    };
                    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
                    let port = ports.unwrap()[0].port;
                    self.services.insert(service.metadata.name.clone().unwrap(), port);
                }
                Event::Deleted(key) => {
                    assert!(self.services.remove(&*key.name.name).is_some(), "{key} is unknown");
                }
            }
        }
        count
    }

    async fn until_services_are(&mut self, expected: &[(&str, i32)]) {
        let expected = expected.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        while self.services != expected {
            self.batch().await;
        }
    }

    async fn until_remarks(&mut self, expected: impl Fn(&RemarkList) -> bool) -> Vec<Remark> {
        let wait = self.remarks.wait_for(|remarks| expected(remarks));
        let remarks = tokio::time::timeout(DEADLINE, wait).await.expect("in time").unwrap();
        remarks.iter().cloned().collect()
    }
}

fn service(name: &str, port: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

#[tokio::test]
async fn files_that_come_change_and_go() {
    let mut scene =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    assert_eq!(scene.services, BTreeMap::from([("a".to_owned(), 1)]));
    fs::write(scene.path("b.yaml"), service("b", 1)).unwrap();
    scene.until_services_are(&[("a", 1), ("b", 1)]).await;
    fs::write(scene.path("a.yaml"), service("a", 2)).unwrap();
    scene.until_services_are(&[("a", 2), ("b", 1)]).await;
    fs::remove_file(scene.path("a.yaml")).unwrap();
    scene.until_services_are(&[("b", 1)]).await;
    // All of a tree that appears is found, also what was there before its directories were watched.
    fs::create_dir_all(scene.path("deep/deeper")).unwrap();
    fs::write(scene.path("deep/deeper/c.yaml"), service("c", 1)).unwrap();
    scene.until_services_are(&[("b", 1), ("c", 1)]).await;
    fs::write(scene.path("deep/deeper/c.yaml"), service("c", 2)).unwrap();
    scene.until_services_are(&[("b", 1), ("c", 2)]).await;
    fs::remove_dir_all(scene.path("deep")).unwrap();
    scene.until_services_are(&[("b", 1)]).await;
}

#[tokio::test]
async fn editors_that_rename() {
    let mut scene =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    // A new file beside the old one, then over it.
    fs::write(scene.path(".a.yaml.swp"), service("a", 2)).unwrap();
    fs::rename(scene.path(".a.yaml.swp"), scene.path("a.yaml")).unwrap();
    assert_eq!(scene.batch().await, 1);
    assert_eq!(scene.services["a"], 2);
    // The old one out of the way, then a new one in its place.
    fs::rename(scene.path("a.yaml"), scene.path("a.yaml~")).unwrap();
    fs::write(scene.path("a.yaml"), service("a", 3)).unwrap();
    assert_eq!(scene.batch().await, 1);
    assert_eq!(scene.services["a"], 3, "it was not deleted in between");
}

#[tokio::test]
async fn a_file_that_moves_takes_its_objects_along() {
    let mut scene =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    fs::rename(scene.path("a.yaml"), scene.path("z.yaml")).unwrap();
    fs::write(scene.path("b.yaml"), service("b", 1)).unwrap();
    assert_eq!(scene.batch().await, 1, "the move is no event");
    scene.until_services_are(&[("a", 1), ("b", 1)]).await;
    assert!(scene.remarks.borrow().is_empty(), "the object was never in two files");
}

#[tokio::test]
async fn a_file_written_in_place_is_never_seen_empty_or_half() {
    let mut scene =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 0)).unwrap()).await;
    let path = scene.path("a.yaml");
    let writer = std::thread::spawn(move || {
        for port in 1..=300 {
            // Truncates, then writes: in between the file is empty.
            fs::write(&path, service("a", port)).unwrap();
        }
    });
    while scene.services["a"] != 300 {
        scene.batch().await;
        assert!(scene.services.contains_key("a"), "an empty file was believed");
    }
    writer.join().unwrap();
    assert!(!scene.remarks.has_changed().unwrap(), "half of a file was read");
}

#[tokio::test]
async fn a_file_that_stays_empty_was_meant_to_be() {
    let mut scene =
        Scene::new(|root| fs::write(root.join("a.yaml"), service("a", 1)).unwrap()).await;
    fs::write(scene.path("a.yaml"), "").unwrap();
    scene.until_services_are(&[]).await;
}

#[tokio::test]
async fn a_writer_that_pauses_is_waited_for() {
    let both = service("a", 1) + &service("b", 1);
    let mut scene = Scene::new(|root| fs::write(root.join("a.yaml"), &both).unwrap()).await;
    let mut file = fs::File::create(scene.path("a.yaml")).unwrap();
    file.write_all(service("a", 2).as_bytes()).unwrap();
    let pause = tokio::time::timeout(Duration::from_millis(1500), scene.inputs.recv()).await;
    assert!(pause.is_err(), "half of the file was read: {pause:?}");
    // The others do not wait so long.
    fs::write(scene.path("c.yaml"), service("c", 1)).unwrap();
    scene.until_services_are(&[("a", 1), ("b", 1), ("c", 1)]).await;
    file.write_all(service("b", 2).as_bytes()).unwrap();
    drop(file);
    assert_eq!(scene.batch().await, 2);
    scene.until_services_are(&[("a", 2), ("b", 2), ("c", 1)]).await;
}

#[tokio::test]
async fn a_directory_told_by_a_relative_path_is_no_different() {
    let root = tempfile::tempdir().unwrap();
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let relative = up.join(root.path().strip_prefix("/").unwrap());
    let mut scene = Scene::open(root, &relative).await;
    let mut file = fs::File::create(scene.path("a.yaml")).unwrap();
    file.write_all(service("a", 1).as_bytes()).unwrap();
    let pause = tokio::time::timeout(Duration::from_millis(1500), scene.inputs.recv()).await;
    assert!(pause.is_err(), "half of the file was read: {pause:?}");
    drop(file);
    scene.until_services_are(&[("a", 1)]).await;
}

/// Kubernetes mounts a ConfigMap as symlinks through `..data`, and swaps that.
#[tokio::test]
async fn a_config_map_is_swapped_in_one_batch() {
    let version = |root: &Path, version: &str, files: &[(&str, String)]| {
        fs::create_dir(root.join(version)).unwrap();
        for (name, text) in files {
            fs::write(root.join(version).join(name), text).unwrap();
        }
        symlink(version, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    let mut scene = Scene::new(|root| {
        version(root, "..1", &[("a.yaml", service("a", 1)), ("b.yaml", service("b", 1))]);
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
        symlink("..data/b.yaml", root.join("b.yaml")).unwrap();
    })
    .await;
    assert_eq!(scene.services.len(), 2);
    version(scene.root.path(), "..2", &[("a.yaml", service("a", 2)), ("b.yaml", service("b", 2))]);
    fs::remove_dir_all(scene.path("..1")).unwrap();
    assert_eq!(scene.batch().await, 2, "both in one batch");
    assert_eq!(scene.services, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 2)]));
    // A key that is gone: its symlink leads nowhere until the kubelet removes it.
    version(scene.root.path(), "..3", &[("b.yaml", service("b", 3))]);
    assert_eq!(scene.batch().await, 2, "both in one batch");
    assert_eq!(scene.services, BTreeMap::from([("b".to_owned(), 3)]));
}

#[tokio::test]
async fn a_broken_file_keeps_what_it_held_until_it_is_mended() {
    let mut scene = Scene::new(|root| {
        fs::write(root.join("a.yaml"), service("a", 1)).unwrap();
        fs::write(root.join("b.yaml"), service("b", 1)).unwrap();
    })
    .await;
    fs::write(scene.path("a.yaml"), "apiVersion: v1\nkind: Service\nmetadata: {name: [\n").unwrap();
    let remarks = scene.until_remarks(|remarks| !remarks.is_empty()).await;
    assert_eq!(remarks.len(), 1);
    let expected = format!("{} line ", scene.path("a.yaml").display());
    assert!(remarks[0].to_string().starts_with(&expected), "{}", remarks[0]);
    fs::write(scene.path("b.yaml"), service("b", 2)).unwrap();
    scene.until_services_are(&[("a", 1), ("b", 2)]).await;
    fs::write(scene.path("a.yaml"), service("a", 2)).unwrap();
    scene.until_services_are(&[("a", 2), ("b", 2)]).await;
    scene.until_remarks(RemarkList::is_empty).await;
}

#[tokio::test]
async fn an_object_in_two_files_passes_to_the_other_when_the_first_drops_it() {
    let mut scene = Scene::new(|root| {
        fs::write(root.join("a.yaml"), service("s", 1)).unwrap();
        fs::write(root.join("b.yaml"), service("s", 2)).unwrap();
    })
    .await;
    assert_eq!(scene.services["s"], 1);
    let kinds: Vec<RemarkKind> = scene.remarks.borrow().iter().map(|remark| remark.kind).collect();
    assert_eq!(kinds, [RemarkKind::Duplicate]);
    fs::remove_file(scene.path("a.yaml")).unwrap();
    scene.until_services_are(&[("s", 2)]).await;
    scene.until_remarks(RemarkList::is_empty).await;
}

#[tokio::test]
async fn a_directory_that_vanishes_takes_nothing_with_it() {
    let mut scene = Scene::new(|root| {
        fs::create_dir(root.join("mount")).unwrap();
        fs::write(root.join("mount/a.yaml"), service("a", 1)).unwrap();
    })
    .await;
    let aside = scene.root.path().with_extension("aside");
    fs::rename(scene.root.path(), &aside).unwrap();
    let remarks = scene.until_remarks(|remarks| !remarks.is_empty()).await;
    assert!(remarks[0].to_string().ends_with(": does not exist"), "{}", remarks[0]);
    fs::rename(&aside, scene.root.path()).unwrap();
    scene.until_remarks(RemarkList::is_empty).await;
    fs::write(scene.path("mount/a.yaml"), service("a", 2)).unwrap();
    scene.until_services_are(&[("a", 2)]).await;
}

/// The system reports nothing of it: a scan finds it.
#[tokio::test]
async fn a_change_behind_a_symlink_that_leads_elsewhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("a.yaml");
    fs::write(&target, service("a", 1)).unwrap();
    let mut scene = Scene::new(|root| symlink(&target, root.join("a.yaml")).unwrap()).await;
    assert_eq!(scene.services, BTreeMap::from([("a".to_owned(), 1)]));
    fs::write(&target, service("a", 22)).unwrap();
    scene.until_services_are(&[("a", 22)]).await;
}

#[tokio::test]
async fn what_is_no_directory_is_refused_in_one_line() {
    let metrics = FileMetrics::register(&prometheus::Registry::new()).unwrap();
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    for (name, reason) in [("missing", "does not exist"), ("file", "is not a directory")] {
        let path = root.path().join(name);
        let error = File::open(&path, metrics.clone()).err().expect("refused").to_string();
        assert_eq!(error, format!("{} {reason}", path.display()));
    }
}

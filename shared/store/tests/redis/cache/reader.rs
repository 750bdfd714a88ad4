//! A reader with a snapshot cache, as a distributor is one.

use crate::servers::until;
use crate::world::{Keys, Program, TEST_TIMEOUT, next_update, settings};
use heliograph_snapshot::{FleetName, Snapshot};
use heliograph_store::keys::KeyFile;
use heliograph_store::redis::cache::CacheOptions;
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{Subscription, Update};
use prometheus::Registry;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The disk of a machine.
pub(super) struct Disk {
    directory: TempDir,
}

pub(super) struct Reader {
    pub(super) program: Program,
    pub(super) subscription: Subscription,
    /// The file that is locked while it runs.
    lock: PathBuf,
    stop: oneshot::Sender<()>,
    writer: JoinHandle<()>,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The files of fleets, in the order of their names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            all.filter(|path| path.extension().is_some_and(|it| it == "fleet")).collect();
        files.sort();
        files
    }

    /// The one file of a fleet.
    pub(super) fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    pub(super) fn read(&self) -> Vec<u8> {
        fs::read(self.file()).unwrap()
    }

    /// Everything that is on it, and that no other user may read.
    pub(super) fn everything(&self) -> Vec<u8> {
        let paths = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{path:?}");
            fs::read(path).unwrap()
        };
        paths.flat_map(read).collect()
    }

    pub(super) fn open(&self, url: &str, keys: &Keys) -> Reader {
        self.open_with(url, keys, 64 << 20)
    }

    pub(super) fn open_with(&self, url: &str, keys: &Keys, limit: u64) -> Reader {
        let registry = Registry::new();
        let ring = KeyFile::open(keys.path()).unwrap();
        let options = CacheOptions { path: self.path().to_owned(), limit };
        let link = Link::new(settings(url));
        let store =
            RedisStore::with_cache(link, ring, RedisOptions::default(), &options, &registry);
        Reader::of(Program { store: store.unwrap(), registry }, self.path().join("lock"))
    }
}

impl Reader {
    fn of(program: Program, lock: PathBuf) -> Self {
        let subscription = program.subscribe();
        let (stop, stopped) = oneshot::channel();
        let store = program.store.clone();
        let writer = tokio::spawn(async move {
            store.snapshot_cache().write(async move { drop(stopped.await) }).await;
        });
        Self { program, subscription, lock, stop, writer }
    }

    /// What there is when it begins.
    pub(super) async fn start(&mut self) -> BTreeMap<FleetName, Arc<Snapshot>> {
        let mut snapshots = BTreeMap::new();
        loop {
            match next_update(&mut self.subscription).await {
                Update::Published(snapshot, _) => {
                    snapshots.insert(snapshot.fleet.clone(), snapshot);
                }
                Update::Synced => return snapshots,
                other => panic!("{other:?}"),
            }
        }
    }

    /// It goes on hearing until this is so.
    pub(super) async fn until(&mut self, what: &str, condition: impl Fn(&Program) -> bool) {
        let Self { program, subscription, .. } = self;
        tokio::select! {
            update = subscription.next() => panic!("{update:?} while it was waited that {what}"),
            () = until(what, async || condition(program)) => {}
        }
    }

    /// Hears nothing for longer than a comparison takes.
    pub(super) async fn receives_nothing(&mut self) {
        let most = Duration::from_millis(2_500);
        let received = tokio::time::timeout(most, self.subscription.next()).await;
        assert!(received.is_err(), "{received:?}");
    }

    /// Ends as a program does on SIGTERM: pending writes are made.
    pub(super) async fn end(self) -> Program {
        let Self { program, subscription, stop, writer, .. } = self;
        drop(subscription);
        stop.send(()).unwrap();
        tokio::time::timeout(TEST_TIMEOUT, writer).await.unwrap().unwrap();
        program
    }

    /// What its disk is to have, it has.
    pub(super) async fn end_with(self, fleets: u64) {
        let lock = self.lock.clone();
        let program = self.end().await;
        assert_eq!(program.metric("cache_fleets"), fleets);
        assert_eq!(program.metric("cache_writes_total{outcome=\"failed\"}"), 0);
        drop(program);
        // A read or a write whose caller has gone may still be under way in a thread.
        until("the directory is free", async || File::open(&lock).unwrap().try_lock().is_ok())
            .await;
    }
}

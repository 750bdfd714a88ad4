use super::*;
use prometheus::Registry;

/// A cache with a file of a fleet at its first head.
struct Scene {
    cache: Cache,
    fleet: FleetName,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = CacheOptions { path: directory.path().to_owned(), limit: 1 << 20 };
        let cache = Cache::open(&options, &Registry::new()).unwrap();
        let scene = Self { cache, fleet: FleetName::new("default", "one"), _directory: directory };
        scene.write(1);
        scene
    }

    /// As the writer does it.
    fn write(&self, sequence: u64) {
        let Self { cache, fleet, .. } = self;
        let (head, record) = (head(sequence), Bytes::from_static(b"record"));
        cache.set_newest_record(fleet, head, &record);
        let header = file::fleet_header(fleet, head, 0, "", &record, &[]).unwrap();
        cache.0.directory.write(&FileName::of(fleet), &header, &[]).unwrap();
        let length = header.len() as u64;
        cache.state().written(fleet, head, 0, length, String::new(), Instant::now());
    }

    /// What was last written.
    fn head(&self) -> Option<Head> {
        self.cache.state().head(&self.fleet)
    }

    fn read(
        &self,
        read: impl FnOnce(&Directory, &FileName) -> Result<Option<Header>, ReadError>,
    ) -> Option<Head> {
        self.cache.read(&self.fleet, read, |header| header).map(|header| header.head)
    }
}

fn head(sequence: u64) -> Head {
    Head { epoch: 0, fence: 1, sequence }
}

#[tokio::test]
async fn a_file_that_is_replaced_while_it_is_read_was_not_put_back() {
    let scene = Scene::new();
    let found = scene.read(|directory, name| {
        let found = directory.header(name);
        scene.write(2);
        found
    });
    assert_eq!(found, Some(head(1)));
    assert_eq!(scene.head(), Some(head(2)), "the newer file stays");
    assert_eq!(scene.read(Directory::header), Some(head(2)));
}

#[tokio::test]
async fn a_file_that_is_older_than_what_was_written_is_ignored() {
    let scene = Scene::new();
    let name = FileName::of(&scene.fleet);
    let path = scene.cache.0.directory.path().join(name.to_string());
    let older = std::fs::read(&path).unwrap();
    scene.write(2);
    std::fs::write(&path, older).unwrap();
    assert_eq!(scene.read(Directory::header), None);
    assert_eq!(scene.head(), None);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_for_a_while_stays() {
    let scene = Scene::new();
    for code in [libc::EMFILE, libc::EIO] {
        let failed = scene.read(|_, _| Err(io::Error::from_raw_os_error(code).into()));
        assert_eq!(failed, None);
        assert_eq!(scene.head(), Some(head(1)));
    }
    let job = scene.cache.state().next_job(Instant::now(), true);
    assert!(job.is_none(), "nothing is deleted: {job:?}");
    assert_eq!(scene.read(Directory::header), Some(head(1)));
}

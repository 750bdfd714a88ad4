use crate::provider::file::catalogue::{FoundFile, Objects, understand};
use crate::provider::file::reading;
use crate::provider::file::remarks::{Remark, RemarkKind};
use crate::provider::file::scan::{Scan, ScannedFile};
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Object, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What a directory contains, found out by reading all of it each time and comparing all of it with the time before.
#[derive(Default)]
pub(super) struct FromScratch {
    files: BTreeMap<Arc<Path>, (Objects, Vec<Remark>)>,
    applied: BTreeMap<ObjectKey, Object>,
}

impl FromScratch {
    /// The events and the remarks that are new.
    pub(super) fn read(&mut self, root: &Path) -> (Vec<Event>, BTreeSet<Remark>) {
        let before: BTreeSet<Remark> = self.remarks().into_iter().collect();
        let mut files = BTreeMap::new();
        for (path, file) in Scan::of(root).files {
            let contents = match file {
                ScannedFile::Present(_) => reading::read(&path).expect("nobody writes").0,
                ScannedFile::Unreadable(reason) => FoundFile::Unreadable(reason),
            };
            let before = self.files.remove(&path).unwrap_or_default().0;
            files.insert(path.clone(), understand(&path, contents, &before));
        }
        self.files = files;
        let remarks =
            self.remarks().into_iter().filter(|remark| !before.contains(remark)).collect();
        (self.events(), remarks)
    }

    pub(super) fn remarks(&self) -> Vec<Remark> {
        let mut remarks: Vec<Remark> =
            self.files.values().flat_map(|(_, remarks)| remarks).cloned().collect();
        let mut holders: BTreeMap<&ObjectKey, Vec<&Arc<Path>>> = BTreeMap::new();
        for (path, (objects, _)) in &self.files {
            objects.keys().for_each(|key| holders.entry(key).or_default().push(path));
        }
        for (key, paths) in holders {
            let first = paths[0].display();
            remarks.extend(paths[1..].iter().map(|path| Remark {
                file: path.display().to_string(),
                line: None,
                kind: RemarkKind::Duplicate,
                text: format!("{key} is ignored here: {first} also defines it"),
            }));
        }
        remarks
    }

    fn events(&mut self) -> Vec<Event> {
        let mut now: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for (objects, _) in self.files.values() {
            for (key, object) in objects {
                now.entry(key.clone()).or_insert_with(|| object.clone());
            }
        }
        let keys: BTreeSet<ObjectKey> = self.applied.keys().chain(now.keys()).cloned().collect();
        let mut events = Vec::new();
        for key in keys {
            let Some(object) = now.get_mut(&key) else {
                self.applied.remove(&key);
                events.push(Event::Deleted(key));
                continue;
            };
            let applied = self.applied.get(&key);
            let generation = applied.and_then(|it| it.metadata().generation).unwrap_or_default();
            object.metadata_mut().generation = Some(generation);
            if applied != Some(object) {
                object.metadata_mut().generation = Some(generation + 1);
                self.applied.insert(key, object.clone());
                events.push(Event::Applied(object.clone()));
            }
        }
        events
    }
}

use super::remarks::{Remark, RemarkKind, RemarkList, RemarkSubject};
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Document, Object, ObjectKey};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Which objects a set of files contains, and what is wrong with the files. It does no IO. An update costs as much as the
/// files in it contain, however many others there are.
#[derive(Debug, Default)]
pub struct Catalogue {
    files: BTreeMap<Arc<Path>, Objects>,
    /// The files that contain an object, in path order. The version of the first is the one that counts.
    holders: BTreeMap<ObjectKey, BTreeSet<Arc<Path>>>,
    /// Each object as the last event had it, with the generation that it had then.
    applied: BTreeMap<ObjectKey, Object>,
    remarks: RemarkList,
}

/// The result of reading a path.
#[derive(Debug)]
pub enum FoundFile {
    Documents(Vec<Document>),
    /// Why nothing in it can be read.
    Unreadable(String),
    Gone,
}

/// The changes by an update of the catalogue.
#[derive(Debug, Default)]
pub struct Difference {
    /// In the order of the objects' keys, each object once.
    pub events: Vec<Event>,
    /// Those that did not apply before.
    pub remarks: Vec<Remark>,
    /// The subjects whose remarks changed, with those of now.
    pub(super) subjects: BTreeMap<RemarkSubject, Arc<[Remark]>>,
}

/// The objects of one file.
pub(super) type Objects = BTreeMap<ObjectKey, Object>;

/// An object of which the files of an update contain something, or did.
struct Touched {
    /// The first file that contained it before the update.
    first: Option<Arc<Path>>,
    /// The files that contain it now and did not, or the other way round.
    moved: BTreeSet<Arc<Path>>,
}

impl Catalogue {
    /// Replaces the contents of some files at once, so that an object that moves from one to another is neither
    /// deleted in between nor found twice.
    pub fn update(
        &mut self,
        files: impl IntoIterator<Item = (Arc<Path>, FoundFile)>,
    ) -> Difference {
        let mut before = BTreeMap::new();
        let mut touched = BTreeMap::new();
        for (path, contents) in files {
            self.replace(path, contents, &mut touched, &mut before);
        }
        let mut events = Vec::new();
        for (key, touched) in touched {
            self.find_duplicates(&key, touched, &mut before);
            events.extend(self.event(key));
        }
        let mut difference = Difference { events, ..Difference::default() };
        let mut new = BTreeSet::new();
        for (subject, before) in before {
            let now = self.remarks.of(&subject);
            if now != before {
                new.extend(now.iter().filter(|remark| !before.contains(remark)).cloned());
                difference.subjects.insert(subject, now);
            }
        }
        difference.remarks = new.into_iter().collect();
        difference
    }

    /// All that apply now.
    pub fn remarks(&self) -> &RemarkList {
        &self.remarks
    }

    /// Records what one file contains now, and which objects that may change.
    fn replace(
        &mut self,
        path: Arc<Path>,
        contents: FoundFile,
        touched: &mut BTreeMap<ObjectKey, Touched>,
        remarks_before: &mut BTreeMap<RemarkSubject, Arc<[Remark]>>,
    ) {
        let before = self.files.remove(&path).unwrap_or_default();
        let (after, remarks) = understand(&path, contents, &before);
        for key in before.keys().chain(after.keys()) {
            let first = || self.holders.get(key).and_then(BTreeSet::first).cloned();
            let touched = touched
                .entry(key.clone())
                .or_insert_with(|| Touched { first: first(), moved: BTreeSet::new() });
            if before.contains_key(key) != after.contains_key(key) {
                touched.moved.insert(path.clone());
            }
        }
        for key in before.keys().filter(|key| !after.contains_key(key)) {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.remove(&path);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
        for key in after.keys().filter(|key| !before.contains_key(key)) {
            self.holders.entry(key.clone()).or_default().insert(path.clone());
        }
        if !after.is_empty() {
            self.files.insert(path.clone(), after);
        }
        self.set_remarks(RemarkSubject::File(path), remarks, remarks_before);
    }

    fn find_duplicates(
        &mut self,
        key: &ObjectKey,
        Touched { first: first_before, mut moved }: Touched,
        remarks_before: &mut BTreeMap<RemarkSubject, Arc<[Remark]>>,
    ) {
        let first = self.holders.get(key).and_then(BTreeSet::first).cloned();
        if first != first_before {
            // Every remark on the object names the file whose version counts.
            moved.extend(self.holders.get(key).into_iter().flatten().cloned());
        }
        for path in moved {
            let is_holder = self.holders.get(key).is_some_and(|holders| holders.contains(&path));
            let first = first.as_ref().filter(|first| is_holder && **first != path);
            let remark = first.map(|first| Remark {
                file: path.display().to_string(),
                line: None,
                kind: RemarkKind::Duplicate,
                text: format!("{key} is ignored here: {} also defines it", first.display()),
            });
            let subject = RemarkSubject::Duplicate(key.clone(), path);
            self.set_remarks(subject, remark.into_iter().collect(), remarks_before);
        }
    }

    fn set_remarks(
        &mut self,
        subject: RemarkSubject,
        remarks: Vec<Remark>,
        remarks_before: &mut BTreeMap<RemarkSubject, Arc<[Remark]>>,
    ) {
        let before = self.remarks.set(subject.clone(), remarks.into());
        // A subject may change more than once in an update.
        remarks_before.entry(subject).or_insert(before);
    }

    /// The event that brings others up to date on an object, if there is a difference.
    fn event(&mut self, key: ObjectKey) -> Option<Event> {
        let holder = self.holders.get(&key).and_then(BTreeSet::first);
        let object = holder.and_then(|path| self.files.get(path)?.get(&key));
        let Some(object) = object else {
            return self.applied.remove(&key).map(|_| Event::Deleted(key));
        };
        let mut object = object.clone();
        let applied = self.applied.get(&key);
        // An API server counts the generations of an object; there is none behind files, so this does.
        let generation = applied.and_then(|it| it.metadata().generation).unwrap_or_default();
        object.metadata_mut().generation = Some(generation);
        if applied == Some(&object) {
            return None;
        }
        object.metadata_mut().generation = Some(generation.saturating_add(1));
        self.applied.insert(key, object.clone());
        Some(Event::Applied(object))
    }
}

/// The objects that count as those of a file that has these contents and had the objects `before`, and what is wrong
/// with it.
pub(super) fn understand(
    path: &Path,
    contents: FoundFile,
    before: &Objects,
) -> (Objects, Vec<Remark>) {
    let (mut objects, mut remarks) = (Objects::new(), Vec::new());
    let documents = match contents {
        FoundFile::Gone => return (objects, remarks),
        FoundFile::Documents(documents) => documents,
        FoundFile::Unreadable(reason) => {
            remarks.push(Remark::new(path, None, RemarkKind::Fault, reason));
            return (before.clone(), remarks);
        }
    };
    let mut faults = Vec::new();
    for document in documents {
        match document {
            Document::Object(object) => match objects.entry(object.key()) {
                Entry::Vacant(entry) => {
                    entry.insert(object);
                }
                Entry::Occupied(entry) => {
                    let text = format!("{} is defined twice: the first one applies", entry.key());
                    remarks.push(Remark::new(path, None, RemarkKind::Duplicate, text));
                }
            },
            Document::Unused { line, kind } => {
                let text = format!("{kind} is not used");
                remarks.push(Remark::new(path, Some(line), RemarkKind::Ignored, text));
            }
            Document::Fault(fault) => faults.push(fault),
        }
    }
    for fault in faults {
        let text = match &fault.key {
            Some(key) => format!("{key}: {}", fault.reason),
            None => fault.reason,
        };
        remarks.push(Remark::new(path, Some(fault.line), RemarkKind::Fault, text));
        // A document that does not name its object may be any that the file contained and no longer names.
        let kept =
            before.iter().filter(|(key, _)| fault.key.as_ref().is_none_or(|named| named == *key));
        for (key, object) in kept {
            objects.entry(key.clone()).or_insert_with(|| object.clone());
        }
    }
    (objects, remarks)
}

#[cfg(test)]
mod tests;

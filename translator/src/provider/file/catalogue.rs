use heliograph_translator_core::Event;
use heliograph_translator_core::objects::{Document, Object, ObjectKey};
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Which objects a set of files holds, and what is to be said of the files. It does no IO.
#[derive(Debug, Default)]
pub struct Catalogue {
    files: BTreeMap<Arc<Path>, Held>,
    /// The files that hold an object, in path order. The first one's version counts.
    holders: BTreeMap<ObjectKey, BTreeSet<Arc<Path>>>,
    /// Each object as it was last told, with the generation that it had then.
    told: BTreeMap<ObjectKey, Object>,
    duplicates: BTreeMap<ObjectKey, Vec<Remark>>,
}

/// What was found in the place of a file.
#[derive(Debug)]
pub enum Contents {
    Documents(Vec<Document>),
    /// Why nothing in it can be told.
    Unreadable(String),
    Gone,
}

/// What an update of the catalogue changed.
#[derive(Debug, Default)]
pub struct Difference {
    /// In the order of the objects' keys, each object once.
    pub events: Vec<Event>,
    /// Those that could not be made before.
    pub remarks: Vec<Remark>,
}

/// Something an operator should know of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remark {
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub kind: RemarkKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum RemarkKind {
    /// It could not be understood. What the place held before still counts.
    Fault,
    /// Another place holds the same object, and that one counts.
    Duplicate,
    /// It is well-formed, and of no use here.
    Ignored,
}

#[derive(Debug, Default)]
struct Held {
    objects: BTreeMap<ObjectKey, Object>,
    remarks: Vec<Remark>,
}

impl Catalogue {
    /// Takes the new contents of some files at once, so that an object that moves from one to another is neither
    /// deleted in between nor found twice.
    pub fn update(&mut self, files: impl IntoIterator<Item = (Arc<Path>, Contents)>) -> Difference {
        let before: BTreeSet<Remark> = self.remarks().cloned().collect();
        let mut touched = BTreeSet::new();
        for (path, contents) in files {
            self.replace(path, contents, &mut touched);
        }
        let mut events = Vec::new();
        for key in touched {
            self.find_duplicates(&key);
            events.extend(self.tell(key));
        }
        let remarks: BTreeSet<Remark> =
            self.remarks().filter(|remark| !before.contains(remark)).cloned().collect();
        Difference { events, remarks: remarks.into_iter().collect() }
    }

    /// All that is to be said now.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        let of_files = self.files.values().flat_map(|held| &held.remarks);
        of_files.chain(self.duplicates.values().flatten())
    }

    /// Notes what one file holds now, and which objects that may change.
    fn replace(&mut self, path: Arc<Path>, contents: Contents, touched: &mut BTreeSet<ObjectKey>) {
        let before = self.files.remove(&path).unwrap_or_default();
        let after = hold(&path, contents, &before);
        for key in before.objects.keys().filter(|key| !after.objects.contains_key(key)) {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.remove(&path);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
        for key in after.objects.keys() {
            self.holders.entry(key.clone()).or_default().insert(path.clone());
        }
        touched.extend(before.objects.into_keys());
        touched.extend(after.objects.keys().cloned());
        if !after.objects.is_empty() || !after.remarks.is_empty() {
            self.files.insert(path, after);
        }
    }

    fn find_duplicates(&mut self, key: &ObjectKey) {
        let mut holders = self.holders.get(key).into_iter().flatten();
        let first = holders.next();
        let remarks: Vec<Remark> = holders
            .zip(first.into_iter().cycle())
            .map(|(path, first)| Remark {
                file: path.display().to_string(),
                line: None,
                kind: RemarkKind::Duplicate,
                text: format!("{key} is ignored here: {} has it too", first.display()),
            })
            .collect();
        if remarks.is_empty() {
            self.duplicates.remove(key);
        } else {
            self.duplicates.insert(key.clone(), remarks);
        }
    }

    /// The event that brings others up to date on an object, if it takes one.
    fn tell(&mut self, key: ObjectKey) -> Option<Event> {
        let holder = self.holders.get(&key).and_then(BTreeSet::first);
        let object = holder.and_then(|path| self.files.get(path)?.objects.get(&key));
        let Some(object) = object else {
            return self.told.remove(&key).map(|_| Event::Deleted(key));
        };
        let mut object = object.clone();
        let told = self.told.get(&key);
        // An API server counts the generations of an object; there is none behind files, so this does.
        let generation = told.and_then(|told| told.metadata().generation).unwrap_or_default();
        object.metadata_mut().generation = Some(generation);
        if told == Some(&object) {
            return None;
        }
        object.metadata_mut().generation = Some(generation.saturating_add(1));
        self.told.insert(key, object.clone());
        Some(Event::Applied(object))
    }
}

impl Remark {
    fn new(path: &Path, line: Option<usize>, kind: RemarkKind, text: String) -> Self {
        Self { file: path.display().to_string(), line, kind, text }
    }
}

/// `routes.yaml line 7: HTTPRoute shop/cart: unknown variant ...`.
impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, " line {line}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// What counts as held by a file that has these contents and held `before`.
fn hold(path: &Path, contents: Contents, before: &Held) -> Held {
    let mut held = Held::default();
    let documents = match contents {
        Contents::Gone => return held,
        Contents::Documents(documents) => documents,
        Contents::Unreadable(reason) => {
            held.objects = before.objects.clone();
            held.remarks.push(Remark::new(path, None, RemarkKind::Fault, reason));
            return held;
        }
    };
    let mut faults = Vec::new();
    for document in documents {
        match document {
            Document::Object(object) => match held.objects.entry(object.key()) {
                Entry::Vacant(place) => {
                    place.insert(object);
                }
                Entry::Occupied(place) => {
                    let text = format!("{} is here twice: the first counts", place.key());
                    held.remarks.push(Remark::new(path, None, RemarkKind::Duplicate, text));
                }
            },
            Document::Unused { line, kind } => {
                let text = format!("{kind} is not used");
                held.remarks.push(Remark::new(path, Some(line), RemarkKind::Ignored, text));
            }
            Document::Fault(fault) => faults.push(fault),
        }
    }
    for fault in faults {
        let text = match &fault.key {
            Some(key) => format!("{key}: {}", fault.reason),
            None => fault.reason,
        };
        held.remarks.push(Remark::new(path, Some(fault.line), RemarkKind::Fault, text));
        // A document that does not tell which object it is may be any that the file held and no longer names.
        let kept = before
            .objects
            .iter()
            .filter(|(key, _)| fault.key.as_ref().is_none_or(|named| named == *key));
        for (key, object) in kept {
            held.objects.entry(key.clone()).or_insert_with(|| object.clone());
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_translator_core::objects;

    fn service(name: &str, port: u16) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
        )
    }

    /// Names its object, and does not decode.
    fn broken_service(name: &str) -> String {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: [1]\n---\n")
    }

    const SYNTAX_ERROR: &str = "apiVersion: v1\nkind: [\n---\n";

    fn contents(text: &str) -> Contents {
        Contents::Documents(objects::parse(text))
    }

    /// The events as `NAME GENERATION` or `-NAME`, and the remarks as text.
    fn told(difference: Difference) -> (Vec<String>, Vec<String>) {
        let events = difference.events.into_iter().map(|event| match event {
            Event::Applied(object) => {
                let generation = object.metadata().generation.unwrap_or_default();
                format!("{} {generation}", object.key().name.name)
            }
            Event::Deleted(key) => format!("-{}", key.name.name),
        });
        (events.collect(), difference.remarks.iter().map(ToString::to_string).collect())
    }

    fn update(catalogue: &mut Catalogue, files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let files = files.iter().map(|(path, text)| (Arc::from(Path::new(path)), contents(text)));
        told(catalogue.update(files))
    }

    fn events(catalogue: &mut Catalogue, files: &[(&str, &str)]) -> Vec<String> {
        let (events, remarks) = update(catalogue, files);
        assert_eq!(remarks, [""; 0]);
        events
    }

    #[test]
    fn only_what_changed_is_told_and_its_generation_counts() {
        let mut catalogue = Catalogue::default();
        let text = service("a", 80) + &service("b", 80);
        assert_eq!(events(&mut catalogue, &[("f", &text)]), ["a 1", "b 1"]);
        assert_eq!(events(&mut catalogue, &[("f", &text)]), [""; 0]);
        let text = service("b", 81) + &service("a", 80);
        assert_eq!(events(&mut catalogue, &[("f", &text)]), ["b 2"]);
        assert_eq!(events(&mut catalogue, &[("f", &service("b", 81))]), ["-a"]);
        assert_eq!(events(&mut catalogue, &[("f", "")]), ["-b"]);
        assert_eq!(events(&mut catalogue, &[("f", &service("b", 81))]), ["b 1"]);
    }

    #[test]
    fn a_generation_in_the_file_is_not_ours() {
        let mut catalogue = Catalogue::default();
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, generation: 7}\n";
        assert_eq!(events(&mut catalogue, &[("f", text)]), ["a 1"]);
        assert_eq!(events(&mut catalogue, &[("f", text)]), [""; 0]);
    }

    #[test]
    fn an_object_that_does_not_decode_keeps_its_own_version_only() {
        let mut catalogue = Catalogue::default();
        let text = service("a", 80) + &service("b", 80) + &service("c", 80);
        update(&mut catalogue, &[("f", &text)]);
        let text = broken_service("a") + &service("b", 81);
        let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
        assert_eq!(events, ["b 2", "-c"], "a stays, b changed, c is gone");
        assert_eq!(remarks.len(), 1);
        assert!(remarks[0].starts_with("f line 4: Service default/a: "), "{}", remarks[0]);
        let (events, remarks) =
            update(&mut catalogue, &[("f", &(service("a", 82) + &service("b", 81)))]);
        assert_eq!((events, remarks), (vec!["a 2".to_owned()], vec![]));
        assert_eq!(catalogue.remarks().count(), 0);
    }

    #[test]
    fn a_syntax_error_keeps_what_the_file_held_and_harms_no_other_document() {
        let mut catalogue = Catalogue::default();
        update(&mut catalogue, &[("f", &(service("a", 80) + &service("b", 80)))]);
        let text = service("b", 81) + SYNTAX_ERROR;
        let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
        assert_eq!(events, ["b 2"]);
        assert_eq!(remarks.len(), 1);
        let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
        assert_eq!((events, remarks), (vec![], vec![]), "the same is said once");
        assert_eq!(events_of_removal(&mut catalogue, "f"), ["-a", "-b"]);
        assert_eq!(catalogue.remarks().count(), 0);
    }

    fn events_of_removal(catalogue: &mut Catalogue, path: &str) -> Vec<String> {
        told(catalogue.update([(Arc::from(Path::new(path)), Contents::Gone)])).0
    }

    #[test]
    fn an_unreadable_file_keeps_what_it_held() {
        let mut catalogue = Catalogue::default();
        update(&mut catalogue, &[("f", &service("a", 80))]);
        let path: Arc<Path> = Arc::from(Path::new("f"));
        let unreadable = Contents::Unreadable("permission denied".to_owned());
        let (events, remarks) = told(catalogue.update([(path, unreadable)]));
        assert_eq!((events, remarks), (vec![], vec!["f: permission denied".to_owned()]));
    }

    #[test]
    fn of_two_files_with_one_object_the_first_counts() {
        let mut catalogue = Catalogue::default();
        assert_eq!(events(&mut catalogue, &[("m", &service("a", 80))]), ["a 1"]);
        let (told, remarks) = update(&mut catalogue, &[("z", &service("a", 90))]);
        assert_eq!(told, [""; 0]);
        assert_eq!(remarks, ["z: Service default/a is ignored here: m has it too"]);
        let (told, remarks) = update(&mut catalogue, &[("z", &service("a", 91))]);
        assert_eq!((told, remarks), (vec![], vec![]), "reported once");

        let (told, remarks) = update(&mut catalogue, &[("b", &service("a", 70))]);
        assert_eq!(told, ["a 2"], "an earlier path takes over");
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert_eq!(events_of_removal(&mut catalogue, "b"), ["a 3"]);
        assert_eq!(events_of_removal(&mut catalogue, "m"), ["a 4"]);
        assert_eq!(catalogue.remarks().count(), 0);
        assert_eq!(events_of_removal(&mut catalogue, "z"), ["-a"]);
    }

    #[test]
    fn a_move_between_files_is_no_event() {
        let mut catalogue = Catalogue::default();
        events(&mut catalogue, &[("f", &service("a", 80))]);
        assert_eq!(events(&mut catalogue, &[("f", ""), ("a", &service("a", 80))]), [""; 0]);
    }

    #[test]
    fn an_object_twice_in_one_file_is_said_and_the_first_counts() {
        let mut catalogue = Catalogue::default();
        let (events, remarks) =
            update(&mut catalogue, &[("f", &(service("a", 80) + &service("a", 81)))]);
        assert_eq!(events, ["a 1"]);
        assert_eq!(remarks, ["f: Service default/a is here twice: the first counts"]);
    }

    #[test]
    fn what_is_not_used_is_no_fault() {
        let mut catalogue = Catalogue::default();
        update(
            &mut catalogue,
            &[("f", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}")],
        );
        let kinds: Vec<RemarkKind> = catalogue.remarks().map(|remark| remark.kind).collect();
        assert_eq!(kinds, [RemarkKind::Ignored]);
    }
}

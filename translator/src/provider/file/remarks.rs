use heliograph_gateway::objects::ObjectKey;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

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
    /// It could not be understood. What the file had before still counts.
    Fault,
    /// Another file has the same object, and that one counts.
    Duplicate,
    /// It is well-formed, and of no use here.
    Ignored,
}

/// All remarks on a set of files: those on each file in path order, then duplicates in the order of the objects. A
/// change costs as much as the subjects that change, however many others there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemarkList {
    subjects: BTreeMap<RemarkSubject, Arc<[Remark]>>,
    faults: usize,
    duplicates: usize,
}

/// The subject of a remark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RemarkSubject {
    File(Arc<Path>),
    /// An object in a file whose version does not count.
    Duplicate(ObjectKey, Arc<Path>),
}

impl Remark {
    pub(super) fn new(path: &Path, line: Option<usize>, kind: RemarkKind, text: String) -> Self {
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

impl RemarkSubject {
    pub(super) fn file(&self) -> Arc<Path> {
        match self {
            Self::File(path) | Self::Duplicate(_, path) => path.clone(),
        }
    }
}

impl RemarkList {
    pub fn iter(&self) -> impl Iterator<Item = &Remark> {
        self.subjects.values().flat_map(|remarks| remarks.iter())
    }

    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    /// How many are of [`RemarkKind::Fault`].
    pub(crate) fn faults(&self) -> usize {
        self.faults
    }

    /// How many are of [`RemarkKind::Duplicate`].
    pub(crate) fn duplicates(&self) -> usize {
        self.duplicates
    }

    pub(super) fn of(&self, subject: &RemarkSubject) -> Arc<[Remark]> {
        self.subjects.get(subject).cloned().unwrap_or_default()
    }

    /// Replaces the remarks on one subject. Returns those that there were.
    pub(super) fn set(&mut self, subject: RemarkSubject, remarks: Arc<[Remark]>) -> Arc<[Remark]> {
        self.faults += count(&remarks, RemarkKind::Fault);
        self.duplicates += count(&remarks, RemarkKind::Duplicate);
        let before = match remarks.is_empty() {
            true => self.subjects.remove(&subject),
            false => self.subjects.insert(subject, remarks),
        };
        let before = before.unwrap_or_default();
        self.faults -= count(&before, RemarkKind::Fault);
        self.duplicates -= count(&before, RemarkKind::Duplicate);
        before
    }
}

pub(super) fn has_fault(remarks: &[Remark]) -> bool {
    remarks.iter().any(|remark| remark.kind == RemarkKind::Fault)
}

fn count(remarks: &[Remark], kind: RemarkKind) -> usize {
    remarks.iter().filter(|remark| remark.kind == kind).count()
}

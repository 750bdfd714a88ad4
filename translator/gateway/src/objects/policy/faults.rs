use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use std::fmt;

/// Why a policy is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFault {
    /// `spec.timeout.http.maxStreamDuration`; the first, if there are several.
    pub field: String,
    /// A sentence that names the field.
    pub message: String,
}

/// What is found to be wrong while a policy is decoded.
#[derive(Debug, Default)]
pub(in crate::objects) struct Faults {
    /// The first of a field that cannot be decoded.
    malformed: Option<SpecFault>,
    /// Fields that no type has.
    unsupported: Vec<String>,
}

/// How many unsupported fields a message names.
const NAMED: usize = 8;

impl SpecFault {
    pub(super) fn new(field: impl Into<String>, why: impl fmt::Display) -> Self {
        let field = field.into();
        let message = format!("{field}: {why}");
        Self { field, message }
    }
}

impl Faults {
    /// Decodes the value of a field. Fields in it that the type does not have are recorded.
    pub(in crate::objects) fn decode<T: DeserializeOwned>(
        &mut self,
        field: &str,
        value: &Value,
    ) -> Result<T, SpecFault> {
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
        let decoded = serde_ignored::deserialize(deserializer, |path| {
            self.unsupported.push(format!("{field}{}", in_words(&path)));
        });
        decoded.map_err(|error| {
            let path = track.path();
            let field = match path.iter().next() {
                None => field.to_owned(),
                Some(serde_path_to_error::Segment::Seq { .. }) => format!("{field}{path}"),
                Some(_) => format!("{field}.{path}"),
            };
            SpecFault::new(field, error)
        })
    }

    pub(super) fn record(&mut self, fault: SpecFault) {
        self.malformed.get_or_insert(fault);
    }

    pub(super) fn record_unsupported(&mut self, field: String) {
        self.unsupported.push(field);
    }

    /// What was decoded, unless there is a fault.
    pub(in crate::objects) fn into_result<T>(
        mut self,
        decoded: Result<T, SpecFault>,
    ) -> Result<T, SpecFault> {
        if let Err(fault) = &decoded {
            self.record(fault.clone());
        }
        self.into_fault().map_or(decoded, Err)
    }

    /// All of them, as one.
    fn into_fault(mut self) -> Option<SpecFault> {
        self.unsupported.sort();
        let Some(first) = self.unsupported.first() else { return self.malformed };
        let (named, more) = self.unsupported.split_at(NAMED.min(self.unsupported.len()));
        let mut message = named.join(", ");
        if !more.is_empty() {
            message += &format!(" and {} more", more.len());
        }
        message += if self.unsupported.len() == 1 { " is" } else { " are" };
        message += " not supported";
        if let Some(malformed) = &self.malformed {
            message += &format!("; {malformed}");
        }
        Some(SpecFault { field: first.clone(), message })
    }
}

impl fmt::Display for SpecFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// `.timeout.http[0].name`.
fn in_words(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", in_words(parent)),
        Path::Map { parent, key } => format!("{}.{key}", in_words(parent)),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => in_words(parent),
    }
}

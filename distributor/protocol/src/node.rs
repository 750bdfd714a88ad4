use crate::request::RequestError;
use crate::wire::{Field, Fields, VALUE, key_of};
use prost::encoding::WireType;
use std::collections::BTreeMap;

/// The fields of a node that are used. They are found without decoding the node: a real Envoy sends 61 KB, most of it
/// the list of its extensions, and of a million empty ones a decoder would make 150 MB. Nothing below a label is read,
/// so the depth of metadata does not matter.
///
/// A field that occurs more than once is read as a decoder reads it: the last of texts and numbers, and of messages all
/// merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFields<'a> {
    pub id: &'a str,
    pub cluster: &'a str,
    pub region: &'a str,
    pub zone: &'a str,
    pub sub_zone: &'a str,
    pub version: Option<UserAgentVersion<'a>>,
    /// `metadata.labels`, the first [`LABELS_LIMIT`] by their keys; `None` for one whose value is not a text.
    pub labels: BTreeMap<&'a str, Option<&'a str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAgentVersion<'a> {
    Text(&'a str),
    /// Major, minor, patch, if it says them.
    Build(Option<[u32; 3]>),
}

/// How large a node may be.
pub const NODE_LIMIT: usize = 1 << 20;
/// How many labels are read. They are the client's to choose.
pub const LABELS_LIMIT: usize = 32;
/// The key of the metadata that has them.
const LABELS: &str = "labels";
/// `dynamic_parameters` of a node, a map.
const PARAMETERS: u32 = 12;
/// The one field of `Struct`, its map.
const FIELDS: u32 = 1;

/// The kind of a label's value, or of all labels: the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'a> {
    Text(&'a str),
    Struct,
    Other,
}

impl<'a> NodeFields<'a> {
    pub fn scan(node: &'a [u8]) -> Result<Self, RequestError> {
        let mut found = Self::default();
        let mut fields = Fields::of(node);
        while let Some(field) = fields.next_with_map(PARAMETERS)? {
            match field.number {
                1 => found.id = field.text()?,
                2 => found.cluster = field.text()?,
                3 => found.read_metadata(field.message()?)?,
                4 => found.read_locality(field.message()?)?,
                7 => found.version = Some(UserAgentVersion::Text(field.text()?)),
                8 => found.read_build(field.message()?)?,
                // Its name, its extensions, its features, its addresses, its parameters: texts and messages, too.
                6 | 9..=PARAMETERS => {
                    field.message()?;
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn read_locality(&mut self, mut locality: Fields<'a>) -> Result<(), RequestError> {
        while let Some(field) = locality.next()? {
            match field.number {
                1 => self.region = field.text()?,
                2 => self.zone = field.text()?,
                3 => self.sub_zone = field.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// `BuildVersion`: its `SemanticVersion`, and metadata.
    fn read_build(&mut self, mut build: Fields<'a>) -> Result<(), RequestError> {
        let mut parts = match self.version {
            Some(UserAgentVersion::Build(parts)) => parts,
            Some(UserAgentVersion::Text(_)) | None => None,
        };
        while let Some(field) = build.next()? {
            match field.number {
                1 => {
                    let parts = parts.get_or_insert_default();
                    let mut version = field.message()?;
                    while let Some(part) = version.next()? {
                        if let Some(place @ 0..3) = part.number.checked_sub(1) {
                            parts[place as usize] = part.number()?;
                        }
                    }
                }
                2 => {
                    field.message()?;
                }
                _ => {}
            }
        }
        self.version = Some(UserAgentVersion::Build(parts));
        Ok(())
    }

    /// `Struct`: a map of values. An entry takes the place of an earlier one with its key.
    fn read_metadata(&mut self, mut metadata: Fields<'a>) -> Result<(), RequestError> {
        while let Some(field) = metadata.next_with_map(FIELDS)? {
            if field.number == FIELDS {
                let entry = field.message()?;
                if key_of(entry.clone())? == LABELS {
                    self.labels.clear();
                    self.read_labels(entry)?;
                }
            }
        }
        Ok(())
    }

    fn read_labels(&mut self, mut entry: Fields<'a>) -> Result<(), RequestError> {
        let mut kind = None;
        while let Some(value) = entry.next()? {
            if value.number != VALUE {
                continue;
            }
            let mut value = value.message()?;
            while let Some(field) = value.next()? {
                let Some(next) = Kind::of(field)? else { continue };
                // Another struct adds to the one before it; anything else takes its place.
                if kind.replace(next) != Some(Kind::Struct) || next != Kind::Struct {
                    self.labels.clear();
                }
                if next == Kind::Struct {
                    self.add_labels(field.message()?)?;
                }
            }
        }
        Ok(())
    }

    fn add_labels(&mut self, mut labels: Fields<'a>) -> Result<(), RequestError> {
        while let Some(field) = labels.next_with_map(FIELDS)? {
            if field.number != FIELDS {
                continue;
            }
            let entry = field.message()?;
            let value = match kind_of(entry.clone())? {
                Some(Kind::Text(text)) => Some(text),
                Some(Kind::Struct | Kind::Other) | None => None,
            };
            self.labels.insert(key_of(entry)?, value);
            if self.labels.len() > LABELS_LIMIT {
                self.labels.pop_last();
            }
        }
        Ok(())
    }
}

/// The kind of an entry's value.
fn kind_of(mut entry: Fields<'_>) -> Result<Option<Kind<'_>>, RequestError> {
    let mut kind = None;
    while let Some(value) = entry.next()? {
        if value.number == VALUE {
            let mut value = value.message()?;
            while let Some(field) = value.next()? {
                kind = Kind::of(field)?.or(kind);
            }
        }
    }
    Ok(kind)
}

impl<'a> Kind<'a> {
    /// The kind that this field gives a `Value`.
    fn of(field: Field<'a>) -> Result<Option<Self>, RequestError> {
        let wire = match field.number {
            // Nothing, and yes or no.
            1 | 4 => WireType::Varint,
            2 => WireType::SixtyFourBit,
            3 => return field.text().map(|text| Some(Self::Text(text))),
            5 | 6 => WireType::LengthDelimited,
            _ => return Ok(None),
        };
        let is_struct = field.expect(wire)?.number == 5;
        Ok(Some(if is_struct { Self::Struct } else { Self::Other }))
    }
}

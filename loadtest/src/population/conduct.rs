use crate::scenario::Span;
use heliograph_client::Conduct as ClientConduct;
use heliograph_snapshot::ResourceType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How clients behave, as a scenario says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conduct {
    #[default]
    Well,
    /// So long after it is connected.
    StopsReading(Span),
    Rejects(Rejected),
    /// Each time after so long.
    Reconnects(Span),
    /// So many requests a second.
    Floods(u32),
    Garbage,
}

/// What is rejected: of this type, with this in its name, whichever is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Rejected {
    pub kind: Option<Kind>,
    pub name: Option<String>,
}

/// A resource type by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind(pub ResourceType);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no type of resource: write one of {}", names().join(", "))]
pub struct InvalidKind {
    name: String,
}

impl Conduct {
    /// Whether the server may end its stream, and it may have missed something at the end.
    pub fn is_excused(&self) -> bool {
        match self {
            Self::Well | Self::Rejects(_) => false,
            Self::StopsReading(_) | Self::Reconnects(_) | Self::Floods(_) | Self::Garbage => true,
        }
    }

    /// Whether it is to hold everything that its fleet has.
    pub fn takes_everything(&self) -> bool {
        *self == Self::Well
    }

    /// Begins no later than this.
    pub(crate) fn hasten(&mut self, most: Span) {
        match self {
            Self::StopsReading(span) | Self::Reconnects(span) => *span = most.min(*span),
            Self::Well | Self::Rejects(_) | Self::Floods(_) | Self::Garbage => {}
        }
    }
}

impl From<&Conduct> for ClientConduct {
    fn from(conduct: &Conduct) -> Self {
        match conduct {
            Conduct::Well => Self::Well,
            Conduct::StopsReading(after) => Self::StopsReading { after: after.0 },
            Conduct::Rejects(Rejected { kind, name }) => {
                Self::Rejects { kind: kind.map(|kind| kind.0), name: name.clone() }
            }
            Conduct::Reconnects(every) => Self::Reconnects { every: every.0 },
            Conduct::Floods(per_second) => Self::Floods { per_second: *per_second },
            Conduct::Garbage => Self::Garbage,
        }
    }
}

impl fmt::Display for Conduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Well => "behave well",
            Self::StopsReading(_) => "stop reading",
            Self::Rejects(_) => "reject",
            Self::Reconnects(_) => "reconnect in a loop",
            Self::Floods(_) => "flood",
            Self::Garbage => "send garbage",
        })
    }
}

impl TryFrom<String> for Kind {
    type Error = InvalidKind;

    fn try_from(text: String) -> Result<Self, InvalidKind> {
        let kind = ResourceType::from_name(&text);
        kind.map(Self).ok_or(InvalidKind { name: text })
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.0.to_string()
    }
}

fn names() -> Vec<String> {
    ResourceType::ALL.map(|kind| kind.to_string()).to_vec()
}

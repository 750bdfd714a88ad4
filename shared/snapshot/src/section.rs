use crate::{Resource, ResourceType, Sealing};
use std::fmt;

/// A part of a snapshot that is kept in a tree of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    Served(ResourceType),
    Internal(Internal),
}

/// The trees of a snapshot that are never served to a proxy: separate from [`ResourceType`], so that code that serves
/// resources has no access to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Internal {
    /// What the views of classes of clients are derived by.
    Rules,
    /// What is known of each proxy, by its node id.
    Directory,
    /// What proxies rejected, and what others are served in its place.
    Quarantine,
}

impl Section {
    pub fn all() -> impl Iterator<Item = Self> {
        let served = ResourceType::ALL.into_iter().map(Self::Served);
        served.chain(Internal::ALL.into_iter().map(Self::Internal))
    }

    /// Whether it is worth going back to: the addresses of old endpoints are dead, and so are old proxies and what they
    /// said.
    pub fn lasts(self) -> bool {
        match self {
            Self::Served(kind) => kind.properties().lasts,
            Self::Internal(internal) => internal == Internal::Rules,
        }
    }

    /// Whether a store seals all that is in it.
    pub fn is_always_sealed(self) -> bool {
        matches!(self, Self::Served(kind) if kind.properties().sealing == Sealing::Always)
    }

    /// Whether a store seals this resource of the section.
    pub fn seals(self, resource: &Resource) -> bool {
        resource.is_confidential || self.is_always_sealed()
    }

    /// The number in stored bytes.
    pub fn number(self) -> u32 {
        match self {
            Self::Served(kind) => kind.properties().number,
            Self::Internal(internal) => internal.number(),
        }
    }

    /// `None`: a newer program knows it.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|section| section.number() == number)
    }

    /// The short name for logs and people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Served(kind) => kind.as_str(),
            Self::Internal(internal) => internal.as_str(),
        }
    }
}

impl Internal {
    pub const ALL: [Self; 3] = [Self::Rules, Self::Directory, Self::Quarantine];

    /// The number in stored bytes: it never changes, and none is used again.
    fn number(self) -> u32 {
        match self {
            Self::Rules => 6,
            Self::Directory => 7,
            Self::Quarantine => 8,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Directory => "directory",
            Self::Quarantine => "quarantine",
        }
    }
}

impl From<ResourceType> for Section {
    fn from(kind: ResourceType) -> Self {
        Self::Served(kind)
    }
}

impl From<Internal> for Section {
    fn from(internal: Internal) -> Self {
        Self::Internal(internal)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are in stored bytes.
    #[test]
    fn the_numbers_of_sections_never_change() {
        let numbers = Section::all().map(|section| (section.number(), section.as_str()));
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        assert_eq!(
            numbers,
            [
                (1, "secret"),
                (2, "cluster"),
                (3, "endpoints"),
                (4, "listener"),
                (5, "route"),
                (6, "rules"),
                (7, "directory"),
                (8, "quarantine"),
                (9, "extension-config"),
            ]
        );
        for section in Section::all() {
            assert_eq!(Section::from_number(section.number()), Some(section));
        }
        assert_eq!(Section::from_number(0), None);
    }
}

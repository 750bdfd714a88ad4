use crate::ResourceType;
use std::fmt;

/// A part of a snapshot that is kept in a tree of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    Served(ResourceType),
    Internal(Internal),
}

/// What travels with a snapshot and is never served to a proxy: apart from [`ResourceType`], so that no code that
/// serves can come by it.
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
        let passing = [
            Self::Served(ResourceType::Endpoints),
            Self::Internal(Internal::Directory),
            Self::Internal(Internal::Quarantine),
        ];
        !passing.contains(&self)
    }

    /// Whether it holds secrets, which a store seals.
    pub fn is_secret(self) -> bool {
        self == Self::Served(ResourceType::Secret)
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

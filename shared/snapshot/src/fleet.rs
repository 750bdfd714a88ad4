use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The proxies that share one base snapshot: `namespace/name` of their Gateway, or `namespace/class:name` of the class whose
/// Gateways share them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetName(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fleet: write NAMESPACE/NAME of its Gateway, or NAMESPACE/class:CLASS")]
pub struct InvalidFleetName(String);

impl FleetName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FleetName {
    type Err = InvalidFleetName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty()
                    && !name.is_empty()
                    && !name.contains('/')
                    // It goes into logs, and clients choose it.
                    && !text.contains(char::is_control) =>
            {
                Ok(Self(text.into()))
            }
            _ => Err(InvalidFleetName(text.chars().take(300).collect())),
        }
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for FleetName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

use heliograph_snapshot::FleetName;
use std::sync::Arc;

/// Where everything is in Redis. A fleet's keys carry it as hash tag, so that in a Cluster they are in one slot.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prefix of the store's keys, {0:?}, is not made of 1 to 64 letters, digits, `-`, `_`, `.` and `:`"
)]
pub struct InvalidPrefix(String);

impl Names {
    pub(crate) fn new(prefix: &str) -> Result<Self, InvalidPrefix> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(valid) {
            return Err(InvalidPrefix(prefix.chars().take(100).collect()));
        }
        Ok(Self { prefix: prefix.into() })
    }

    /// The prefix of all keys, for which everything is signed.
    pub(crate) fn prefix(&self) -> Arc<str> {
        self.prefix.clone()
    }

    /// Parts of trees and bodies of resources, by address.
    pub(crate) fn objects(&self, fleet: &FleetName) -> String {
        self.of_fleet(fleet, "objects")
    }

    /// The newest record.
    pub(crate) fn head(&self, fleet: &FleetName) -> String {
        self.of_fleet(fleet, "head")
    }

    /// The records that the fleet can go back to.
    pub(crate) fn history(&self, fleet: &FleetName) -> String {
        self.of_fleet(fleet, "history")
    }

    /// The newest term that began for one fleet: in a Cluster, where a script sees one slot.
    pub(crate) fn term_of(&self, fleet: &FleetName) -> String {
        self.of_fleet(fleet, "term")
    }

    /// The newest term that began.
    pub(crate) fn term(&self) -> String {
        self.of_index("term")
    }

    /// The head of every fleet, as a hint.
    pub(crate) fn heads(&self) -> String {
        self.of_index("heads")
    }

    /// Another value after each change.
    pub(crate) fn change_token(&self) -> String {
        self.of_index("clock")
    }

    pub(crate) fn pins(&self) -> String {
        self.of_index("pins")
    }

    /// The channel of the doorbell.
    pub(crate) fn bell(&self) -> String {
        self.of_index("bell")
    }

    /// The replicas that report, and below it their reports.
    pub(crate) fn replicas(&self) -> String {
        format!("{}:ack:{{acks}}", self.prefix)
    }

    pub(crate) fn report(&self, replica: &str) -> String {
        format!("{}:ack:{{acks}}:{replica}", self.prefix)
    }

    /// The distributors that are there, and below it what each says.
    pub(crate) fn presences(&self) -> String {
        format!("{}:replica:{{replicas}}", self.prefix)
    }

    pub(crate) fn presence(&self, replica: &str) -> String {
        format!("{}:replica:{{replicas}}:{replica}", self.prefix)
    }

    fn of_fleet(&self, fleet: &FleetName, what: &str) -> String {
        format!("{}:{{{fleet}}}:{what}", self.prefix)
    }

    /// A fleet has a slash in its name, so this is none.
    fn of_index(&self, what: &str) -> String {
        format!("{}:{{index}}:{what}", self.prefix)
    }
}

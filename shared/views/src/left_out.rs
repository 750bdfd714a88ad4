use heliograph_snapshot::{Internal, Resource, Snapshot};
use prost::Message;

/// The part of an object that is left out of a snapshot because proxies reject it. It is stored with the snapshot, so
/// that the next leader does not publish the part again. The tags are in stored bytes, as those of [`crate::message`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeftOut {
    /// Which object, as `kind/namespace/name`.
    #[prost(string, tag = "1")]
    pub object: String,
    /// Which content of the object was rejected. An object with another one is tried again.
    #[prost(string, tag = "2")]
    pub revision: String,
    /// The rules that are left out; without any, all of the object.
    #[prost(message, repeated, tag = "3")]
    pub rules: Vec<LeftOutRule>,
    /// The matches of all rules are dropped, too.
    #[prost(bool, tag = "4")]
    pub is_dropped: bool,
    /// It is one of several objects that may be the cause.
    #[prost(bool, tag = "5")]
    pub is_suspect: bool,
    /// What a proxy said.
    #[prost(string, tag = "6")]
    pub words: String,
    /// Of matches that are dropped, what any proxy can hold stays. A translator that does not know this drops all of each.
    #[prost(bool, tag = "7")]
    pub has_outlines: bool,
}

/// A rule of a route whose requests are answered with an error.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeftOutRule {
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// The matches that the proxy itself rejects: what is left of each is an outline that any proxy can hold.
    #[prost(uint32, repeated, tag = "2")]
    pub dropped: Vec<u32>,
}

/// The prefix of its entries' names, among those of the quarantine.
const LEFT_OUT: &str = "left-out";

impl LeftOut {
    /// All entries of a snapshot. Those of a newer translator, which cannot be decoded, are skipped.
    pub fn all(snapshot: &Snapshot) -> impl Iterator<Item = Self> {
        let entries = snapshot.internal(Internal::Quarantine).iter();
        entries.filter_map(|entry| {
            entry.name.strip_prefix(LEFT_OUT)?.strip_prefix('/')?;
            Self::decode(entry.body.clone()).ok()
        })
    }

    /// As it travels in a snapshot.
    pub fn resource(&self) -> Resource {
        Resource::new(left_out_name(&self.object), self.encode_to_vec().into())
    }

    /// Whether requests of a rule are answered with an error.
    pub fn has_rule(&self, index: usize) -> bool {
        self.rules.is_empty() || self.rule(index).is_some()
    }

    /// Whether a match is dropped.
    pub fn drops(&self, rule: usize, index: usize) -> bool {
        let is_it = |dropped: &u32| usize::try_from(*dropped) == Ok(index);
        self.is_dropped || self.rule(rule).is_some_and(|rule| rule.dropped.iter().any(is_it))
    }

    fn rule(&self, index: usize) -> Option<&LeftOutRule> {
        self.rules.iter().find(|rule| usize::try_from(rule.index) == Ok(index))
    }
}

/// Under which name it is kept that an object is left out.
pub fn left_out_name(object: &str) -> String {
    format!("{LEFT_OUT}/{object}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quarantined;
    use heliograph_snapshot::{Change, FleetName, Head};
    use std::sync::Arc;

    #[test]
    fn entries_are_read_as_they_were_stored_and_are_nobody_elses() {
        let rule = LeftOutRule { index: 2, dropped: vec![1] };
        let entry = LeftOut {
            object: "HTTPRoute/shop/cart".to_owned(),
            revision: "abc".to_owned(),
            rules: vec![rule],
            words: "no".to_owned(),
            ..LeftOut::default()
        };
        let change = Change::SetInternal(Internal::Quarantine, Arc::new(entry.resource()));
        let empty = Snapshot::empty(FleetName::new("default", "gateway"));
        let snapshot = empty.with(Head::default(), [change]);
        assert_eq!(LeftOut::all(&snapshot).collect::<Vec<_>>(), std::slice::from_ref(&entry));
        assert_eq!(Quarantined::all(&snapshot), []);
        assert_eq!([1, 2].map(|rule| entry.has_rule(rule)), [false, true]);
        assert_eq!(
            [(2, 0), (2, 1), (1, 1)].map(|(rule, at)| entry.drops(rule, at)),
            [false, true, false]
        );
    }
}

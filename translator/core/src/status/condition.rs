use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// One condition of an object, but for the time of its last transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: &'static str,
    #[serde(rename = "status", serialize_with = "as_status")]
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: i64,
}

/// The conditions of one object or part of it, each type once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(BTreeMap<&'static str, Condition>);

impl Condition {
    pub(crate) fn yes(
        r#type: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self::new(r#type, true, reason, message.into())
    }

    pub(crate) fn no(
        r#type: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self::new(r#type, false, reason, message.into())
    }

    fn new(r#type: &'static str, is_true: bool, reason: &'static str, message: String) -> Self {
        Self { r#type, is_true, reason, message, observed_generation: 0 }
    }

    /// `Conflicted` is the one condition that is bad when it is true.
    fn is_problem(&self) -> bool {
        self.is_true == (self.r#type == "Conflicted")
    }
}

impl Conditions {
    pub fn set(&mut self, condition: Condition) {
        self.0.insert(condition.r#type, condition);
    }

    pub fn get(&self, r#type: &str) -> Option<&Condition> {
        self.0.get(r#type)
    }

    pub fn is_true(&self, r#type: &str) -> bool {
        self.0.get(r#type).is_some_and(|condition| condition.is_true)
    }

    /// Every condition says from which generation of the object it was found.
    pub(crate) fn observed(mut self, generation: i64) -> Self {
        for condition in self.0.values_mut() {
            condition.observed_generation = generation;
        }
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.values()
    }

    pub fn problems(&self) -> impl Iterator<Item = &Condition> {
        self.iter().filter(|condition| condition.is_problem())
    }
}

impl<const N: usize> From<[Condition; N]> for Conditions {
    fn from(conditions: [Condition; N]) -> Self {
        Self(conditions.into_iter().map(|condition| (condition.r#type, condition)).collect())
    }
}

impl Serialize for Conditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for condition in self.iter() {
            sequence.serialize_element(condition)?;
        }
        sequence.end()
    }
}

fn as_status<S: Serializer>(is_true: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *is_true { "True" } else { "False" })
}

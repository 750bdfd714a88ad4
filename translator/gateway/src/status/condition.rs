use super::reasons::{Reason, Type};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// One condition of an object, but for the time of its last transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub reason: &'static Reason,
    pub message: String,
    pub observed_generation: i64,
}

/// The conditions of one object or part of it, each type once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(BTreeMap<Type, Condition>);

impl Condition {
    pub fn new(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), observed_generation: 0 }
    }

    pub fn is_true(&self) -> bool {
        self.reason.is_true()
    }
}

impl Conditions {
    pub fn set(&mut self, condition: Condition) {
        let part = condition.reason.part();
        debug_assert!(self.iter().all(|other| other.reason.part() == part), "{condition:?}");
        self.0.insert(condition.reason.r#type(), condition);
    }

    pub fn get(&self, r#type: Type) -> Option<&Condition> {
        self.0.get(&r#type)
    }

    pub fn is_true(&self, r#type: Type) -> bool {
        self.get(r#type).is_some_and(Condition::is_true)
    }

    /// Every condition says from which generation of the object it was found.
    pub(crate) fn observed(mut self, generation: i64) -> Self {
        for condition in self.0.values_mut() {
            condition.observed_generation = generation;
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.values()
    }

    pub fn problems(&self) -> impl Iterator<Item = &Condition> {
        self.iter().filter(|condition| condition.reason.is_problem())
    }
}

impl<const N: usize> From<[Condition; N]> for Conditions {
    fn from(conditions: [Condition; N]) -> Self {
        let mut all = Self::default();
        conditions.into_iter().for_each(|condition| all.set(condition));
        all
    }
}

impl Serialize for Conditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { reason, message, observed_generation } = self;
        let mut fields = serializer.serialize_struct("Condition", 5)?;
        fields.serialize_field("type", reason.r#type().as_str())?;
        fields.serialize_field("status", if reason.is_true() { "True" } else { "False" })?;
        fields.serialize_field("reason", reason.as_str())?;
        fields.serialize_field("message", message)?;
        fields.serialize_field("observedGeneration", observed_generation)?;
        fields.end()
    }
}

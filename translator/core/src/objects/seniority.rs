use super::{Object, ObjectKey, ObjectName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Of objects that do not fit together, the older ones stay: those that were created first, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    created: i64,
    name: ObjectName,
    key: ObjectKey,
}

impl Seniority {
    pub fn new(created: i64, key: &ObjectKey) -> Self {
        Self { created, name: key.name.clone(), key: key.clone() }
    }

    /// Of which object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl Object {
    /// Since when there is an object, in seconds of Unix time. One that does not say is younger than all that do.
    pub fn created(&self) -> i64 {
        created(self.metadata())
    }
}

pub(crate) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second())
}

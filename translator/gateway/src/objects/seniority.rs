use super::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

impl Object {
    /// Since when there is an object, in seconds of Unix time. One that does not say is younger than all that do.
    pub fn created(&self) -> i64 {
        created(self.metadata())
    }
}

pub(crate) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second())
}

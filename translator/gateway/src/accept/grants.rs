use crate::objects::{ObjectKey, gateway};
use crate::world::Reader;

/// Whether an object may refer to another: always within its namespace, else only with a ReferenceGrant beside the
/// object that is referred to.
pub(crate) fn is_granted(reader: &Reader<'_>, from: &ObjectKey, to: &ObjectKey) -> bool {
    if from.name.namespace == to.name.namespace {
        return true;
    }
    reader.objects_in::<gateway::ReferenceGrant>(&to.name.namespace).any(|grant| {
        let gives = grant.spec.from.iter().any(|given| {
            given.group == from.kind.group()
                && given.kind == from.kind.as_str()
                && given.namespace == *from.name.namespace
        });
        let covers = grant.spec.to.iter().any(|target| {
            target.group == to.kind.group()
                && target.kind == to.kind.as_str()
                && target
                    .name
                    .as_deref()
                    .is_none_or(|name| name.is_empty() || *name == *to.name.name)
        });
        gives && covers
    })
}

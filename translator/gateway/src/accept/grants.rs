use crate::objects::gateway::ReferenceGrant;
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::world::Reader;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether an object may refer to another: always within its namespace, else only with a ReferenceGrant beside the
/// object that is referred to.
pub(crate) fn is_granted(reader: &Reader<'_>, from: &ObjectKey, to: &ObjectKey) -> bool {
    if from.name.namespace == to.name.namespace {
        return true;
    }
    reader.objects_in::<ReferenceGrant>(&to.name.namespace).any(|grant| {
        let covers = grant.spec.to.iter().any(|target| {
            target.group == to.kind.group()
                && target.kind == to.kind.as_str()
                && target
                    .name
                    .as_deref()
                    .is_none_or(|name| name.is_empty() || *name == *to.name.name)
        });
        gives(grant, from) && covers
    })
}

/// The other namespaces where an object may refer to something.
pub(crate) fn granting(reader: &Reader<'_>, from: &ObjectKey) -> BTreeSet<Arc<str>> {
    let home = &from.name.namespace;
    let namespace = ObjectName::new("", home).of(Kind::Namespace);
    let grants = reader.children::<ReferenceGrant>(&namespace).filter(|grant| gives(grant, from));
    let namespaces = grants.filter_map(|grant| grant.metadata.namespace.as_deref());
    namespaces.filter(|namespace| *namespace != &**home).map(Into::into).collect()
}

fn gives(grant: &ReferenceGrant, from: &ObjectKey) -> bool {
    grant.spec.from.iter().any(|given| {
        given.group == from.kind.group()
            && given.kind == from.kind.as_str()
            && given.namespace == *from.name.namespace
    })
}

use super::gateway::{GROUP, ListenerSet};
use super::{Kind, ObjectKey, ObjectName};

/// The Gateway that a set adds listeners to. `None`: it names something else.
pub(crate) fn parent(set: &ListenerSet) -> Option<ObjectKey> {
    let parent = &set.spec.parent_ref;
    let group = parent.group.as_deref().unwrap_or(GROUP);
    let kind = parent.kind.as_deref().unwrap_or(Kind::Gateway.as_str());
    let kind = Kind::find(group, kind).filter(|kind| *kind == Kind::Gateway)?;
    let home = set.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = parent.namespace.as_deref().unwrap_or(home);
    Some(ObjectName::new(namespace, &parent.name).of(kind))
}

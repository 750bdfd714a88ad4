use crate::objects::gateway::ReferenceGrant;
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::world::Reader;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an object may refer to, of one kind and in one namespace.
pub(crate) enum Granted<'a> {
    All,
    Named(BTreeSet<&'a str>),
}

impl Granted<'_> {
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// Whether an object may refer to another: always within its namespace, else only with a ReferenceGrant beside the
/// object that is referred to.
pub(crate) fn is_granted(reader: &Reader<'_>, from: &ObjectKey, to: &ObjectKey) -> bool {
    let ObjectName { namespace, name } = &to.name;
    from.name.namespace == *namespace
        || names(reader, from, to.kind, namespace).any(|it| it.is_none_or(|it| *it == **name))
}

/// The same for all objects of a kind in a namespace: its grants are read once, however many objects it has.
pub(crate) fn granted<'a>(
    reader: &Reader<'a>,
    from: &ObjectKey,
    kind: Kind,
    namespace: &str,
) -> Granted<'a> {
    if *from.name.namespace == *namespace {
        return Granted::All;
    }
    let names: Option<_> = names(reader, from, kind, namespace).collect();
    names.map_or(Granted::All, Granted::Named)
}

/// The names that grants of a namespace have of a kind. `None`: all names.
fn names<'a>(
    reader: &Reader<'a>,
    from: &ObjectKey,
    kind: Kind,
    namespace: &str,
) -> impl Iterator<Item = Option<&'a str>> {
    let grants = reader.objects_in::<ReferenceGrant>(namespace).filter(|it| gives(it, from));
    let targets = grants.flat_map(|grant| &grant.spec.to);
    let of_kind = targets.filter(move |it| it.group == kind.group() && it.kind == kind.as_str());
    of_kind.map(|target| target.name.as_deref().filter(|name| !name.is_empty()))
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

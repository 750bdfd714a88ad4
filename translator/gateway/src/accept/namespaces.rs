use super::NamespaceRule;
use crate::objects::{ObjectName, core};
use crate::world::Reader;
use kube::core::{Selector, SelectorExt};

/// Whether what is in a namespace may attach to something in namespace `home`.
pub(crate) fn allows(
    reader: &Reader<'_>,
    rule: &NamespaceRule,
    home: &str,
    namespace: &str,
) -> bool {
    match rule {
        NamespaceRule::All => true,
        NamespaceRule::Same => home == namespace,
        NamespaceRule::Nobody => false,
        NamespaceRule::Selector(selector) => {
            let object = reader.object::<core::Namespace>(&ObjectName::new("", namespace));
            let mut labels =
                object.and_then(|object| object.metadata.labels.clone()).unwrap_or_default();
            // Kubernetes puts this label on every namespace; a directory of files need not.
            labels.insert("kubernetes.io/metadata.name".to_owned(), namespace.to_owned());
            // An operator that does not exist selects nothing.
            Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(&labels))
        }
    }
}

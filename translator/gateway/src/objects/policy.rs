use super::gateway::BackendTlsPolicy;
use super::{Kind, ObjectKey, ObjectName};

/// The Services that a policy is about, and the name of a port if it is about that only.
pub(crate) fn targets(
    policy: &BackendTlsPolicy,
) -> impl Iterator<Item = (ObjectKey, Option<&str>)> {
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    let services = policy
        .spec
        .target_refs
        .iter()
        .filter(|target| Kind::find(&target.group, &target.kind) == Some(Kind::Service));
    services.map(move |target| {
        let service = ObjectName::new(namespace, &target.name).of(Kind::Service);
        (service, target.section_name.as_deref())
    })
}

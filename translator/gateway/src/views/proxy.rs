use crate::objects::ObjectName;
use crate::objects::heliograph;
use crate::world::Reader;
use heliograph_snapshot::{FleetName, Resource};
use heliograph_views::Proxy;
use std::sync::Arc;

/// A proxy of a fleet, as the inventory has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedProxy {
    pub(crate) fleet: FleetName,
    pub(crate) proxy: Proxy,
}

/// `None` if its Gateway is not ours.
pub(crate) fn proxy(reader: &Reader<'_>, name: &ObjectName) -> Option<ListedProxy> {
    let object = reader.object::<heliograph::Proxy>(name)?;
    let fleet = super::target(reader, &name.namespace, &object.spec.target_ref).ok()?;
    let labels = object.metadata.labels.clone().unwrap_or_default();
    Some(ListedProxy { fleet, proxy: Proxy { namespace: name.namespace.to_string(), labels } })
}

/// A proxy's place in the inventory is its name, which is its node id: the targets of proxies are in their own namespace,
/// so no two of a fleet have the same.
pub(crate) fn entry(reader: &Reader<'_>, name: &ObjectName) -> Option<Arc<Resource>> {
    Some(Arc::new(reader.proxy(name)?.proxy.resource(&name.name)))
}

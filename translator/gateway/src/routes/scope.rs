use crate::backends::{self, Reference};
use crate::objects::{Kind, ObjectKey};
use crate::status::Condition;
use crate::world::Reader;
use heliograph_model::{Target, UpstreamProtocol};
use std::collections::BTreeSet;

/// Gives the rules and filters of a route access to objects, and records the references that cannot be resolved.
pub(crate) struct RouteScope<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) route: &'a ObjectKey,
    /// The protocol of a backend that names none.
    pub(super) default_protocol: UpstreamProtocol,
    pub(super) resolved: &'a mut Condition,
    /// The objects that were referred to, whether or not they exist.
    pub(super) backend_references: &'a mut BTreeSet<ObjectKey>,
}

impl RouteScope<'_> {
    /// Resolves a reference to a backend. The first that cannot be resolved is reported; all of them answer 500.
    pub(crate) fn resolve(&mut self, reference: &Reference<'_>) -> Target {
        if let Some(kind) = Kind::find(reference.group, reference.kind) {
            self.backend_references.insert(reference.name.clone().of(kind));
        }
        match backends::resolve(self.reader, self.route, self.default_protocol, reference) {
            Ok(target) => target,
            Err(unresolved) => {
                if self.resolved.is_true() {
                    *self.resolved = unresolved;
                }
                Target::Invalid
            }
        }
    }

    /// Where a reference leads that names no namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.route.name.namespace
    }
}

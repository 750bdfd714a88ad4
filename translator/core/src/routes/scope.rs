use crate::backends::{self, Reference};
use crate::ir::Target;
use crate::objects::ObjectKey;
use crate::status::Condition;
use crate::world::Reader;

/// What the rules and filters of a route may look at, and where they say which references lead nowhere.
pub(crate) struct Scope<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) route: &'a ObjectKey,
    pub(super) resolved: &'a mut Condition,
}

impl Scope<'_> {
    /// Follows a reference to a backend. The first that leads nowhere is told; all of them answer 500.
    pub(crate) fn resolve(&mut self, reference: &Reference<'_>) -> Target {
        match backends::resolve(self.reader, self.route, reference) {
            Ok(backend) => Target::Backend(backend),
            Err(unresolved) => {
                if self.resolved.is_true {
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

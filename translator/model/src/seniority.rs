use crate::{Named, ObjectName, RouteId};
use std::cmp::Ordering;

/// The order in which the older object wins a conflict: by creation time, then by `namespace/name` as text, as in
/// Gateway API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seniority<T> {
    created: i64,
    of: T,
}

/// How old a route is.
pub type RouteAge = Seniority<RouteId>;

impl<T> Seniority<T> {
    /// `created` is in seconds of Unix time.
    pub fn new(created: i64, of: T) -> Self {
        Self { created, of }
    }

    /// The value with this age.
    pub fn of(&self) -> &T {
        &self.of
    }
}

impl<T: Named + Ord> Ord for Seniority<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.created
            .cmp(&other.created)
            .then_with(|| text(self.of.name()).cmp(text(other.of.name())))
            .then_with(|| self.of.cmp(&other.of))
    }
}

impl<T: Named + Ord> PartialOrd for Seniority<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `namespace/name`.
fn text(name: &ObjectName) -> impl Iterator<Item = u8> + '_ {
    name.namespace.bytes().chain([b'/']).chain(name.name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_one_comes_first_and_then_the_text_decides() {
        let of =
            |created, namespace, name| Seniority::new(created, ObjectName::new(namespace, name));
        assert!(of(1, "z", "z") < of(2, "a", "a"));
        assert!(of(1, "a", "x") < of(1, "a", "y"));
        // As text, `a-b/x` is before `a/x`.
        assert!(of(1, "a-b", "x") < of(1, "a", "x"));
    }
}

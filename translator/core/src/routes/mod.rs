//! Routes: one file per kind. Whatever the kind, its rules become an [`ir::HttpRoute`], and that becomes a [`Piece`] of
//! the tables that it is attached to.

mod http;
mod piece;
mod regex;

pub(crate) use piece::{Piece, PieceRoute, piece};

use crate::ir;
use crate::objects::{Kind, ObjectKey, gateway};
use crate::status::Condition;
use crate::world::Reader;

/// The kinds of routes. A new one is a file here, an entry in this list and an arm in [`rules`].
pub(crate) const KINDS: &[Kind] = &[Kind::HTTPRoute];

/// A route as it is understood, apart from what it is attached to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) generation: i64,
    /// When the object was made, in seconds: of two equal routes the older wins.
    pub(crate) created: i64,
    pub(crate) parents: Vec<gateway::ParentRef>,
    /// `None` if the route is refused.
    pub(crate) route: Option<ir::HttpRoute>,
    /// Why the route is refused on every listener.
    pub(crate) refusal: Option<Condition>,
    /// Whether all its references lead somewhere.
    pub(crate) resolved: Condition,
}

pub(crate) fn rules(reader: &Reader<'_>, key: &ObjectKey) -> Rules {
    let rules = match key.kind {
        Kind::HTTPRoute => http::rules(reader, &key.name),
        _ => None,
    };
    rules.unwrap_or_else(Rules::none)
}

impl Rules {
    /// Of a route that does not exist.
    fn none() -> Self {
        Self {
            generation: 0,
            created: i64::MAX,
            parents: Vec::new(),
            route: None,
            refusal: None,
            resolved: resolved(),
        }
    }
}

fn resolved() -> Condition {
    Condition::yes("ResolvedRefs", "ResolvedRefs", "All references are resolved")
}

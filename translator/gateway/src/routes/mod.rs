//! Routes: one file per kind; the compiler names the arms of a new one. Its rules become a [`model::Route`], and that, over
//! HTTP, a [`CompiledRoute`] for each listener that it is attached to. The routes of forwarded connections are part of
//! listeners: see `merge`.

mod compiled;
mod grpc;
mod http;
mod rules;
mod scope;
mod tcp;

pub(crate) use compiled::{CompiledRoute, compiled, size};
pub(crate) use scope::RouteScope;

use crate::objects::{Kind, ObjectKey, gateway};
use crate::status::Condition;
use crate::status::reasons::route::resolved_refs::RESOLVED_REFS;
use crate::world::Reader;
use heliograph_model::{self as model, FrozenSet, Hostname, Protocol, RouteId, RouteKind};

/// A route as it is understood, apart from what it is attached to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) generation: i64,
    /// When the object was made, in seconds: of two equal routes the older wins.
    pub(crate) created: i64,
    pub(crate) parents: Vec<gateway::ParentRef>,
    /// Never empty: a route that names no host is for all of them.
    pub(crate) hostnames: Vec<Hostname>,
    /// `None` if the route is refused.
    pub(crate) route: Option<model::Route>,
    pub(crate) expressions: Expressions,
    /// Why the route is refused on every listener.
    pub(crate) refusal: Option<Condition>,
    /// Whether all its references lead somewhere.
    pub(crate) resolved: Condition,
    /// The objects that its rules refer to, whether or not they exist.
    pub(crate) backend_references: FrozenSet<ObjectKey>,
}

/// The regular expressions of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expressions {
    /// How many they have in Envoy.
    pub(crate) instructions: u64,
    /// How many of these Envoy tries at most for a request that it looks for a route for.
    pub(crate) tried: u64,
    /// Whether the route is refused because one of them is larger than Envoy takes.
    pub(crate) is_too_large: bool,
}

pub(crate) fn rules(reader: &Reader<'_>, id: &RouteId) -> Rules {
    let rules = match id.kind {
        RouteKind::Http => http::accept(reader, id),
        RouteKind::Grpc => grpc::accept(reader, id),
        RouteKind::Tcp => tcp::accept(reader, id),
    };
    rules.unwrap_or_else(Rules::none)
}

/// The protocols of the listeners that routes of a kind can be attached to.
fn protocols(kind: RouteKind) -> &'static [Protocol] {
    match kind {
        RouteKind::Http | RouteKind::Grpc => &[Protocol::Http, Protocol::Https],
        RouteKind::Tcp => &[Protocol::Tcp],
    }
}

/// The kinds of routes that a listener can have.
pub(crate) fn kinds_for(protocol: Protocol) -> Vec<Kind> {
    let kinds = RouteKind::ALL.iter().filter(|kind| protocols(**kind).contains(&protocol));
    kinds.map(|kind| Kind::from(*kind)).collect()
}

impl Kind {
    /// Whether objects of this kind are routes, whose rules and attachments are translated.
    pub fn is_route(self) -> bool {
        self.route_kind().is_some()
    }
}

impl Rules {
    /// Whether a rule has this name. Of a route that is refused, nothing is known.
    pub(crate) fn has_rule(&self, name: &str) -> bool {
        match &self.route {
            None => true,
            Some(model::Route::Http(route)) => {
                route.rules.iter().any(|rule| rule.name.as_deref() == Some(name))
            }
            // It has one rule at most, and policies are for all of it.
            Some(model::Route::Tcp(_)) => false,
        }
    }

    /// Of a route that does not exist.
    fn none() -> Self {
        Self {
            generation: 0,
            created: i64::MAX,
            parents: Vec::new(),
            hostnames: vec![Hostname::Any],
            route: None,
            expressions: Expressions::default(),
            refusal: None,
            resolved: resolved(),
            backend_references: FrozenSet::default(),
        }
    }
}

fn resolved() -> Condition {
    Condition::new(RESOLVED_REFS, "All references are resolved")
}

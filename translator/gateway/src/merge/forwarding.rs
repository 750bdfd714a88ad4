//! Chooses, of many routes at a listener that forwards connections, the one that gets them.

use crate::attach::Parent;
use crate::policies::Levels;
use crate::status::Condition;
use crate::status::reasons::route::programmed::OLDER_ROUTE;
use crate::world::{InFleet, Reader};
use heliograph_model::{FrozenSet, ListenerId, Route, RouteAge, RouteId, TcpRoute, UpstreamId};

/// Where the connections of a listener go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Forwarding {
    /// `None`: nowhere, they are closed.
    pub(crate) route: Option<(RouteId, TcpRoute)>,
    pub(crate) upstreams: FrozenSet<UpstreamId>,
}

/// Gateway API: of several routes the oldest gets all connections, since nothing in them could tell whose they are.
pub(crate) fn forwarding(reader: &Reader<'_>, listener: &InFleet<ListenerId>) -> Forwarding {
    let attached = reader.routes_at(&listener.id).filter_map(|id| {
        let rules = reader.rules(id)?;
        match rules.route.as_ref()? {
            Route::Tcp(route) => Some((RouteAge::new(rules.created, id.clone()), route)),
            Route::Http(_) => None,
        }
    });
    let Some((age, route)) = attached.min_by(|one, other| one.0.cmp(&other.0)) else {
        return Forwarding::default();
    };
    // What a policy closes keeps its connections from younger routes, too: they are closed.
    let is_open = Levels::of(reader, age.of(), &listener.id).http(None).is_ok();
    let route = if is_open { route.clone() } else { TcpRoute { targets: Vec::new() } };
    let upstreams = route.upstreams().cloned().collect();
    Forwarding { route: Some((age.of().clone(), route)), upstreams }
}

/// The condition of a route where an older one has the connections. It does not name the older route, which may be in
/// another namespace.
pub(crate) fn older_route(reader: &Reader<'_>, id: &RouteId, parent: &Parent) -> Option<Condition> {
    const NAMED: usize = 5;
    let is_others = |listener: &&ListenerId| {
        let forwarding = reader.forwarding(&InFleet::new(&parent.fleet, (*listener).clone()));
        let route = forwarding.and_then(|forwarding| forwarding.route.as_ref());
        route.is_some_and(|(of, _)| of != id)
    };
    let lost: Vec<&str> =
        parent.listeners().iter().filter(is_others).map(|listener| &*listener.name).collect();
    let named = lost.get(..NAMED).unwrap_or(&lost).join(", ");
    let more = match lost.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("An older route receives the connections of listener {named}{more}");
    (!lost.is_empty()).then(|| Condition::new(OLDER_ROUTE, message))
}

//! Puts many routes into one virtual host: which routes answer for a host, and in which order Envoy tries them.
//! [`forwarding`] does the same for connections.

mod dropped;
mod forwarding;

pub(crate) use forwarding::{Forwarding, forwarding, older_route};

use crate::world::{CompiledRouteKey, HostKey, Reader};
use bytes::Bytes;
use dropped::Dropped;
use heliograph_envoy_dialect as envoy;
use heliograph_model::{Hostname, RouteAge, RouteId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The routes for one host of a table, encoded.
///
/// A request belongs to the most specific listener for its host, and to no other: what matches nothing there is
/// answered with 404, and what came to another, since the client chose that by SNI, with 421. Envoy's virtual hosts do not fall through either, so routes for wider hostnames are copied into
/// this one, behind those for narrower ones.
pub(crate) fn virtual_host(reader: &Reader<'_>, key: &HostKey) -> Option<Bytes> {
    let HostKey { table, host } = key;
    let owner = reader
        .listeners_of(table)
        .iter()
        .filter(|candidate| candidate.hostname.covers(host))
        .max_by(|one, other| Hostname::by_specificity(&one.hostname, &other.hostname))?;
    if !owner.is_here {
        return Some(envoy::misdirected(host));
    }

    // Each route once, under the most specific of its hostnames.
    let mut written: BTreeMap<&RouteId, &Hostname> = BTreeMap::new();
    let hosted = reader.hosted(key, &owner.listener);
    for (route, hostname) in hosted.iter().flat_map(|(_, routes)| routes).copied() {
        let best = written.entry(route).or_insert(hostname);
        if Hostname::by_specificity(hostname, best).is_gt() {
            *best = hostname;
        }
    }
    let not_copied = reader.not_copied(key);
    let mut routes = Vec::new();
    let mut dropped = Dropped::default();
    for (route, hostname) in written {
        let (table, listener) = (table.clone(), owner.listener.clone());
        let of = CompiledRouteKey { route: route.clone(), table, listener };
        let Some(compiled) = reader.compiled_route(&of) else { continue };
        if not_copied.is_some_and(|it| it.contains(compiled.created, route)) {
            continue;
        }
        dropped.add(route, hostname, compiled);
        routes.extend(compiled.routes.iter().enumerate().map(|(index, of_route)| {
            // Gateway API: hostname, then match, then seniority, then the place in the route.
            let order = (
                Reverse(hostname.specificity()),
                &of_route.precedence,
                of_route.is_outline,
                RouteAge::new(compiled.created, route.clone()),
                index,
            );
            (order, hostname, of_route)
        }));
    }
    routes.sort_by(|one, other| one.0.cmp(&other.0));
    if dropped.is_empty() {
        let encoded = routes.into_iter().map(|(.., route)| &*route.encoded);
        return Some(envoy::virtual_host(host, encoded));
    }
    let in_order =
        routes.iter().map(|((.., age, _), hostname, route)| (age.of(), *hostname, *route));
    let routes = dropped.closed(in_order);
    let asking = hosted.iter().filter(|(name, _)| *name == host);
    let asking = asking.flat_map(|(_, routes)| routes).map(|(route, _)| route);
    let routes = dropped.closing(routes, asking);
    Some(envoy::virtual_host(host, routes.iter().map(|encoded| &**encoded)))
}

//! Where matches are dropped because proxies reject them, no route of another tenant answers their requests instead.

use crate::routes::CompiledRoute;
use bytes::Bytes;
use heliograph_envoy_dialect::{self as envoy, CompiledMatch, MissingMatches};
use heliograph_model::{Hostname, RouteId};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is dropped of the routes of one host.
#[derive(Default)]
pub(super) struct Dropped<'a> {
    /// The routes with dropped matches of which nothing stays, with the hostname that the author wrote.
    closing: BTreeMap<&'a RouteId, &'a Hostname>,
    /// Of each namespace, the matches that are dropped although a policy protects them, by hostname.
    unprotected: BTreeMap<&'a Arc<str>, Vec<(&'a Hostname, &'a MissingMatches)>>,
}

impl<'a> Dropped<'a> {
    pub(super) fn add(
        &mut self,
        route: &'a RouteId,
        hostname: &'a Hostname,
        compiled: &'a CompiledRoute,
    ) {
        if compiled.closes_hosts {
            self.closing.insert(route, hostname);
        }
        if let Some(missing) = &compiled.unprotected {
            let unprotected = self.unprotected.entry(&route.name.namespace).or_default();
            unprotected.push((hostname, missing));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.closing.is_empty() && self.unprotected.is_empty()
    }

    /// The same with an error as its answer, where it may have requests of a protected match that is dropped. Only what is of
    /// the same namespace: no tenant closes the routes of another.
    pub(super) fn closed(
        &self,
        route: &RouteId,
        hostname: &Hostname,
        of_route: &CompiledMatch,
    ) -> Option<Bytes> {
        let unprotected = self.unprotected.get(&route.name.namespace)?;
        let place = |hostname: &Hostname| Reverse(hostname.specificity());
        let is_behind = |(at, missing): &&(&Hostname, &MissingMatches)| {
            (place(at), &missing.precedence) <= (place(hostname), &of_route.precedence)
        };
        let mut behind = unprotected.iter().filter(is_behind);
        behind.find_map(|(_, missing)| missing.closed(&of_route.encoded))
    }

    /// All routes of the host, in order. Behind those of the hostname that has lost a match comes an error for everything,
    /// and not what others serve for wider hostnames. The host is there because of those that are `asking` for it.
    pub(super) fn closing<'b>(
        &self,
        mut routes: Vec<(&Hostname, Bytes)>,
        asking: impl Iterator<Item = &'b RouteId>,
    ) -> Vec<Bytes> {
        let before = routes.len();
        let hostnames = self.closing.values();
        let narrowest = hostnames.max_by(|one, other| Hostname::by_specificity(one, other));
        if let Some(narrowest) = narrowest {
            routes.retain(|(it, _)| Hostname::by_specificity(it, narrowest) != Ordering::Less);
        }
        // Where nothing would answer anyway, the answer to what is unknown stays what it was.
        let all_are_closing = asking.map(|route| self.closing.contains_key(route)).min();
        let is_last = routes.len() < before || all_are_closing == Some(true);
        let routes = routes.into_iter().map(|(_, route)| route);
        routes.chain(is_last.then(envoy::closed)).collect()
    }
}

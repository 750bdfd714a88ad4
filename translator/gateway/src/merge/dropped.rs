//! Where matches are dropped because proxies reject them, no route of another tenant answers their requests instead.

use crate::routes::CompiledRoute;
use bytes::Bytes;
use heliograph_envoy_dialect::{self as envoy, CompiledMatch, MissingMatches, MissingPaths};
use heliograph_model::{Hostname, Precedence, RouteId};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

/// What is dropped of the routes of one host.
#[derive(Default)]
pub(super) struct Dropped<'a> {
    /// The routes with dropped matches of which nothing stays, with the hostname that the author wrote.
    closing: BTreeMap<&'a RouteId, &'a Hostname>,
    /// Of each namespace, the matches that are dropped although a policy protects them, by hostname.
    unprotected: BTreeMap<&'a Arc<str>, Vec<(&'a Hostname, &'a MissingMatches)>>,
}

/// The dropped matches of a namespace that come before the route which is looked at. A host may have thousands of both, and
/// everybody waits: so each of them is looked at once.
struct Passed<'a> {
    ahead: Peekable<IntoIter<(&'a Hostname, &'a MissingMatches)>>,
    paths: MissingPaths<'a>,
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

    /// The same routes, which come in order, with an error as the answer of those that may have requests of a protected match
    /// that is dropped. Only what is of the same namespace: no tenant closes the routes of another.
    pub(super) fn closed<'b>(
        &self,
        routes: impl Iterator<Item = (&'b RouteId, &'b Hostname, &'b CompiledMatch)>,
    ) -> Vec<(&'b Hostname, Bytes)> {
        let unprotected = self.unprotected.iter();
        let mut passed: BTreeMap<_, _> = unprotected
            .map(|(namespace, missing)| (*namespace, Passed::none_of(missing)))
            .collect();
        let closed = routes.map(|(route, hostname, of_route)| {
            let passed = passed.get_mut(&route.name.namespace);
            let closed = passed.and_then(|passed| passed.closed(hostname, of_route));
            (hostname, closed.unwrap_or_else(|| of_route.encoded.clone()))
        });
        closed.collect()
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

impl<'a> Passed<'a> {
    fn none_of(missing: &[(&'a Hostname, &'a MissingMatches)]) -> Self {
        let mut ahead = missing.to_vec();
        ahead.sort_by(|(at, one), (other_at, other)| {
            place(at, &one.precedence).cmp(&place(other_at, &other.precedence))
        });
        Self { ahead: ahead.into_iter().peekable(), paths: MissingPaths::default() }
    }

    /// The next route with an error as its answer, if it may have requests of those before it.
    fn closed(&mut self, hostname: &Hostname, of_route: &CompiledMatch) -> Option<Bytes> {
        let here = place(hostname, &of_route.precedence);
        while let Some((_, missing)) =
            self.ahead.next_if(|(at, missing)| place(at, &missing.precedence) <= here)
        {
            self.paths.add(missing);
        }
        self.paths.closed(&of_route.encoded)
    }
}

/// Where a match stands at a host.
fn place<'a>(hostname: &Hostname, precedence: &'a Precedence) -> impl Ord + use<'a> {
    (Reverse(hostname.specificity()), precedence)
}

use crate::names::{NamePool, NameSet};
use crate::request::{RequestError, check};
use heliograph_snapshot::ResourceType;
use std::sync::Arc;

/// The subscription of a client, for one type.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    kind: ResourceType,
    wildcard: bool,
    /// Asked for by name, beside the wildcard or without it.
    names: NameSet,
    /// Whether the client ever gave a name. Until then, asking for nothing means asking for everything.
    named: bool,
}

/// How a request changed a [`Subscription`].
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// To be answered by name, whatever the client is believed to hold.
    pub(crate) requested: Vec<RequestedName>,
    /// Everything is asked for that was not before.
    pub(crate) widened: bool,
    /// Something is no longer asked for.
    pub(crate) narrowed: bool,
}

#[derive(Debug)]
pub(crate) struct RequestedName {
    pub(crate) name: Arc<str>,
    /// Whether the subscription covered this name before the request.
    pub(crate) known: bool,
}

const WILDCARD: &str = "*";

impl Subscription {
    pub(crate) fn new(kind: ResourceType) -> Self {
        Self { kind, wildcard: false, names: NameSet::default(), named: false }
    }

    pub(crate) fn wildcard(&self) -> bool {
        self.wildcard
    }

    pub(crate) fn is_named(&self) -> bool {
        self.named
    }

    pub(crate) fn names(&self) -> &NameSet {
        &self.names
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// Delta: names come and go. "The server must respond with all resources listed in `resource_names_subscribe`,
    /// even if it believes the client has the most recent version of them."
    pub(crate) fn change(
        &mut self,
        subscribe: Vec<Arc<str>>,
        unsubscribe: Vec<Arc<str>>,
        pool: &NamePool,
    ) -> Result<Change, RequestError> {
        let mut change = Change::default();
        let before = self.wildcard;
        if !subscribe.is_empty() {
            self.named = true;
        } else if !self.named {
            self.wildcard = self.kind.is_asked_whole();
        }
        let mut added = Vec::new();
        for name in subscribe {
            if &*name == WILDCARD {
                self.wildcard = true;
                continue;
            }
            change.requested.push(RequestedName {
                known: before || self.names.contains(&name),
                name: name.clone(),
            });
            added.push(name);
        }
        let mut names: Option<NameSet> = None;
        if !added.is_empty() {
            names = Some(self.names.iter().cloned().chain(added).collect());
        }
        let mut gone = Vec::new();
        for name in unsubscribe {
            if &*name == WILDCARD {
                self.named = true;
                self.wildcard = false;
            } else {
                gone.push(name);
            }
        }
        if !gone.is_empty() {
            let gone: NameSet = gone.into_iter().collect();
            let kept = names.unwrap_or_else(|| self.names.clone());
            let released = kept.iter().filter(|name| gone.contains(name));
            // "The client unsubscribed from a name that the wildcard still covers": it may have dropped the resource, so
            // it is sent once more.
            if self.wildcard {
                change
                    .requested
                    .extend(released.map(|name| RequestedName { name: name.clone(), known: true }));
            }
            names = Some(kept.iter().filter(|name| !gone.contains(name)).cloned().collect());
            change.narrowed = true;
        }
        if let Some(names) = names {
            self.set_names(names, pool)?;
        }
        change.widened = self.wildcard && !before;
        change.narrowed |= before && !self.wildcard;
        Ok(change)
    }

    /// State of the world: every request carries the full list. "The server must resend any newly requested
    /// resources, even if it previously sent those resources without having been asked for them."
    pub(crate) fn replace(
        &mut self,
        names: Vec<Arc<str>>,
        pool: &NamePool,
    ) -> Result<Change, RequestError> {
        let before = self.wildcard;
        let given = !names.is_empty();
        let names: NameSet = names.into_iter().collect();
        self.named |= given;
        self.wildcard =
            if self.named { names.contains(WILDCARD) } else { self.kind.is_asked_whole() };
        let names: NameSet = names.iter().filter(|name| &***name != WILDCARD).cloned().collect();
        let requested = names
            .iter()
            .filter(|name| !self.names.contains(name))
            .map(|name| RequestedName { name: name.clone(), known: before })
            .collect();
        let narrowed =
            (before && !self.wildcard) || self.names.iter().any(|name| !names.contains(name));
        if names != self.names {
            self.set_names(names, pool)?;
        }
        Ok(Change { requested, widened: self.wildcard && !before, narrowed })
    }

    fn set_names(&mut self, names: NameSet, pool: &NamePool) -> Result<(), RequestError> {
        check(self.kind.type_url(), names.iter().map(|name| &**name))?;
        self.names = pool.intern(names);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn state(subscription: &Subscription) -> (bool, Vec<&str>) {
        (subscription.wildcard, subscription.names.iter().map(|name| &**name).collect())
    }

    /// The two examples of the spec, step by step.
    #[test]
    fn wildcards_follow_the_examples_of_the_spec() {
        let pool = NamePool::default();
        let mut whole = Subscription::new(ResourceType::Cluster);
        for (requested, expected) in [
            (names(&[]), (true, vec![])),
            (names(&["*", "A"]), (true, vec!["A"])),
            (names(&["A"]), (false, vec!["A"])),
            (names(&[]), (false, vec![])),
        ] {
            whole.replace(requested, &pool).unwrap();
            assert_eq!(state(&whole), expected);
        }
        let mut delta = Subscription::new(ResourceType::Cluster);
        for (subscribe, unsubscribe, expected) in [
            (names(&[]), names(&[]), (true, vec![])),
            (names(&["A"]), names(&[]), (true, vec!["A"])),
            (names(&[]), names(&["*"]), (false, vec!["A"])),
            (names(&[]), names(&["A"]), (false, vec![])),
            (names(&[]), names(&[]), (false, vec![])),
        ] {
            delta.change(subscribe, unsubscribe, &pool).unwrap();
            assert_eq!(state(&delta), expected);
        }
    }

    #[test]
    fn an_empty_list_is_no_wildcard_for_types_that_are_asked_by_name() {
        let pool = NamePool::default();
        for kind in ResourceType::ALL.into_iter().filter(|kind| !kind.is_asked_whole()) {
            let mut subscription = Subscription::new(kind);
            subscription.replace(vec![], &pool).unwrap();
            assert!(!subscription.covers("a"));
            subscription.change(vec![], vec![], &pool).unwrap();
            assert!(!subscription.covers("a"));
            subscription.change(names(&["*"]), vec![], &pool).unwrap();
            assert!(subscription.covers("a"));
        }
    }

    #[test]
    fn a_name_released_under_the_wildcard_is_asked_once_more() {
        let pool = NamePool::default();
        let mut subscription = Subscription::new(ResourceType::Cluster);
        subscription.change(names(&["*", "a"]), vec![], &pool).unwrap();
        let change = subscription.change(vec![], names(&["a", "never-asked"]), &pool).unwrap();
        assert_eq!(change.requested.len(), 1);
        assert_eq!(&*change.requested[0].name, "a");
        assert!(subscription.covers("a"));
    }

    #[test]
    fn the_total_of_names_is_bounded_too() {
        let pool = NamePool::default();
        let mut subscription = Subscription::new(ResourceType::Endpoints);
        let batch = |from: usize| (from..from + 100_000).map(|n| n.to_string().into()).collect();
        subscription.change(batch(0), vec![], &pool).unwrap();
        subscription.change(batch(100_000), vec![], &pool).unwrap();
        assert!(subscription.change(batch(200_000), vec![], &pool).is_err());
    }

    #[test]
    fn the_total_of_their_bytes_is_bounded_too() {
        let pool = NamePool::default();
        let mut subscription = Subscription::new(ResourceType::Endpoints);
        let batch =
            |from: usize| (from..from + 10_000).map(|n| format!("{n:01000}").into()).collect();
        subscription.change(batch(0), vec![], &pool).unwrap();
        let error = subscription.change(batch(10_000), vec![], &pool).unwrap_err();
        assert!(error.to_string().contains("20000000 bytes"), "{error}");
    }
}

//! The subscriptions of a request, turned into exceptions.

use super::{ClientCopy, Exception, Watch, version_of};
use crate::names::NamePool;
use crate::request::{RequestError, SubscriptionRequest};
use crate::subscription::Change;
use heliograph_snapshot::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Watch {
    /// The first request of a type on a stream. A client that was connected before lists what it holds, and is sent
    /// only what differs. Versions are content hashes, so it does not matter which replica it was connected to.
    pub(crate) fn start_subscription(
        &mut self,
        subscription_request: SubscriptionRequest,
        pool: &NamePool,
    ) -> Result<(), RequestError> {
        match subscription_request {
            SubscriptionRequest::Change { subscribe, unsubscribe, held } => {
                let change = self.change(subscribe, unsubscribe, pool)?;
                self.resume(&change, &held)?;
                self.answer_due = self.subscription.wildcard() && held.is_empty();
            }
            SubscriptionRequest::Whole { names, version } => {
                let change = self.replace(names, pool)?;
                // The version of a type covers all names that are asked for, so that one name more is a new version
                // and is answered.
                if !version.is_empty() && version_of(&self.unexceptional()).as_str() == version {
                    return Ok(());
                }
                if !version.is_empty() && self.keep_held_back(&version) {
                    return Ok(());
                }
                for resource in self.unexceptional() {
                    self.exceptions
                        .insert(resource.name.clone(), Exception::new(ClientCopy::Nothing));
                }
                for requested in &change.requested {
                    self.send_new_name(&requested.name);
                }
                self.answer_due = self.subscription.wildcard();
                self.unknown = self.lists_everything() && !version.is_empty();
            }
        }
        Ok(())
    }

    pub(crate) fn update_subscription(
        &mut self,
        subscription_request: SubscriptionRequest,
        pool: &NamePool,
    ) -> Result<(), RequestError> {
        let change = match subscription_request {
            SubscriptionRequest::Change { subscribe, unsubscribe, .. } => {
                self.change(subscribe, unsubscribe, pool)?
            }
            SubscriptionRequest::Whole { names, .. } => self.replace(names, pool)?,
        };
        if change.narrowed {
            let subscription = &self.subscription;
            self.exceptions.retain(|name, _| subscription.covers(name));
        }
        if change.widened || change.requested.iter().any(|requested| !requested.known) {
            // What it acknowledged, and what it is about to, is not all that it asks for any more.
            self.confirmed = None;
            self.in_flight.iter_mut().for_each(|flight| flight.whole = false);
        }
        for requested in &change.requested {
            let held = self.view.get(self.kind, &requested.name).filter(|_| requested.known);
            let exception = self
                .exceptions
                .entry(requested.name.clone())
                .or_insert_with(|| Exception::holding(held));
            // Asked for anew: even what the client rejected before.
            exception.resend = true;
            exception.rejected = None;
            exception.suspected = None;
        }
        if change.widened {
            for resource in self.view.tree(self.kind).iter() {
                if !self.subscription.names().contains(&resource.name) {
                    self.exceptions
                        .entry(resource.name.clone())
                        .or_insert_with(|| Exception::new(ClientCopy::Nothing));
                }
            }
            self.answer_due = true;
        }
        Ok(())
    }

    /// Whether the first request shows that the client was connected before.
    pub(crate) fn resumes(subscription_request: &SubscriptionRequest) -> bool {
        match subscription_request {
            SubscriptionRequest::Change { held, .. } => !held.is_empty(),
            SubscriptionRequest::Whole { version, .. } => !version.is_empty(),
        }
    }

    /// `initial_resource_versions`: read here, and not kept.
    fn resume(
        &mut self,
        change: &Change,
        held: &BTreeMap<String, String>,
    ) -> Result<(), RequestError> {
        for resource in self.unexceptional() {
            let held = match held.get(&*resource.name) {
                Some(version) if version == resource.version.as_str() => continue,
                Some(version) => match self.view.held_back(self.kind, &resource.name) {
                    Some(newest) if version == newest.version.as_str() => {
                        ClientCopy::At(newest.clone())
                    }
                    _ => ClientCopy::Other,
                },
                None => ClientCopy::Nothing,
            };
            self.exceptions.insert(resource.name.clone(), Exception::new(held));
        }
        for name in held.keys() {
            if self.subscription.covers(name) && self.view.get(self.kind, name).is_none() {
                self.exceptions.insert(name.as_str().into(), Exception::new(ClientCopy::Other));
                self.resumed += 1;
            }
        }
        self.check_absent(self.resumed)?;
        for requested in
            change.requested.iter().filter(|requested| !held.contains_key(&*requested.name))
        {
            self.send_new_name(&requested.name);
        }
        Ok(())
    }

    /// Whether the client comes from when all was served that is held back now. It keeps that.
    fn keep_held_back(&mut self, version: &str) -> bool {
        let held =
            |it: Arc<Resource>| self.view.held_back(self.kind, &it.name).cloned().unwrap_or(it);
        let held: Vec<_> = self.unexceptional().into_iter().map(held).collect();
        if version_of(&held).as_str() != version {
            return false;
        }
        let kept =
            self.view.all_held_back(self.kind).filter(|it| self.subscription.covers(&it.name));
        let kept = kept.map(|it| (it.name.clone(), Exception::new(ClientCopy::At(it.clone()))));
        self.exceptions.extend(kept.collect::<Vec<_>>());
        true
    }

    fn send_new_name(&mut self, name: &Arc<str>) {
        let exception = self.exceptions.entry(name.clone());
        exception.or_insert_with(|| Exception::new(ClientCopy::Nothing)).resend = true;
    }

    fn change(
        &mut self,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
        pool: &NamePool,
    ) -> Result<Change, RequestError> {
        let (subscribe, more) = self.shared(subscribe);
        let (unsubscribe, _) = self.shared(unsubscribe);
        let change = self.subscription.change(subscribe, unsubscribe, pool)?;
        self.count_absent(more)?;
        Ok(change)
    }

    fn replace(&mut self, names: Vec<String>, pool: &NamePool) -> Result<Change, RequestError> {
        let (names, more) = self.shared(names);
        let change = self.subscription.replace(names, pool)?;
        self.count_absent(more)?;
        Ok(change)
    }

    /// The names as the view has them, and whether it does not have some.
    fn shared(&self, names: Vec<String>) -> (Vec<Arc<str>>, bool) {
        let mut absent = false;
        let shared = names.into_iter().map(|name| match self.view.get(self.kind, &name) {
            Some(resource) => resource.name.clone(),
            None => {
                absent = true;
                name.into()
            }
        });
        (shared.collect(), absent)
    }
}

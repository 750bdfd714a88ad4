//! Contents that do not fit into the budget of their namespace are withheld, and fetched again when there is space.

use super::budget::Rank;
use super::{Contents, Count, FetchReport};
use crate::provider::kubernetes::object_cache::ReadFailure;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, Object, ObjectKey, ObjectName, Unreadable};
use std::collections::BTreeSet;

impl Contents {
    /// It exists or is named, or by others than before.
    pub(super) fn update_rank(&mut self, key: &ObjectKey) {
        if let (Some(content), Some(created)) = (self.named.get(key), self.existing.get(key)) {
            let is_foreign = !is_named_at_home(&content.by, &key.name.namespace);
            self.budget.update_rank(Rank::new(is_foreign, *created, key));
        }
    }

    pub(super) fn arrive(&mut self, key: &ObjectKey, mut object: Object) {
        let Some(content) = self.named.get_mut(key) else { return };
        object.forget_bookkeeping();
        if std::mem::take(&mut content.is_unreadable) {
            self.output.reports.push((key.clone(), FetchReport::Readable));
        }
        self.budget.resize(key, object.content_bytes());
        self.arrived.insert(key.clone(), object);
    }

    /// An object cannot be decoded. Its previous version stays in force, if there was one.
    pub(super) fn cannot_read(
        &mut self,
        key: &ObjectKey,
        reason: Unreadable,
        passed: &mut Vec<Event>,
    ) {
        let Some(content) = self.named.get_mut(key) else { return };
        content.is_unreadable = true;
        // There was room for it, and there is nothing to withhold.
        let withheld = content.object.take_if(|it| it.is_withheld() && !content.is_over);
        let is_kept = content.object.as_ref().is_some_and(|it| !it.is_withheld());
        let bytes = content.object.as_ref().map(Object::content_bytes);
        self.budget.resize(key, bytes.unwrap_or_default());
        self.output
            .reports
            .push((key.clone(), FetchReport::Unreadable(ReadFailure { reason, is_kept })));
        if let Some(withheld) = withheld {
            self.count(key.kind).remove(&withheld);
            passed.push(Event::Deleted(key.clone()));
        }
    }

    /// Passes on fetched contents that fit, and withholds those that do not. One that fits again is fetched again; until
    /// then it is withheld.
    pub(super) fn settle(&mut self, passed: &mut Vec<Event>) {
        for key in self.budget.settle() {
            let is_over = self.budget.is_over(&key);
            let arrived = self.arrived.remove(&key);
            let Some(content) = self.named.get_mut(&key) else { continue };
            let was_over = std::mem::replace(&mut content.is_over, is_over);
            match arrived {
                _ if is_over && !was_over => self.withhold(&key, passed),
                Some(object) if !is_over => self.pass_on(&key, object, passed),
                None if was_over && !is_over => self.enqueue(&key),
                _ => {}
            }
            // Of those that do not fit, it is the one whose size matters.
            let is_stale = self.named.get(&key).is_some_and(|content| content.is_stale);
            if is_stale && self.budget.is_first_over(&key) {
                self.enqueue(&key);
            }
        }
    }

    fn withhold(&mut self, key: &ObjectKey, passed: &mut Vec<Event>) {
        let Some(content) = self.named.get_mut(key) else { return };
        content.is_stale = self.queue.contains(key) || content.open.is_some();
        content.open = None;
        content.is_forbidden = false;
        if std::mem::take(&mut content.failures) > 0 {
            self.output.reports.push((key.clone(), FetchReport::NotFailing));
        }
        self.queue.remove(key);
        self.barriers.forget(key);
        if let Some(object) = Object::withheld(key) {
            self.pass_on(key, object, passed);
        }
        self.not_missing(key);
    }

    fn pass_on(&mut self, key: &ObjectKey, object: Object, passed: &mut Vec<Event>) {
        let Some(content) = self.named.get_mut(key) else { return };
        if content.object.as_ref() == Some(&object) {
            return;
        }
        let before = content.object.replace(object.clone());
        let count = self.count(key.kind);
        count.add(&object);
        if let Some(before) = before {
            count.remove(&before);
        }
        passed.push(Event::Applied(object));
    }

    pub(super) fn enqueue(&mut self, key: &ObjectKey) {
        if let Some(rank) = self.budget.rank(key) {
            self.queue.push(rank.clone());
        }
    }

    pub(super) fn count(&mut self, kind: Kind) -> &mut Count {
        self.counts.entry(kind).or_default()
    }
}

impl Count {
    fn of(&mut self, object: &Object) -> &mut usize {
        if object.is_withheld() { &mut self.withheld } else { &mut self.loaded }
    }

    fn add(&mut self, object: &Object) {
        *self.of(object) += 1;
    }

    pub(super) fn remove(&mut self, object: &Object) {
        *self.of(object) -= 1;
    }
}

fn is_named_at_home(by: &BTreeSet<ObjectKey>, namespace: &str) -> bool {
    let first = ObjectName::new(namespace, "");
    Kind::ALL.iter().filter(|kind| kind.may_name_content()).any(|kind| {
        let next = by.range(first.clone().of(*kind)..).next();
        next.is_some_and(|next| next.kind == *kind && *next.name.namespace == *namespace)
    })
}

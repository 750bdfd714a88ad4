//! Decides which Secrets and ConfigMaps are fetched, and which objects wait for them. It does no IO.

mod barriers;
mod budget;
mod protecting;
mod queue;
#[cfg(test)]
mod tests;
mod withhold;

use super::object_cache::ReadFailure;
use crate::provider::Input;
use barriers::Barriers;
use budget::Budget;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, Object, ObjectKey, ObjectName, Unreadable};
use queue::FetchQueue;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Stands between the watches and the translator.
///
/// The watches send names and versions of Secrets and ConfigMaps. Contents that an object names are fetched. A changed
/// object that names one for the first time waits, alone, until that is fetched, so that the translator never sees the
/// object without it. Only the watches decide whether a content exists, and not a fetch. Contents that do not fit into
/// the budget of their namespace are withheld: the translator sees that they exist, without content.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// What exists, of the kinds that are read by reference.
    existing: BTreeMap<ObjectKey, Created>,
    /// The objects that may name others.
    referrers: BTreeMap<ObjectKey, Referrer>,
    /// What they name, whether it exists or not.
    named: BTreeMap<ObjectKey, Content>,
    /// Until the end of a step: who may wait for nothing more.
    complete: BTreeSet<ObjectKey>,
    /// Until the end of a step: what may be named no more.
    released: BTreeSet<ObjectKey>,
    /// Until the end of a step: what was fetched.
    arrived: BTreeMap<ObjectKey, Object>,
    budget: Budget,
    queue: FetchQueue,
    barriers: Barriers,
    /// The last ticket of a fetch.
    ticket: u64,
    counts: BTreeMap<Kind, Count>,
    unread: Unread,
    output: Output,
}

/// When an object was made, in seconds.
type Created = i64;

/// How many objects of a kind are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Those whose content is loaded.
    pub(super) loaded: usize,
    /// Those that do not fit into the budget of their namespace.
    pub(super) withheld: usize,
}

/// The outputs of a step.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// For the translator, in order.
    pub(super) inputs: Vec<Input>,
    pub(super) reports: Vec<(ObjectKey, FetchReport)>,
}

impl Output {
    pub(super) fn append(&mut self, mut other: Self) {
        self.inputs.append(&mut other.inputs);
        self.reports.append(&mut other.reports);
    }
}

/// A report for the operator about a content that is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchReport {
    Unreadable(ReadFailure),
    Readable,
    /// It was fetched after it could not be, or it need not be any more.
    NotFailing,
}

/// A content to fetch. The answer contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) key: ObjectKey,
    ticket: u64,
}

/// An object as it was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) version: String,
    pub(super) object: Result<Object, Unreadable>,
}

#[derive(Debug, Default)]
struct Referrer {
    /// What the version names that was passed on, if one was.
    passed: Option<BTreeSet<ObjectKey>>,
    blocked: Option<BlockedVersion>,
}

/// A version that is held back.
#[derive(Debug)]
struct BlockedVersion {
    object: Object,
    names: BTreeSet<ObjectKey>,
    /// What it names that exists and was never fetched.
    missing: BTreeSet<ObjectKey>,
}

/// Something that is named.
#[derive(Debug, Default)]
struct Content {
    /// By versions that were passed on, and by those that are held back.
    by: BTreeSet<ObjectKey>,
    /// As it was passed on; the receiver shares it.
    object: Option<Object>,
    /// It does not fit into the budget of its namespace.
    is_over: bool,
    /// It changed while it did not fit, so its size may be another.
    is_stale: bool,
    is_unreadable: bool,
    /// The version that was fetched last.
    version: Option<Box<str>>,
    /// The ticket of the fetch whose answer counts.
    open: Option<u64>,
    /// In a row.
    failures: u32,
    is_forbidden: bool,
}

/// Gateways of which no version is known to the translator, though they exist.
#[derive(Debug, Default)]
struct Unread {
    /// As the watch says.
    by_watch: BTreeSet<ObjectName>,
    /// Those that could be read since, or were there when a term began, and are held back.
    blocked: BTreeSet<ObjectName>,
    reported: BTreeSet<ObjectName>,
}

impl Contents {
    /// With the most bytes of content that are held of a namespace.
    pub(super) fn new(most: u64) -> Self {
        Self { budget: Budget::new(most), ..Self::default() }
    }

    /// Receives the output of a watch. Of kinds that are read by reference that is metadata.
    pub(super) fn receive(&mut self, input: Input) -> Output {
        match input {
            Input::Batch(events) => {
                let mut passed = Vec::with_capacity(events.len());
                for event in events {
                    self.receive_event(event, &mut passed);
                }
                self.pass(passed);
            }
            Input::Unread(Kind::Gateway, names) => {
                let before = std::mem::replace(&mut self.unread.by_watch, names);
                for name in before {
                    if !self.unread.by_watch.contains(&name) {
                        self.keep_if_blocked(name);
                    }
                }
            }
            Input::Unread(..) => self.output.inputs.push(input),
            Input::Synced | Input::Fresh(_) => {
                let blocked =
                    self.referrers.iter().filter(|(_, referrer)| referrer.blocked.is_some());
                let blocked = blocked.map(|(key, _)| key.clone()).collect();
                self.barriers.add(input, self.open_fetches(), blocked);
                // An object waits for it.
                self.queue.expedite();
            }
        }
        self.finish()
    }

    /// The next fetch, if one is due. It has to be answered.
    pub(super) fn next_fetch(&mut self, now: Instant) -> Option<Fetch> {
        let key = self.queue.pop(now)?;
        self.ticket += 1;
        self.named.get_mut(&key)?.open = Some(self.ticket);
        Some(Fetch { key, ticket: self.ticket })
    }

    /// When something that failed is due again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    pub(super) fn fetched(&mut self, fetch: &Fetch, fetched: Fetched) -> Output {
        let Fetch { key, ticket } = fetch;
        let Some(content) = self.named.get_mut(key).filter(|it| it.open == Some(*ticket)) else {
            // No object names it any more, or it was deleted and perhaps created again.
            return Output::default();
        };
        content.open = None;
        content.is_forbidden = false;
        content.is_stale = false;
        content.version = Some(fetched.version.into());
        if std::mem::take(&mut content.failures) > 0 {
            self.output.reports.push((key.clone(), FetchReport::NotFailing));
        }
        let mut passed = Vec::new();
        match fetched.object {
            Ok(object) => self.arrive(key, object),
            Err(reason) => self.cannot_read(key, reason, &mut passed),
        }
        self.queue.answered(key);
        self.barriers.answered(key, *ticket);
        self.not_missing(key);
        self.pass(passed);
        self.finish()
    }

    /// A fetch has failed, and is tried again after a pause that grows with the number of failures. Returns that number,
    /// unless no object needs the content any more.
    pub(super) fn failed(
        &mut self,
        fetch: &Fetch,
        is_forbidden: bool,
        again_at: impl FnOnce(u32) -> Instant,
    ) -> (Option<u32>, Output) {
        let Fetch { key, ticket } = fetch;
        let Some(content) = self.named.get_mut(key).filter(|it| it.open == Some(*ticket)) else {
            return (None, Output::default());
        };
        content.open = None;
        content.is_forbidden = is_forbidden;
        content.failures = content.failures.saturating_add(1);
        let failures = content.failures;
        self.release_new_protecting(key);
        if let Some(rank) = self.budget.rank(key) {
            self.queue.push_later(rank.clone(), again_at(failures));
        }
        (Some(failures), self.finish())
    }

    /// The kinds of what those who ask whether all is known wait for.
    pub(super) fn awaited(&self) -> BTreeSet<Kind> {
        self.barriers.awaited().map(|key| key.kind).collect()
    }

    pub(super) fn counts(&self, kind: Kind) -> Count {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    fn receive_event(&mut self, event: Event, passed: &mut Vec<Event>) {
        match event {
            Event::Applied(object) if object.kind().is_read_by_reference() => self.exists(&object),
            Event::Deleted(key) if key.kind.is_read_by_reference() => self.is_gone(&key, passed),
            Event::Applied(object) if object.kind().may_name_content() => self.changed(object),
            Event::Deleted(key) if key.kind.may_name_content() => self.deleted(key, passed),
            event => passed.push(event),
        }
    }

    fn exists(&mut self, object: &Object) {
        let key = object.key();
        self.existing.insert(key.clone(), object.created());
        self.update_rank(&key);
        if let Some(content) = self.named.get_mut(&key) {
            let is_unknown = content.is_unknown();
            let version = object.metadata().resource_version.as_deref();
            // A fetch may have been faster than the watch.
            if version.is_none() || content.version.as_deref() != version {
                if content.is_over {
                    // There is room if it became small enough.
                    content.is_stale = true;
                    self.budget.mark_changed(&key);
                } else {
                    self.enqueue(&key);
                }
            }
            // Who waits anyway waits for this, too.
            let by = self.named.get(&key).filter(|_| is_unknown).map(|content| &content.by);
            for referrer in by.into_iter().flatten() {
                let blocked = self.referrers.get_mut(referrer).and_then(|it| it.blocked.as_mut());
                if let Some(blocked) = blocked.filter(|blocked| blocked.names.contains(&key)) {
                    blocked.missing.insert(key.clone());
                }
            }
        }
    }

    fn is_gone(&mut self, key: &ObjectKey, passed: &mut Vec<Event>) {
        self.existing.remove(key);
        self.budget.remove(key);
        let Some(content) = self.named.get_mut(key) else { return };
        let by = content.by.clone();
        let content = std::mem::replace(content, Content { by, ..Content::default() });
        self.forget(key, &content, passed);
        self.not_missing(key);
    }

    /// There is another version of an object that may name others.
    fn changed(&mut self, object: Object) {
        let (key, names) = (object.key(), object.named_content());
        let mut missing = BTreeSet::new();
        for name in &names {
            let exists = self.existing.contains_key(name);
            let is_new = !self.named.contains_key(name);
            self.named.entry(name.clone()).or_default().by.insert(key.clone());
            self.update_rank(name);
            if is_new {
                self.enqueue(name);
            }
            if exists && self.named.get(name).is_some_and(Content::is_unknown) {
                missing.insert(name.clone());
            }
        }
        let referrer = self.referrers.entry(key.clone()).or_default();
        let before = referrer.blocked.replace(BlockedVersion { object, names, missing });
        if let Some(before) = before {
            self.release(&key, before.names);
        }
        self.complete.insert(key);
    }

    fn deleted(&mut self, key: ObjectKey, passed: &mut Vec<Event>) {
        let Some(referrer) = self.referrers.remove(&key) else {
            return passed.push(Event::Deleted(key));
        };
        self.not_blocked(&key);
        let was_passed = referrer.passed.is_some();
        let blocked = referrer.blocked.map(|blocked| blocked.names);
        for names in referrer.passed.into_iter().chain(blocked) {
            self.release(&key, names);
        }
        if was_passed {
            passed.push(Event::Deleted(key));
        }
    }

    /// Objects that waited for this no longer do: it was fetched, or is gone.
    fn not_missing(&mut self, name: &ObjectKey) {
        let Some(content) = self.named.get(name) else { return };
        for referrer in &content.by {
            let blocked = self.referrers.get_mut(referrer).and_then(|it| it.blocked.as_mut());
            if blocked.is_some_and(|blocked| blocked.missing.remove(name)) {
                self.complete.insert(referrer.clone());
            }
        }
    }

    fn pass_if_complete(&mut self, key: &ObjectKey, passed: &mut Vec<Event>) {
        let Some(referrer) = self.referrers.get_mut(key) else { return };
        let Some(blocked) = referrer.blocked.take_if(|blocked| blocked.missing.is_empty()) else {
            return;
        };
        let before = referrer.passed.replace(blocked.names);
        self.release(key, before.unwrap_or_default());
        self.not_blocked(key);
        passed.push(Event::Applied(blocked.object));
    }

    /// A version of an object that named these does not count any more.
    fn release(&mut self, referrer: &ObjectKey, names: BTreeSet<ObjectKey>) {
        for name in names {
            if !self.referrers.get(referrer).is_some_and(|still| still.names(&name))
                && let Some(content) = self.named.get_mut(&name)
            {
                content.by.remove(referrer);
                self.update_rank(&name);
                self.released.insert(name);
            }
        }
    }

    /// Ends a step: what waits for nothing more is passed on, what nothing names any more is forgotten, and what has no room
    /// then is withheld, for which nothing has to wait.
    fn pass(&mut self, mut passed: Vec<Event>) {
        let (mut complete, mut gone) = (Vec::new(), Vec::new());
        loop {
            for key in std::mem::take(&mut self.complete) {
                self.pass_if_complete(&key, &mut complete);
            }
            for name in std::mem::take(&mut self.released) {
                if self.named.get(&name).is_some_and(|content| content.by.is_empty())
                    && let Some(content) = self.named.remove(&name)
                {
                    self.budget.remove(&name);
                    self.forget(&name, &content, &mut gone);
                }
            }
            self.settle(&mut passed);
            if self.complete.is_empty() {
                break;
            }
        }
        passed.append(&mut complete);
        passed.append(&mut gone);
        if !passed.is_empty() {
            self.output.inputs.push(Input::Batch(passed));
        }
    }

    fn forget(&mut self, key: &ObjectKey, content: &Content, passed: &mut Vec<Event>) {
        self.queue.remove(key);
        self.barriers.forget(key);
        if let Some(object) = &content.object {
            self.count(key.kind).remove(object);
            passed.push(Event::Deleted(key.clone()));
        }
        if content.is_unreadable {
            self.output.reports.push((key.clone(), FetchReport::Readable));
        }
        if content.failures > 0 {
            self.output.reports.push((key.clone(), FetchReport::NotFailing));
        }
    }

    fn open_fetches(&self) -> BTreeMap<ObjectKey, u64> {
        let fetch = |(key, content): (&ObjectKey, &Content)| {
            // One that is to begin has a higher ticket than all there were.
            let ticket = match self.queue.contains(key) {
                true => self.ticket + 1,
                false => content.open?,
            };
            Some((key.clone(), ticket))
        };
        self.named.iter().filter_map(fetch).collect()
    }

    /// A Gateway that exists, and of which the translator knows no version, must not be taken for one that is gone.
    fn keep_if_blocked(&mut self, name: ObjectName) {
        let referrer = self.referrers.get(&name.clone().of(Kind::Gateway));
        if referrer.is_some_and(|referrer| referrer.passed.is_none()) {
            self.unread.blocked.insert(name);
        }
    }

    fn not_blocked(&mut self, key: &ObjectKey) {
        self.barriers.forget(key);
        if key.kind == Kind::Gateway {
            self.unread.blocked.remove(&key.name);
        }
    }

    fn finish(&mut self) -> Output {
        self.report_unread();
        let (named, referrers) = (&self.named, &self.referrers);
        let is_forbidden =
            |key: &ObjectKey| named.get(key).is_some_and(|content| content.is_forbidden);
        let is_forbidden =
            |key: &ObjectKey| match referrers.get(key).and_then(|it| it.blocked.as_ref()) {
                Some(blocked) => blocked.missing.iter().all(is_forbidden),
                None => is_forbidden(key),
            };
        let mut complete = Vec::new();
        while let Some(input) = self.barriers.pop(is_forbidden) {
            complete.push(input);
        }
        if !complete.is_empty() {
            let gateways = self.referrers.keys().filter(|key| key.kind == Kind::Gateway);
            let gateways: Vec<ObjectName> = gateways.map(|key| key.name.clone()).collect();
            gateways.into_iter().for_each(|name| self.keep_if_blocked(name));
            self.report_unread();
            self.output.inputs.extend(complete);
        }
        std::mem::take(&mut self.output)
    }

    fn report_unread(&mut self) {
        let Unread { by_watch, blocked, reported } = &mut self.unread;
        if !by_watch.union(blocked).eq(reported.iter()) {
            *reported = by_watch.union(blocked).cloned().collect();
            self.output.inputs.push(Input::Unread(Kind::Gateway, reported.clone()));
        }
    }
}

impl Referrer {
    fn names(&self, name: &ObjectKey) -> bool {
        self.passed.as_ref().is_some_and(|names| names.contains(name))
            || self.blocked.as_ref().is_some_and(|blocked| blocked.names.contains(name))
    }
}

impl Content {
    /// Whether nothing was ever read of it.
    fn is_unknown(&self) -> bool {
        self.object.is_none() && !self.is_unreadable
    }
}

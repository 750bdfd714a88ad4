//! Decides which objects wait while the objects of a protecting kind are unknown. It does no IO.

#[cfg(test)]
mod tests;

use crate::provider::Input;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, ObjectKey, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// After so long with a change that waits, there is a line in the log. A watch is begun again sooner.
const LONG: Duration = Duration::from_secs(10);

/// Stands between the watches and [`Contents`](super::contents::Contents).
///
/// While all objects of each protecting kind are known, everything passes. Otherwise new and changed objects of kinds
/// that may open something wait, each in its newest version; all others pass, and so do deletions, except those of
/// protecting objects, which would open something. The waiting objects are passed on in one batch, after the protecting
/// objects that had been missed.
///
/// Before the translator has everything for the first time nothing is published, so nothing has to wait but `Synced`.
#[derive(Debug)]
pub(super) struct Protection {
    /// The protecting kinds that are watched.
    kinds: BTreeMap<Kind, Known>,
    /// The number of the choice of namespaces that counts now.
    choice: u64,
    state: State,
    /// `Synced` was passed on.
    is_synced: bool,
    waiting: Waiting,
    /// The log has the line that something waits.
    is_logged: bool,
}

/// A message of a watch.
#[derive(Debug)]
pub(super) enum Message {
    Input(Input),
    /// Of this protecting kind everything was sent that there is; if namespaces are chosen, in those of the choice with this
    /// number.
    Current(Kind, Option<u64>),
    /// Of this protecting kind there may be objects that were not sent.
    Stale(Kind),
    /// The namespaces of the choice with this number count from now on.
    Chosen(u64),
}

/// The outputs of a step.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) inputs: Vec<Input>,
    /// Whether each of these objects waits. It did not before, or did.
    pub(super) waits: Vec<(ObjectKey, bool)>,
}

/// How much of a protecting kind is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Everything, as of [`Message::Current`].
    All(Option<u64>),
    NotAll,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// All that protects something is known.
    Open,
    /// So it is, but these protecting objects wait for the contents that they name. Without them it is not known yet which
    /// ones do.
    Opening(Option<BTreeSet<ObjectKey>>),
    Closed,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The last change of each object.
    changes: BTreeMap<ObjectKey, Event>,
    /// The last list of each kind.
    unread: BTreeMap<Kind, BTreeSet<ObjectName>>,
    synced: bool,
    fresh: Option<u64>,
    /// Since when there have been changes.
    since: Option<Instant>,
}

impl Protection {
    pub(super) fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let protecting = kinds.into_iter().filter(|kind| kind.is_protecting());
        let kinds: BTreeMap<_, _> = protecting.map(|kind| (kind, Known::NotAll)).collect();
        let state = if kinds.is_empty() { State::Open } else { State::Closed };
        Self {
            kinds,
            choice: 0,
            state,
            is_synced: false,
            waiting: Waiting::default(),
            is_logged: false,
        }
    }

    pub(super) fn receive(&mut self, message: Message, now: Instant) -> Passed {
        let mut passed = Passed::default();
        match message {
            Message::Input(input) => self.receive_input(input, now, &mut passed),
            Message::Current(kind, choice) => {
                self.kinds.insert(kind, Known::All(choice));
                if self.state == State::Closed && self.stale().next().is_none() {
                    self.state = State::Opening(None);
                }
            }
            Message::Stale(kind) => {
                self.kinds.insert(kind, Known::NotAll);
                self.state = State::Closed;
            }
            Message::Chosen(choice) => {
                self.choice = choice;
                if self.stale().next().is_some() {
                    self.state = State::Closed;
                }
            }
        }
        passed
    }

    /// Ends a step. `withheld` are the protecting objects of which no version was passed on, because they wait for what they
    /// name; those that came before all was known are waited for, and no later ones.
    pub(super) fn settle(&mut self, withheld: impl FnOnce() -> BTreeSet<ObjectKey>) -> Passed {
        let State::Opening(awaited) = &mut self.state else { return Passed::default() };
        let withheld = withheld();
        let awaited = match awaited {
            Some(awaited) => {
                awaited.retain(|key| withheld.contains(key));
                awaited
            }
            None => awaited.insert(withheld),
        };
        if !awaited.is_empty() {
            return Passed::default();
        }
        self.state = State::Open;
        let Waiting { changes, unread, synced, fresh, since: _ } =
            std::mem::take(&mut self.waiting);
        let waits = changes.keys().map(|key| (key.clone(), false)).collect();
        let changes: Vec<Event> = changes.into_values().collect();
        let mut inputs = Vec::new();
        if !changes.is_empty() {
            inputs.push(Input::Batch(changes));
        }
        inputs.extend(unread.into_iter().map(|(kind, names)| Input::Unread(kind, names)));
        if synced {
            self.is_synced = true;
            inputs.push(Input::Synced);
        }
        inputs.extend(fresh.map(Input::Fresh));
        Passed { inputs, waits }
    }

    /// The protecting kinds of which not everything is known.
    pub(super) fn stale(&self) -> impl Iterator<Item = Kind> {
        let is_known = |known: &Known| match known {
            Known::All(choice) => choice.is_none_or(|choice| choice == self.choice),
            Known::NotAll => false,
        };
        self.kinds.iter().filter(move |(_, known)| !is_known(known)).map(|(kind, _)| *kind)
    }

    /// The kinds that `Synced` or `Fresh` waits for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = Kind> {
        let is_awaited = self.waiting.synced || self.waiting.fresh.is_some();
        self.stale().filter(move |_| is_awaited)
    }

    /// When changes will have waited for long, if the log does not have that line yet.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.since.filter(|_| !self.is_logged).map(|since| since + LONG)
    }

    /// Whether the log is to have a line now: that changes wait, or that none does any more.
    pub(super) fn next_news(&mut self, now: Instant) -> Option<bool> {
        let is_long = self.waiting.since.is_some_and(|since| since + LONG <= now);
        let is_news = match self.waiting.since {
            Some(_) => is_long && !self.is_logged,
            None => self.is_logged,
        };
        is_news.then(|| {
            self.is_logged = is_long;
            is_long
        })
    }

    fn receive_input(&mut self, input: Input, now: Instant, passed: &mut Passed) {
        let is_open = self.state == State::Open;
        match input {
            Input::Synced if is_open => {
                self.is_synced = true;
                passed.inputs.push(Input::Synced);
            }
            Input::Synced => self.waiting.synced = true,
            Input::Fresh(asking) if !is_open => {
                self.waiting.fresh = self.waiting.fresh.max(Some(asking));
            }
            Input::Batch(events) if !is_open && self.is_synced => {
                let (waiting, passing): (Vec<_>, Vec<_>) = events.into_iter().partition(must_wait);
                for event in &passing {
                    // What waited is outdated.
                    if self.waiting.changes.remove(&event.key()).is_some() {
                        passed.waits.push((event.key(), false));
                    }
                }
                for event in waiting {
                    let key = event.key();
                    if self.waiting.changes.insert(key.clone(), event).is_none() {
                        passed.waits.push((key, true));
                    }
                }
                self.waiting.since = match self.waiting.changes.is_empty() {
                    true => None,
                    false => self.waiting.since.or(Some(now)),
                };
                if !passing.is_empty() {
                    passed.inputs.push(Input::Batch(passing));
                }
            }
            // An object that can be read now waits, and must not count as one that is gone.
            Input::Unread(kind, names) if !is_open && self.is_synced => {
                self.waiting.unread.insert(kind, names);
            }
            input => passed.inputs.push(input),
        }
    }
}

fn must_wait(event: &Event) -> bool {
    match event {
        Event::Applied(object) => object.kind().may_open(),
        Event::Deleted(key) => key.kind.is_protecting(),
    }
}

//! The responses to a client.

use super::search::Candidates;
use super::{Action, ClientCopy, Content, Flight, ReplyNumber, Watch, version_of};
use crate::order::RemovalGate;
use crate::reply::Response;
use crate::session::Protocol;
use heliograph_snapshot::Resource;
use std::sync::Arc;

/// A response, and the names in it.
#[derive(Debug)]
pub(crate) struct PreparedResponse {
    pub(crate) response: Response,
    /// Added or changed.
    pub(crate) changed: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
}

struct Choice {
    candidates: Candidates,
    /// Exceptions of which nothing will ever be sent.
    forgotten: Vec<Arc<str>>,
    /// Nothing of the view is left for another reply.
    whole: bool,
}

impl Watch {
    /// The next reply, if there is something to send and no other reply of this type is under way.
    pub(crate) fn reply(&mut self, removals: RemovalGate) -> Option<PreparedResponse> {
        if !self.open || self.in_flight.is_some() {
            return None;
        }
        let Choice { candidates, forgotten, whole } = self.choose(removals);
        let (mut sends, is_all) = self.pick(candidates);
        for name in forgotten {
            self.exceptions.remove(&name);
        }
        if sends.is_empty() && !self.answer_due {
            return None;
        }
        if self.lists_everything() && self.unknown {
            self.list_unknown(&mut sends);
        }
        for (name, content) in &sends {
            if let Some(exception) = self.exceptions.get_mut(name) {
                exception.sent = Some(content.clone());
                exception.resend = false;
            }
        }
        self.answer_due = false;
        let names = sends.iter().map(|(name, _)| name.clone()).collect();
        self.in_flight = Some(Flight { names, whole: whole && is_all });
        self.reply_number = ReplyNumber(self.reply_number.0 + 1);
        let (changed, removed): (Vec<_>, Vec<_>) =
            sends.iter().partition(|(_, content)| content.is_some());
        let names = |sends: Vec<&(Arc<str>, Content)>| {
            sends.into_iter().map(|(name, _)| name.clone()).collect()
        };
        let (changed, removed) = (names(changed), names(removed));
        Some(PreparedResponse { response: self.build_response(sends), changed, removed })
    }

    /// The names that the next reply contains.
    fn choose(&self, removals: RemovalGate) -> Choice {
        let (mut candidates, mut forgotten, mut whole) = (Candidates::default(), Vec::new(), true);
        for (name, exception) in &self.exceptions {
            match self.action(name, exception, removals) {
                Action::Send(content) => {
                    let has_room = candidates.add(self.kind, name, exception, content.cloned());
                    if !has_room && !self.is_searching() {
                        break;
                    }
                }
                Action::Forget => forgotten.push(name.clone()),
                Action::Wait => whole = false,
                Action::Keep => whole &= self.agrees(name, exception),
            }
        }
        Choice { candidates, forgotten, whole }
    }

    fn build_response(&self, sends: Vec<(Arc<str>, Content)>) -> Response {
        let (kind, head) = (self.kind, self.view.head());
        match self.protocol {
            Protocol::Delta => {
                let (mut resources, mut removed) = (Vec::new(), Vec::new());
                for (name, content) in sends {
                    match content {
                        Some(resource) => resources.push(resource),
                        None => removed.push(name),
                    }
                }
                Response::new(kind, head, head.to_string(), resources, removed)
            }
            Protocol::StateOfTheWorld => {
                let held = self.held_after();
                let version = version_of(&held).to_string();
                // "For Listener and Cluster the server must include the complete state of the world"; the
                // responses of other types may be partial.
                let resources = if self.lists_everything() {
                    held
                } else {
                    sends.into_iter().filter_map(|(_, content)| content).collect()
                };
                Response::new(kind, head, version, resources, Vec::new())
            }
        }
    }

    /// All that the client holds once it accepts what is in flight, by name.
    fn held_after(&self) -> Vec<Arc<Resource>> {
        let mut held = self.unexceptional();
        held.extend(self.exceptions.values().filter_map(|exception| {
            match (&exception.sent, &exception.held) {
                (Some(content), _) => content.clone(),
                (None, ClientCopy::At(resource)) => Some(resource.clone()),
                (None, ClientCopy::Nothing | ClientCopy::Other) => None,
            }
        }));
        held.sort_by(|one, other| one.name.cmp(&other.name));
        held
    }

    /// A name that is missing in a whole list is removed. A rejected resource is listed at the version that the client
    /// last accepted, or at the newest while that is not known.
    fn list_unknown(&self, sends: &mut Vec<(Arc<str>, Content)>) {
        let listed = |name: &Arc<str>| sends.binary_search_by(|(sent, _)| sent.cmp(name)).is_ok();
        let names = self.exceptions.keys().filter(|name| !listed(name));
        let more: Vec<_> = names.map(|name| (name.clone(), self.wanted(name).cloned())).collect();
        sends.extend(more);
    }
}

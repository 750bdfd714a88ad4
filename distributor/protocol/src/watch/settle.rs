//! The answer of a client to a reply.

use super::search::Suspicion;
use super::{Answered, ClientCopy, Content, Flight, Presumed, ReplyNumber, Watch};
use crate::event::Rejection;
use crate::request::bounded;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The end of a reply's flight.
#[derive(Debug)]
pub(crate) struct Settled {
    /// The names in the reply that need not be sent to the client again.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) rejection: Option<Rejection>,
}

/// The longest error text and the most names that a rejection carries: they are a client's to choose.
const DETAIL_LIMIT: usize = 1024;
const NAMES_LIMIT: usize = 16;
/// Envoy's errors quote what they are about.
const HIDDEN_DETAIL: &str = "the error of the proxy is not shown, since it may quote a confidential resource: the log of the proxy has it";

impl Watch {
    /// Takes an acknowledgement or a rejection. `None`: no reply awaits this answer.
    pub(crate) fn settle(&mut self, answered: Answered, error: Option<&str>) -> Option<Settled> {
        let Answered { reply_number, head } = answered;
        if !self.awaits(reply_number) {
            return None;
        }
        let flight = self.in_flight.take_if(|_| self.reply_number == reply_number);
        let settled = match error {
            None => {
                self.unknown = false;
                if flight.as_ref().is_some_and(|flight| flight.whole) {
                    self.confirmed = Some(head);
                }
                let names = flight.map(|flight| self.accept(flight, None)).unwrap_or_default();
                Settled { names, rejection: None }
            }
            Some(error) => {
                self.confirmed.take_if(|confirmed| *confirmed >= head);
                let sent = match flight {
                    Some(flight) => self.drain_sent(flight),
                    None => self.revert_presumed(reply_number),
                };
                self.reject(error, sent)
            }
        };
        // Answers come in the order of the replies: what is presumed up to this one is so.
        if self.presumed.is_some() {
            self.presumed.take_if(|presumed| *presumed <= reply_number);
            for exception in self.exceptions.values_mut() {
                if exception
                    .presumed
                    .take_if(|presumed| presumed.reply_number <= reply_number)
                    .is_some()
                {
                    exception.rejected = None;
                }
            }
            self.tidy();
        }
        Some(settled)
    }

    /// Takes silence for consent, so that a client which never answers still gets news.
    pub(crate) fn presume(&mut self) -> Option<Settled> {
        let flight = self.in_flight.take()?;
        self.presumed = Some(self.reply_number);
        Some(Settled { names: self.accept(flight, self.presumed), rejection: None })
    }

    /// Whether this reply is in flight, or was presumed to be accepted.
    pub(crate) fn awaits(&self, reply_number: ReplyNumber) -> bool {
        // Beside the newest that was presumed there may be older ones.
        let exceptions = self.presumed.iter().flat_map(|_| self.exceptions.values());
        let mut presumed = exceptions.filter_map(|exception| exception.presumed.as_ref());
        let in_flight = self.in_flight.is_some() && self.reply_number == reply_number;
        in_flight
            || self.presumed == Some(reply_number)
            || presumed.any(|presumed| presumed.reply_number == reply_number)
    }

    /// The client has the resources in flight from now on, if only by presumption.
    fn accept(&mut self, flight: Flight, presumed: Option<ReplyNumber>) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for name in flight.names {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            let Some(content) = exception.sent.take() else { continue };
            let before = std::mem::replace(&mut exception.held, ClientCopy::of(content));
            exception.presumed = presumed.map(|reply_number| Presumed { reply_number, before });
            // What it rejected before is forgotten once it has said that it took something else.
            exception.rejected.take_if(|_| presumed.is_none());
            exception.suspected = None;
            let again = exception.resend;
            self.tidy_up(&name);
            if !again {
                names.push(name);
            }
        }
        names
    }

    /// Whether this content must not be shown. An error text may contain a copy of it.
    fn hides(&self, content: &Content) -> bool {
        content.as_ref().is_some_and(|resource| !self.kind.may_be_shown(resource))
    }

    fn drain_sent(&mut self, flight: Flight) -> Vec<(Arc<str>, Content)> {
        let mut sent = Vec::new();
        for name in flight.names {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            exception.presumed = None;
            sent.extend(exception.sent.take().map(|content| (name, content)));
        }
        sent
    }

    /// The client was presumed to hold this and does not.
    fn revert_presumed(&mut self, reply_number: ReplyNumber) -> Vec<(Arc<str>, Content)> {
        let mut sent = Vec::new();
        for (name, exception) in &mut self.exceptions {
            let presumed =
                exception.presumed.take_if(|presumed| presumed.reply_number == reply_number);
            let Some(Presumed { before, .. }) = presumed else { continue };
            let content = match std::mem::replace(&mut exception.held, before) {
                ClientCopy::At(resource) => Some(resource),
                ClientCopy::Nothing | ClientCopy::Other => None,
            };
            sent.push((name.clone(), content));
        }
        sent
    }

    /// Envoy names the culprits of a rejected response in its error text, and may have applied the others: those are
    /// sent once more without the culprits. Where no name is found, the culprit is searched for among all that was new.
    fn reject(&mut self, error: &str, sent: Vec<(Arc<str>, Content)>) -> Settled {
        let words = words(error);
        let named = |name: &str| words.contains(name);
        let any_named = sent.iter().any(|(name, _)| named(name));
        let mut rejection = Rejection {
            kind: self.kind,
            detail: match sent.iter().any(|(_, content)| self.hides(content)) {
                true => HIDDEN_DETAIL.to_owned(),
                false => bounded(error, DETAIL_LIMIT).to_owned(),
            },
            resources: Vec::new(),
            attributed: any_named || sent.len() == 1,
        };
        let version = |content: &Content| content.as_ref().map(|resource| resource.version);
        if !any_named && self.may_search(sent.len()) {
            let first = sent.iter().take(NAMES_LIMIT);
            rejection.resources =
                first.map(|(name, content)| (name.clone(), version(content))).collect();
            self.suspect(&sent);
            let names = sent.into_iter().map(|(name, _)| name).collect();
            return Settled { names, rejection: Some(rejection) };
        }
        let mut culprits = Vec::new();
        for (name, content) in sent {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            exception.suspected = None;
            if !any_named || named(&name) {
                if rejection.resources.len() < NAMES_LIMIT {
                    rejection.resources.push((name.clone(), version(&content)));
                }
                if !rejection.attributed {
                    exception.suspected = Some(Suspicion::unsolved(&content));
                }
                exception.rejected = Some(content);
                self.tidy_up(&name);
                culprits.push(name);
            } else if self.unknown {
                // The next list would have the culprits in it again (see `list_unknown`), so there is none until
                // there is news. Envoy has applied the others.
                exception.held = ClientCopy::of(content);
                exception.rejected = None;
                self.tidy_up(&name);
            } else {
                exception.resend |= exception.sent.is_none();
            }
        }
        Settled { names: culprits, rejection: Some(rejection) }
    }
}

impl ClientCopy {
    fn of(content: Content) -> Self {
        content.map_or(Self::Nothing, Self::At)
    }
}

/// The words of a text that may be names. Collected once, so that the cost is the text's length plus the number of
/// names, and not their product: a client chooses both.
fn words(text: &str) -> BTreeSet<&str> {
    let between =
        |character: char| character.is_whitespace() || ",;=\"'`()[]{}<>".contains(character);
    let whole = text.split(between);
    // A full stop or a colon may end the name's sentence.
    whole.flat_map(|word| [word, word.strip_suffix(['.', ':']).unwrap_or(word)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_error_texts_as_words() {
        let text = "Error adding/updating cluster(s) default/web:80: bad type, prod/api";
        let found = words(text);
        assert!(found.contains("default/web:80"));
        assert!(found.contains("prod/api"));
        assert!(!found.contains("default/web"));
        assert!(!found.contains("web:80"));
        assert!(words("no such thing as 'a'.").contains("a"));
        assert!(words("wildcard table=*.example: no").contains("*.example"));
    }
}

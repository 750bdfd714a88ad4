//! What a client says to a reply.

use super::{Content, Flight, Held, Presumed, Watch};
use crate::event::Rejection;
use crate::nonce::Nonce;
use crate::request::bounded;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The end of a reply's flight.
#[derive(Debug)]
pub(crate) struct Settled {
    /// What the reply told, and what the client need not be told again.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) rejection: Option<Rejection>,
}

/// The longest error text and the most names that a rejection carries: they are a client's to choose.
const DETAIL_LIMIT: usize = 1024;
const NAMES_LIMIT: usize = 16;

impl Watch {
    /// State of the world: "the management server should not send a response for any request that has a stale
    /// nonce". What such a request asks for comes again with the acknowledgement of the reply in flight.
    pub(crate) fn is_stale(&self, nonce: &str) -> bool {
        match self.last {
            None => false,
            Some(_) if nonce.is_empty() => self.in_flight.is_some(),
            Some(last) => !last.is(nonce),
        }
    }

    /// Takes an acknowledgement or a rejection. `None`: no reply awaits this answer.
    pub(crate) fn settle(&mut self, nonce: &str, error: Option<&str>) -> Option<Settled> {
        let answered = self.awaited(nonce)?;
        let flight = self.in_flight.take_if(|_| self.last == Some(answered));
        let settled = match error {
            None => {
                self.unknown = false;
                if flight.as_ref().is_some_and(|flight| flight.whole) {
                    self.confirmed = Some(answered.head());
                }
                let names = flight.map(|flight| self.accept(flight, None)).unwrap_or_default();
                Settled { names, rejection: None }
            }
            Some(error) => {
                self.confirmed.take_if(|head| *head >= answered.head());
                let told = match flight {
                    Some(flight) => self.take_sent(flight),
                    None => self.take_back(answered),
                };
                self.reject(answered, error, told)
            }
        };
        // Answers come in the order of the replies: what is presumed up to this one is so.
        if self.presumed.is_some() {
            self.presumed.take_if(|presumed| *presumed <= answered);
            for exception in self.exceptions.values_mut() {
                if exception.presumed.take_if(|presumed| presumed.nonce <= answered).is_some() {
                    exception.rejected = None;
                }
            }
            self.tidy();
        }
        Some(settled)
    }

    /// Takes silence for consent once it lasted too long, so that a client which never answers still gets news.
    pub(crate) fn presume(&mut self, now: Duration) -> Option<Settled> {
        self.awaited_until().filter(|until| now >= *until)?;
        let flight = self.in_flight.take()?;
        self.presumed = self.last;
        Some(Settled { names: self.accept(flight, self.last), rejection: None })
    }

    /// The reply that is in flight or was presumed to be accepted, and has this nonce.
    fn awaited(&self, nonce: &str) -> Option<Nonce> {
        let in_flight = self.last.filter(|_| self.in_flight.is_some());
        // Beside the newest that was presumed there may be older ones.
        let exceptions = self.presumed.iter().flat_map(|_| self.exceptions.values());
        let presumed = exceptions.filter_map(|exception| exception.presumed.as_ref());
        let presumed = presumed.map(|presumed| presumed.nonce);
        let mut awaited = in_flight.into_iter().chain(self.presumed).chain(presumed);
        awaited.find(|awaited| awaited.is(nonce))
    }

    /// What was in flight is held from now on, if only by presumption.
    fn accept(&mut self, flight: Flight, presumed: Option<Nonce>) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for name in flight.names {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            let Some(content) = exception.sent.take() else { continue };
            let before = std::mem::replace(&mut exception.held, Held::of(content));
            exception.presumed = presumed.map(|nonce| Presumed { nonce, before });
            // What it rejected before is forgotten once it has said that it took something else.
            exception.rejected.take_if(|_| presumed.is_none());
            let again = exception.tell;
            self.tidy_up(&name);
            if !again {
                names.push(name);
            }
        }
        names
    }

    fn take_sent(&mut self, flight: Flight) -> Vec<(Arc<str>, Content)> {
        let mut told = Vec::new();
        for name in flight.names {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            exception.presumed = None;
            told.extend(exception.sent.take().map(|content| (name, content)));
        }
        told
    }

    /// The client was presumed to hold this and does not.
    fn take_back(&mut self, nonce: Nonce) -> Vec<(Arc<str>, Content)> {
        let mut told = Vec::new();
        for (name, exception) in &mut self.exceptions {
            let presumed = exception.presumed.take_if(|presumed| presumed.nonce == nonce);
            let Some(Presumed { before, .. }) = presumed else { continue };
            let content = match std::mem::replace(&mut exception.held, before) {
                Held::At(resource) => Some(resource),
                Held::Nothing | Held::Other => None,
            };
            told.push((name.clone(), content));
        }
        told
    }

    /// Envoy names the culprits of a rejected response in its error text, and may have applied the others: those are
    /// sent once more without the culprits. Where no name is found, all that was new is to blame.
    fn reject(&mut self, nonce: Nonce, error: &str, told: Vec<(Arc<str>, Content)>) -> Settled {
        let mut rejection = Rejection {
            kind: self.kind,
            nonce: nonce.to_string(),
            detail: bounded(error, DETAIL_LIMIT).to_owned(),
            resources: Vec::new(),
        };
        let words = words(error);
        let named = |name: &str| words.contains(name);
        let any_named = told.iter().any(|(name, _)| named(name));
        let mut culprits = Vec::new();
        for (name, content) in told {
            let Some(exception) = self.exceptions.get_mut(&name) else { continue };
            if !any_named || named(&name) {
                if rejection.resources.len() < NAMES_LIMIT {
                    let version = content.as_ref().map(|resource| resource.version);
                    rejection.resources.push((name.clone(), version));
                }
                exception.rejected = Some(content);
                self.tidy_up(&name);
                culprits.push(name);
            } else if self.unknown {
                // The next list would have the culprits in it again (see `list_the_unknown`), so there is none until
                // there is news. Envoy has applied the others.
                exception.held = Held::of(content);
                exception.rejected = None;
                self.tidy_up(&name);
            } else {
                exception.tell |= exception.sent.is_none();
            }
        }
        Settled { names: culprits, rejection: Some(rejection) }
    }
}

impl Held {
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

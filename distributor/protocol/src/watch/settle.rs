//! What a client says to a reply.

use super::{Exception, Held, Watch};
use crate::event::Rejection;
use crate::session::PATIENCE;
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

    /// Takes an acknowledgement or a rejection. `None`: the nonce is not that of the reply in flight.
    pub(crate) fn settle(&mut self, nonce: &str, error: Option<&str>) -> Option<Settled> {
        let last = self.last.filter(|last| last.is(nonce))?;
        let detail = error.map(|error| bounded(error, DETAIL_LIMIT).to_owned());
        let rejection = detail.map(|detail| Rejection {
            kind: self.kind,
            nonce: last.to_string(),
            detail,
            resources: Vec::new(),
        });
        if self.in_flight.take().is_none() {
            // The answer comes late, to a reply that was taken for accepted.
            let late = std::mem::take(&mut self.presumed);
            return late.then_some(Settled { names: Vec::new(), rejection });
        }
        self.presumed = false;
        let Some(mut rejection) = rejection else {
            self.unknown = false;
            return Some(Settled { names: self.accept(), rejection: None });
        };
        let names = self.reject(error.unwrap_or_default(), &mut rejection);
        Some(Settled { names, rejection: Some(rejection) })
    }

    /// Takes silence for consent once it lasted too long, so that a client which never answers still gets news.
    pub(crate) fn presume(&mut self, now: Duration) -> Option<Settled> {
        self.in_flight.take_if(|since| now >= *since + PATIENCE)?;
        self.presumed = true;
        self.unknown = false;
        Some(Settled { names: self.accept(), rejection: None })
    }

    fn accept(&mut self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (name, exception) in &mut self.exceptions {
            let Some(content) = exception.sent.take() else { continue };
            exception.held = content.map_or(Held::Nothing, Held::At);
            exception.rejected = None;
            if !exception.tell {
                names.push(name.clone());
            }
        }
        self.tidy();
        names
    }

    /// Envoy names the culprits of a rejected response in its error text, and may have applied the others: those are
    /// sent once more without the culprits. Where no name is found, all that was new is to blame.
    fn reject(&mut self, error: &str, rejection: &mut Rejection) -> Vec<Arc<str>> {
        let sent = |(name, exception): (&Arc<str>, &Exception)| {
            exception.sent.is_some().then(|| name.clone())
        };
        let named = |name: &Arc<str>| mentions(error, name);
        let mut culprits: Vec<_> = self.exceptions.iter().filter_map(sent).filter(named).collect();
        if culprits.is_empty() {
            culprits = self.exceptions.iter().filter_map(sent).collect();
        }
        for name in &culprits {
            let Some(exception) = self.exceptions.get_mut(name) else { continue };
            exception.rejected = exception.sent.take();
            if rejection.resources.len() < NAMES_LIMIT {
                let content = exception.rejected.as_ref().and_then(Option::as_ref);
                rejection.resources.push((name.clone(), content.map(|resource| resource.version)));
            }
        }
        if self.unknown {
            // The next list would have the culprits in it again (see `list_the_unknown`), so there is none until there
            // is news. Envoy has applied the others.
            self.accept();
        }
        for exception in self.exceptions.values_mut() {
            exception.tell |= exception.sent.take().is_some();
        }
        self.tidy();
        culprits
    }
}

/// Whether the text has this name as a word of its own.
fn mentions(text: &str, name: &str) -> bool {
    let inside = |character: char| character.is_alphanumeric() || "-_./:|".contains(character);
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let mut after = text[at + name.len()..].chars();
            // A full stop or a colon may end the name's sentence: what counts is what follows it.
            let follows = match after.next() {
                Some('.' | ':') => after.next().filter(|character| inside(*character)),
                next => next.filter(|character| inside(*character)),
            };
            !before.is_some_and(inside) && follows.is_none()
        })
}

/// The beginning of the text, cut where a character ends.
fn bounded(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_error_texts_as_words() {
        let text = "Error adding/updating cluster(s) default/web:80: bad type, prod/api";
        assert!(mentions(text, "default/web:80"));
        assert!(mentions(text, "prod/api"));
        assert!(!mentions(text, "default/web"));
        assert!(!mentions(text, "web:80"));
        assert!(!mentions(text, ""));
        assert!(mentions("no such thing as 'a'.", "a"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(bounded("häuser", 2), "h");
        assert_eq!(bounded("haus", 10), "haus");
    }
}

//! The history of a run, as it is gathered.

use heliograph_checker::{Content, Event, Outcome, Response, Violation, check};
use heliograph_snapshot::{FleetName, Head, ResourceType};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Clones write to the same.
#[derive(Clone, Default)]
pub(crate) struct Log {
    events: Arc<Mutex<Vec<Event>>>,
}

impl Log {
    pub(crate) fn note(&self, event: Event) {
        self.events().push(event);
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        let events = self.events().clone();
        check(&events)
    }

    /// The heads that a writer was told are published, with their content.
    pub(crate) fn published(&self, fleet: &FleetName) -> BTreeMap<Head, Option<Arc<Content>>> {
        let events = self.events();
        let mut asked = BTreeMap::new();
        let mut published = BTreeMap::new();
        for event in events.iter() {
            match event {
                Event::Asked { fleet: of, head, content } if of == fleet => {
                    asked.insert(*head, content.clone());
                }
                Event::Answered { fleet: of, head, outcome: Outcome::Acknowledged }
                    if of == fleet =>
                {
                    published.insert(*head, asked[head].clone());
                }
                _ => {}
            }
        }
        published
    }

    pub(crate) fn newest(&self, fleet: &FleetName) -> Option<Head> {
        self.published(fleet).keys().max().copied()
    }

    /// How often a writer asked for this head.
    pub(crate) fn asks(&self, wanted: Head) -> usize {
        let events = self.events();
        let asks =
            events.iter().filter(|it| matches!(it, Event::Asked { head, .. } if *head == wanted));
        asks.count()
    }

    /// All responses to proxies; of one type, or of all.
    pub(crate) fn responses(&self, kind: Option<ResourceType>) -> usize {
        let events = self.events();
        let of_kind = |it: &&Event| match it {
            Event::Responded(Response { kind: of, .. }) => kind.is_none_or(|kind| *of == kind),
            _ => false,
        };
        events.iter().filter(of_kind).count()
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap()
    }
}

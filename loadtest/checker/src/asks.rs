use crate::event::{Content, Event, Outcome, ResourceId};
use crate::publishes::Publishes;
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All publications that writers asked for in a history, whatever the answers.
#[derive(Debug, Default)]
pub(crate) struct PublishAttempts(BTreeMap<FleetName, BTreeMap<Head, PublishAttempt>>);

#[derive(Debug)]
struct PublishAttempt {
    /// None: the fleet is retired.
    content: Option<Arc<Content>>,
    /// How often it was asked for: a writer without an answer asks again.
    asked: usize,
    refused: usize,
    acknowledged: bool,
}

impl PublishAttempts {
    pub(crate) fn collect(events: &[Event], violations: &mut Vec<Violation>) -> Self {
        let mut asks = Self::default();
        for event in events {
            match event {
                Event::Asked { fleet, head, content } => {
                    asks.ask(fleet, *head, content, violations)
                }
                Event::Answered { fleet, head, outcome } => asks.answer(fleet, *head, *outcome),
                _ => {}
            }
        }
        asks
    }

    /// The publications that may be in the store, in the order of heads.
    pub(crate) fn publishes(&self) -> Publishes {
        let mut publishes = Publishes::default();
        for (fleet, asks) in &self.0 {
            let history = publishes.of(fleet);
            let nothing = Content::default();
            let mut before = &nothing;
            for (head, ask) in asks {
                match &ask.content {
                    _ if ask.is_refused() => history.refuse(*head),
                    None => history.append(*head, false, ask.acknowledged, []),
                    Some(content) => {
                        let changes = changes(before, content);
                        history.append(*head, true, ask.acknowledged, changes);
                        before = content;
                    }
                }
            }
        }
        publishes
    }

    fn ask(
        &mut self,
        fleet: &FleetName,
        head: Head,
        content: &Option<Arc<Content>>,
        violations: &mut Vec<Violation>,
    ) {
        let asks = self.0.entry(fleet.clone()).or_default();
        let ask = asks.entry(head).or_insert_with(|| PublishAttempt {
            content: content.clone(),
            asked: 0,
            refused: 0,
            acknowledged: false,
        });
        ask.asked += 1;
        if ask.content != *content {
            let difference = match (&ask.content, content) {
                (Some(one), Some(other)) => one.difference(other).map(ToString::to_string),
                _ => None,
            };
            let difference =
                difference.unwrap_or_else(|| "whether the fleet is retired".to_owned());
            violations.push(Violation::TwoContents { fleet: fleet.clone(), head, difference });
        }
    }

    fn answer(&mut self, fleet: &FleetName, head: Head, outcome: Outcome) {
        let ask = self.0.get_mut(fleet).and_then(|found| found.get_mut(&head));
        let Some(ask) = ask else { return };
        match outcome {
            Outcome::Acknowledged => ask.acknowledged = true,
            Outcome::Refused => ask.refused += 1,
            Outcome::Unknown => {}
        }
    }
}

impl PublishAttempt {
    /// Whether it was certainly not done: an ask whose answer was lost may have been.
    fn is_refused(&self) -> bool {
        !self.acknowledged && self.refused == self.asked
    }
}

fn changes<'a>(
    before: &'a Content,
    after: &'a Content,
) -> impl Iterator<Item = (ResourceId, Option<Version>)> {
    let set = after.0.iter().filter(|(id, version)| before.0.get(*id) != Some(*version));
    let gone = before.0.keys().filter(|id| !after.0.contains_key(*id));
    let set = set.map(|(id, version)| (id.clone(), Some(*version)));
    set.chain(gone.map(|id| (id.clone(), None)))
}

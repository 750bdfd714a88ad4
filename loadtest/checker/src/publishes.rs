use crate::event::{Content, Event, Outcome};
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All that writers asked for.
#[derive(Debug, Default)]
pub(crate) struct Publishes(BTreeMap<FleetName, BTreeMap<Head, Publish>>);

#[derive(Debug)]
pub(crate) struct Publish {
    /// None: the fleet is retired.
    pub(crate) content: Option<Arc<Content>>,
    /// How often it was asked for: a writer that was told nothing asks again.
    asked: usize,
    refused: usize,
    acknowledged: bool,
}

impl Publishes {
    pub(crate) fn collect(events: &[Event], violations: &mut Vec<Violation>) -> Self {
        let mut publishes = Self::default();
        for event in events {
            match event {
                Event::Asked { fleet, head, content } => {
                    publishes.ask(fleet, *head, content, violations);
                }
                Event::Answered { fleet, head, outcome } => {
                    publishes.answer(fleet, *head, *outcome);
                }
                _ => {}
            }
        }
        publishes
    }

    pub(crate) fn fleets(&self) -> impl Iterator<Item = &FleetName> {
        self.0.keys()
    }

    pub(crate) fn get(&self, fleet: &FleetName, head: Head) -> Option<&Publish> {
        self.0.get(fleet)?.get(&head)
    }

    /// The newest that a writer was told is published.
    pub(crate) fn newest(&self, fleet: &FleetName) -> Option<Head> {
        let mut newest = self.0.get(fleet)?.iter().rev();
        newest.find(|(_, publish)| publish.acknowledged).map(|(head, _)| *head)
    }

    /// What may be in the store from this head on, oldest first.
    pub(crate) fn standing(
        &self,
        fleet: &FleetName,
        from: Head,
    ) -> impl DoubleEndedIterator<Item = (Head, &Publish)> {
        let publishes = self.0.get(fleet).into_iter().flat_map(move |found| found.range(from..));
        publishes.filter(|(_, found)| !found.is_refused()).map(|(head, found)| (*head, found))
    }

    fn ask(
        &mut self,
        fleet: &FleetName,
        head: Head,
        content: &Option<Arc<Content>>,
        violations: &mut Vec<Violation>,
    ) {
        let publishes = self.0.entry(fleet.clone()).or_default();
        let publish = publishes.entry(head).or_insert_with(|| Publish {
            content: content.clone(),
            asked: 0,
            refused: 0,
            acknowledged: false,
        });
        publish.asked += 1;
        if publish.content != *content {
            let difference = match (&publish.content, content) {
                (Some(one), Some(other)) => one.difference(other).map(ToString::to_string),
                _ => None,
            };
            let difference =
                difference.unwrap_or_else(|| "whether the fleet is retired".to_owned());
            violations.push(Violation::TwoContents { fleet: fleet.clone(), head, difference });
        }
    }

    fn answer(&mut self, fleet: &FleetName, head: Head, outcome: Outcome) {
        let publish = self.0.get_mut(fleet).and_then(|found| found.get_mut(&head));
        let Some(publish) = publish else { return };
        match outcome {
            Outcome::Acknowledged => publish.acknowledged = true,
            Outcome::Refused => publish.refused += 1,
            Outcome::Unknown => {}
        }
    }
}

impl Publish {
    /// Whether it was certainly not done: an ask whose answer was lost may have been.
    pub(crate) fn is_refused(&self) -> bool {
        !self.acknowledged && self.refused == self.asked
    }
}

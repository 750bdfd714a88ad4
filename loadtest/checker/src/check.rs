use crate::asks::PublishAttempts;
use crate::event::Event;
use crate::proxy::Proxy;
use crate::reader::StoreReader;
use crate::violation::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// All that is wrong with a history, in the order in which it happened; what is missing at the end comes last.
///
/// A driver that calls this while the run goes on can tell by [`Violation::may_pass`] what to wait for.
pub fn check(events: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    // First of all: a snapshot may be seen before its writer gets the answer.
    let publishes = PublishAttempts::collect(events, &mut violations).publishes();
    let (mut readers, mut proxies) = (BTreeMap::new(), BTreeMap::new());
    let mut unwanted = BTreeSet::new();
    for event in events {
        match event {
            Event::Reads { reader } => {
                readers.insert(reader.clone(), StoreReader::new(reader.clone()));
            }
            Event::Read { reader, fleet, head, content } => {
                if let Some(reader) = readers.get_mut(reader) {
                    reader.read(fleet, *head, content.as_deref(), &publishes, &mut violations);
                }
            }
            Event::Connects { client, fleet } => {
                proxies.insert(client.clone(), Proxy::new(fleet.clone()));
            }
            Event::Reconnects { client } => {
                if let Some(proxy) = proxies.get_mut(client) {
                    proxy.reconnect();
                }
            }
            Event::Responded(response) => {
                if let Some(proxy) = proxies.get_mut(&response.client) {
                    proxy.receive(&response.client, response, &publishes, &mut violations);
                }
            }
            Event::Leaves { who } => {
                readers.remove(who);
                proxies.remove(who);
            }
            Event::Wanted { fleet, is_wanted: true } => drop(unwanted.remove(fleet)),
            Event::Wanted { fleet, is_wanted: false } => drop(unwanted.insert(fleet.clone())),
            Event::Asked { .. } | Event::Answered { .. } => {}
        }
    }
    readers.values().for_each(|reader| reader.end(&publishes, &unwanted, &mut violations));
    for (client, proxy) in &proxies {
        proxy.end(client, &publishes, &mut violations);
    }
    violations
}

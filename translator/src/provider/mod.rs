//! Where objects come from. A provider fills one bounded channel of [`Input`].

pub mod file;
pub mod kubernetes;
pub mod proxy_inventory;

use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, ObjectName};
use std::collections::BTreeSet;

/// A message of a provider to the translator.
#[derive(Debug)]
pub enum Input {
    /// Changes that belong together: nothing is published between them.
    Batch(Vec<Event>),
    /// All objects that existed at the start have been sent. Before this nothing is published, since half of the objects
    /// would give half of a configuration.
    Synced,
    /// These objects of a kind are there, and no version of them could be read. What follows from them is not known, so it
    /// is left as it is. It replaces what was said of the kind before.
    Unread(Kind, BTreeSet<ObjectName>),
    /// All objects that existed when the request with this number was made have been sent.
    Fresh(u64),
}

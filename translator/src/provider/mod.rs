//! Where objects come from. A provider fills one bounded channel of [`Input`].

pub mod directory;
pub mod file;
pub mod kubernetes;

use heliograph_translator_core::Event;

/// What a provider tells the translator.
#[derive(Debug)]
pub enum Input {
    /// Changes that belong together: nothing is published between them.
    Batch(Vec<Event>),
    /// Everything that was there at the start has been told. Before this nothing is published, since half of the
    /// objects would give half of a configuration.
    Synced,
    /// Everything that was there at the asking with this number has been told.
    Fresh(u64),
}

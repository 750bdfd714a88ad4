//! Watches objects, translates them and publishes what follows.
//!
//! A [`provider`] fills one channel with [`Input`](provider::Input); [`Translator`] owns the world, and is the only
//! one that writes to the store. What it found is read by others as a [`Report`].

mod app;
mod metrics;
pub mod provider;
mod publish;
mod report;

pub use app::{TermError, Translator};
pub use metrics::{FileMetrics, TranslatorMetrics};
pub use publish::Publisher;
pub use report::{Report, in_words};

//! Watches objects, translates them and publishes what follows.
//!
//! A [`provider`] fills one channel with [`Input`](provider::Input); [`Translator`] owns the world, and is the only
//! one that writes to the store. What it found is read by others as a [`Report`]. [`program`] is all of that as a program
//! of its own, over Redis.

mod acks;
pub mod kubernetes;
mod metrics;
pub mod program;
pub mod provider;
mod publish;
mod report;
mod status;
mod term;

pub use acks::AckReader;
pub use metrics::{FileMetrics, TranslatorMetrics};
pub use publish::{Decision, News, Publisher, TermError};
pub use report::{Report, in_words};
pub use status::StatusPage;
pub use term::Translator;

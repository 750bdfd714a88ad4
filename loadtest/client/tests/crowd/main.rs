//! A crowd over real TCP, against a server that says what a test wants and keeps what it hears.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod conducts;
mod endings;
mod peer;
mod serving;
mod watcher;

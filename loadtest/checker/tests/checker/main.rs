//! The checker is no better than what it finds: logs that are wrong in one way each, and stores that lie.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod liar;
mod liars;
mod logs;
mod servers;

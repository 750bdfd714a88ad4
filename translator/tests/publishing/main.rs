//! The writer of the store, alone and as a whole term, on a store that fails on demand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod faulty;
mod pins;
mod publisher;
mod term;
mod writer;

use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

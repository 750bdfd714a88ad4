//! Every store keeps the same contract: to test another, add a line here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contract;
mod model;

use heliograph_shared::store::{Embedded, Store};
use std::sync::Arc;

contract::cases!(embedded, async { Arc::new(Embedded::new()) as Arc<dyn Store> });

//! What is written to the Kubernetes API. What is read from it is in [`provider`](crate::provider).

mod observed;

pub use observed::{Observed, Seen};

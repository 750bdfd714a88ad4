//! Logs and metrics.
//!
//! Metrics: every component has a struct of its own that registers itself on the [`Registry`](prometheus::Registry)
//! it is given. Names begin with `heliograph_`; labels come from closed sets, never from clients. Counters with labels
//! begin at 0 ([`from_zero`]).

mod footprint;
mod logging;
mod logs;
mod metrics;

pub use logging::Logging;
pub use logs::{LogArgs, LogFormat, TelemetryError, init};
pub use metrics::{from_zero, registry};

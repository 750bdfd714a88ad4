//! The measurements of a load test.
//!
//! [`Figures`] are counted by each worker and merged by their coordinator: to merge is the same as to have counted
//! everything in one place, so nothing depends on how clients were spread over workers. [`Sampler`] looks at the
//! servers. Both end in a [`Report`], which is JSON for machines, a table for terminals and a page for browsers, and
//! two reports make a [`Comparison`]. While a run lasts, [`LiveStatus`] is its state in one line and [`RunMetrics`] are the same
//! figures for Prometheus.
//!
//! # Coordinated omission
//!
//! A server that stalls also stalls a client that waits for its answer before it sends the next request, so the requests
//! that would have waited longest are never sent, and the latencies look good. Here this cannot occur, so nothing has to
//! be corrected afterwards: changes are due at moments fixed before the run, whatever the server does, and the latency
//! of a change is counted from the moment it was *due*. Code that records must follow this rule: a change that was
//! published late is late, and a client that got a later change instead has waited since the first that it missed was
//! due.

mod clients;
mod compare;
mod figures;
mod live;
mod machine;
mod metrics;
mod page;
mod report;
mod samples;
mod units;

pub use clients::Clients;
pub use compare::{
    Bounds, BoundsError, Comparison, ComparisonRow, Measure, RowStatus, Worse, compare,
};
pub use figures::{
    Counters, Figures, Latencies, LatencySummary, Point, Push, Pushes, ReceivedResponse,
    RequestKind, Series, Tally,
};
pub use live::{LiveStatus, ProgressLine, line};
pub use machine::Machine;
pub use metrics::RunMetrics;
pub use report::{Examples, FORMAT, LoadError, Phase, Report, Scenario};
pub use samples::{Line, PerStream, Sample, SampleError, Sampler, Watched, least_squares, total};

//! Watches objects, translates them and publishes snapshots.
//!
//! A [`provider`] fills one channel with [`Input`](provider::Input); [`Translator`] owns the world, and is the only task
//! that writes to the store. Other tasks read its results as a [`Report`]. [`program`] wires all of that as a program,
//! over Redis.

mod acks;
mod connect;
pub mod election;
mod event_debounce;
mod feedback;
mod fleet_metrics;
mod kubeconfig;
pub mod kubernetes;
mod leave_out;
mod limits;
mod metrics;
pub mod program;
pub mod provider;
mod publish;
mod recent;
mod report;
mod standby;
mod status;
mod term;

pub use acks::AckReader;
pub use connect::{ConnectError, KubernetesArgs};
pub use feedback::{Blame, Blamed, Feedback, FleetFeedback};
pub use fleet_metrics::{FLEETS_WITH_METRICS, FleetMetrics};
pub use kubeconfig::{Access, KubeconfigError};
pub use limits::LimitArgs;
pub use metrics::{ElectionMetrics, FileMetrics, KubernetesMetrics, TranslatorMetrics};
pub use publish::{Decision, PublishEvent, Publisher, TermError, TooLarge};
pub use recent::Recent;
pub use report::{Published, Report, in_words};
pub use status::{Remarks, StatusPage};
pub use term::Translator;

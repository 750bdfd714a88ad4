//! Writes to the Kubernetes API. [`provider`](crate::provider) reads from it.

mod deployed;
mod infra;
mod observed;
mod status;

pub use deployed::Deployed;
pub(crate) use deployed::DeployedPart;
pub use infra::{Infra, InfraMetrics, ProxyArgs};
pub use observed::{Observed, ObservedObject};
pub use status::{StatusMetrics, StatusWriter};

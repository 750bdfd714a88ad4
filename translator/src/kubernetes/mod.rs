//! What is written to the Kubernetes API. What is read from it is in [`provider`](crate::provider).

mod deployed;
mod infra;
mod observed;
mod status;

pub use deployed::Deployed;
pub(crate) use deployed::DeployedPart;
pub use infra::{Infra, InfraMetrics, ProxyArgs};
pub use observed::{Observed, ObservedObject};
pub use status::{StatusMetrics, StatusWriter};

//! The intermediate representation: what a fleet shall do, in words of neither Kubernetes nor Envoy.
//!
//! Everything here is resolved and valid: a reference that led nowhere has become a [`Target::Invalid`], a listener
//! that cannot be served is not there. Two halves: proxy configuration, and [`Infra`], what to run for a Gateway.

mod cluster;
mod host_map;
mod hostname;
mod infra;
mod listener;
mod owner;
mod route;
mod tls;

pub use cluster::{Backend, Endpoint, Endpoints, Locality, Place, Protocol as BackendProtocol};
pub(crate) use host_map::HostMap;
pub use hostname::{Hostname, InvalidHostname};
pub use infra::{Infra, InfraPort, Proxies};
pub(crate) use listener::Candidate;
pub use listener::{Fleet, Listener, ListenerId, Protocol, TableKey, listener_name, secret_name};
pub use owner::FleetOwner;
pub use route::{
    Cors, Filter, HeaderEdits, HeaderValue, HttpMatch, HttpRoute, HttpRule, Mirror, PathMatch,
    PathRewrite, Redirect, Retry, Rewrite, Route, RpcMatch, Scheme, StringMatch, Target, Timeouts,
    WeightedTarget,
};
pub use tls::ClientValidation;
pub(crate) use tls::{SubjectName, Trust, UpstreamTls};

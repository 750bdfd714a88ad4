//! What the proxies of a fleet are to do, as values, with neither Kubernetes' types nor Envoy's.
//!
//! The front end translates objects to these values, and a dialect translates the values to the messages of its proxies.
//! Everything here is resolved and valid: a reference that leads nowhere has become a [`Target::Invalid`], and a
//! listener that cannot be served is left out.
//!
//! Values refer to each other by typed ids ([`RouteId`], [`ListenerId`], [`UpstreamId`], [`SecretId`], [`PolicyId`], and
//! the name of a fleet). Only the dialect has the names that proxies see.

mod fleet;
mod frozen_set;
mod host_map;
mod hostname;
mod id;
mod name;
mod owner;
mod policy;
mod port;
mod precedence;
mod route;
mod seniority;
mod tcp_route;
mod tls;
mod transport;
mod upstream;

pub use fleet::{
    Candidate, EscapedSlashes, Fleet, HeadersWithUnderscores, HttpSettings, InfraPort, Listener,
    Protocol, TableKey, TableParts,
};
pub use frozen_set::FrozenSet;
pub use host_map::HostMap;
pub use hostname::{Hostname, InvalidHostname};
pub use id::{
    ListenerId, ListenerName, ListenerOwner, ListenerOwnerKind, RouteId, RouteKind, SecretId,
    UpstreamId, UpstreamKind, UpstreamProtocol,
};
pub use name::{Keyed, Named, NamedKind, ObjectName};
pub use owner::FleetOwner;
pub use policy::{
    Effective, HttpPolicy, OfPolicyKind, PolicyAge, PolicyId, PolicyKind, PolicyScope,
    PolicySections, PolicyTarget, SecurityPolicy, TrafficPolicy, UpstreamObject,
};
pub use port::{Port, ServedListener, Traffic};
pub use precedence::Precedence;
/// A regular expression of RE2 that matches this text and nothing else.
pub use regex_syntax::escape as escape_regex;
pub use route::{
    Cors, Filter, HeaderEdits, HeaderValue, HttpMatch, HttpRoute, HttpRule, Mirror, PathMatch,
    PathRewrite, Redirect, Retry, Rewrite, Route, RpcMatch, Scheme, StringMatch, Target, Timeouts,
    WeightedTarget,
};
pub use seniority::{RouteAge, Seniority};
pub use tcp_route::{TcpRoute, TcpTarget};
pub use tls::{ClientValidation, KeyPair, SubjectName, Trust, UpstreamTls};
pub use transport::{Transport, TransportPort};
pub use upstream::{Endpoint, Endpoints, Locality, LocalityName, Upstream};

use crate::{TcpRoute, UpstreamId};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// A route. Kinds that are served in the same way share a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Route {
    /// Becomes part of a route table.
    Http(HttpRoute),
    /// Becomes part of the listeners that it is attached to.
    Tcp(TcpRoute),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRoute {
    pub rules: Vec<HttpRule>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRule {
    /// Policies may target it by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Any of these; never empty.
    pub matches: Vec<HttpMatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    pub targets: Vec<WeightedTarget>,
    #[serde(skip_serializing_if = "Timeouts::is_default")]
    pub timeouts: Timeouts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// All of these at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    pub path: PathMatch,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Lower-case name and what its value must be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, StringMatch)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<(String, StringMatch)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PathMatch {
    Exact(String),
    /// By path element, without a trailing slash: empty for `/`.
    Prefix(String),
    Regex(String),
    /// A call of gRPC, and nothing else that has its path.
    Rpc(RpcMatch),
}

/// A part that is `None` matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcMatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<StringMatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<StringMatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StringMatch {
    Exact(String),
    Regex(String),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WeightedTarget {
    pub weight: u32,
    pub target: Target,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    Upstream(UpstreamId),
    /// A reference that leads nowhere: its share of the requests is answered with 500, and of connections closed.
    Invalid,
}

/// A change of a request or its response. One variant, one file in `filters/`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Filter {
    RequestHeaders(HeaderEdits),
    ResponseHeaders(HeaderEdits),
    Redirect(Redirect),
    Rewrite(Rewrite),
    /// The only one that a rule may have several times.
    Mirror(Mirror),
    Cors(Cors),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HeaderValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<HeaderValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderValue {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Redirect {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    pub status: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    Http,
    Https,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rewrite {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PathRewrite {
    Full(String),
    /// What stands in place of the matched prefix, without a trailing slash: empty for `/`.
    Prefix(String),
}

/// A copy of requests is sent there too, and its answer is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mirror {
    pub target: Target,
    /// How many of a million requests are copied.
    pub per_million: u32,
}

/// Which pages of other origins may read answers. `*` among methods or headers stands for whatever is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cors {
    pub origins: Vec<StringMatch>,
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub exposed_headers: Vec<String>,
    pub credentials: bool,
    /// In seconds.
    pub max_age: u32,
}

/// The requests that are retried: those that did not reach a backend, and those that it answered with one of these
/// codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// After the first one. Zero: never.
    pub attempts: u32,
    pub codes: Vec<u16>,
    /// From one attempt to the next, at the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
}

/// `None`: nothing was said. `Some` of zero: no timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// From the end of the request to the end of the response, over all attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Duration>,
    /// Of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<Duration>,
}

impl HttpRule {
    /// The same requests, all of them answered with an error.
    pub fn unserved(&self) -> Self {
        Self {
            name: self.name.clone(),
            matches: self.matches.clone(),
            filters: Vec::new(),
            targets: Vec::new(),
            timeouts: Timeouts::default(),
            retry: None,
        }
    }

    /// All that its requests, or copies of them, may be sent to.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamId> {
        let filters = self.targets.iter().flat_map(|target| &target.filters).chain(&self.filters);
        let targets = self.targets.iter().filter_map(|target| match &target.target {
            Target::Upstream(upstream) => Some(upstream),
            Target::Invalid => None,
        });
        targets.chain(filters.filter_map(Filter::upstream))
    }
}

impl StringMatch {
    /// How long its text is: of two matches the longer is the more specific.
    pub fn length(&self) -> usize {
        match self {
            Self::Exact(text) | Self::Regex(text) => text.len(),
        }
    }
}

impl Filter {
    /// The upstream that a filter sends requests to by itself.
    fn upstream(&self) -> Option<&UpstreamId> {
        match self {
            Self::Mirror(Mirror { target: Target::Upstream(upstream), .. }) => Some(upstream),
            Self::Mirror(_)
            | Self::RequestHeaders(_)
            | Self::ResponseHeaders(_)
            | Self::Redirect(_)
            | Self::Rewrite(_)
            | Self::Cors(_) => None,
        }
    }
}

impl Timeouts {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

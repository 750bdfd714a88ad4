use crate::{Target, UpstreamId};
use serde::Serialize;

/// Where connections go, as they are. Connections of other kinds of routes end in the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpRoute {
    /// Each gets its share of the connections. Without any that has a weight, connections are closed.
    pub targets: Vec<TcpTarget>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpTarget {
    pub weight: u32,
    pub target: Target,
}

impl TcpRoute {
    /// All that its connections may go to.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamId> {
        self.targets.iter().filter_map(|target| match &target.target {
            Target::Upstream(upstream) => Some(upstream),
            Target::Invalid => None,
        })
    }
}

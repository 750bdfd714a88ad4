//! The Kubernetes objects that run for a fleet: [`render`] builds the wanted objects, and [`plan`] compares them with
//! the existing ones.

pub mod bootstrap;
mod drain;
pub mod names;
mod plan;
mod pod;
mod render;
mod scaling;
mod service;
mod wanted;

pub use drain::script as drain_script;
pub use plan::{Live, Step, obstacle, plan};
pub use render::{Part, Rendered, render};
pub use wanted::{Infra, Proxies};

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// The defaults for the proxies of all Gateways. A ProxyConfig can override them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The image of Envoy.
    pub image: String,
    /// Where the distributors are: a name or an address, and a port.
    pub host: String,
    pub port: u16,
    /// The CA bundle of the distributors, in PEM; without it, Envoys connect in plain text.
    pub ca_bundle: Option<String>,
    /// The file of the CA bundle, which the translator follows.
    pub ca_file: Option<PathBuf>,
    pub identity: ProxyIdentity,
    pub user: RunAs,
    pub group: RunAs,
}

/// How a proxy shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyIdentity {
    /// It is not asked.
    None,
    /// By a token of its ServiceAccount.
    Token { audience: String },
    /// By a certificate in a Secret of this name in the Gateway's namespace, with `tls.crt` and `tls.key`.
    Certificate { secret: String },
}

/// The number of the user or the group that Envoys run as; `None` leaves it to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAs(pub Option<i64>);

impl Default for RunAs {
    /// The user without rights of distroless images.
    fn default() -> Self {
        Self(Some(65532))
    }
}

impl FromStr for RunAs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Not 0: no pod of ours runs as root. Kubernetes has no larger ones.
        let number = text.parse().ok().filter(|number| (1..=i64::from(i32::MAX)).contains(number));
        match (text, number) {
            ("none", _) => Ok(Self(None)),
            (_, Some(number)) => Ok(Self(Some(number))),
            _ => Err("it is a number from 1 to 2147483647, or none"),
        }
    }
}

impl Display for RunAs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// The Envoy that is tested against.
pub const DEFAULT_IMAGE: &str = "docker.io/envoyproxy/envoy:v1.40.0";

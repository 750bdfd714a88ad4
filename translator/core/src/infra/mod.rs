//! What runs for a Gateway, as Kubernetes objects: [`render`] says what there should be, [`plan`] what to do about what
//! there is.

pub mod bootstrap;
mod drain;
pub mod names;
mod plan;
mod pod;
mod render;
mod scaling;
mod service;

pub use drain::script as drain_script;
pub use plan::{Live, Step, plan};
pub use render::{Part, Rendered, render};

use std::path::PathBuf;

/// What holds for the proxies of all Gateways, unless a ProxyConfig says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The image of Envoy.
    pub image: String,
    /// Where the distributors are: a name or an address, and a port.
    pub host: String,
    pub port: u16,
    /// The authorities of the distributors, in PEM; without them, Envoys ask in the clear.
    pub authorities: Option<String>,
    /// The file that they are from, for who follows it.
    pub authorities_file: Option<PathBuf>,
    pub identity: ProxyIdentity,
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

/// The Envoy that is tested against.
pub const DEFAULT_IMAGE: &str = "docker.io/envoyproxy/envoy:v1.40.0";

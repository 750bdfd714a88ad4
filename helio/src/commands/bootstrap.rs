use crate::output::{self, Format};
use anyhow::{Context, bail};
use heliograph_gateway::infra::bootstrap::{
    BOOTSTRAP_FILE, Bootstrap, Distributors, Node, OwnPorts, Tls,
};
use heliograph_snapshot::FleetName;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the configuration that an Envoy outside of Kubernetes starts with
///
/// Paths are those that the Envoy will see. With certificates or a token there are further files, so that Envoy follows
/// them when they are replaced: --dir says where all of them are written.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet: NAMESPACE/NAME of its Gateway, or NAMESPACE/class:CLASS of Gateways that share their Envoys
    #[arg(long, value_name = "FLEET")]
    fleet: FleetName,

    /// Where the distributors are
    #[arg(long, value_name = "HOST:PORT")]
    xds: String,

    /// What this Envoy is called, which no other of the fleet is
    #[arg(long, value_name = "ID")]
    node_id: String,

    /// The region in which it runs
    #[arg(long)]
    region: Option<String>,

    /// The zone in which it runs
    #[arg(long)]
    zone: Option<String>,

    /// The authorities of the distributors' certificates; without them, it asks in the clear
    #[arg(long, value_name = "FILE", requires = "dir")]
    ca: Option<String>,

    /// The certificate that it shows
    #[arg(long, value_name = "FILE", requires_all = ["ca", "key"])]
    cert: Option<String>,

    /// The key of the certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,

    /// The token that it shows, which may be replaced at any time
    #[arg(long, value_name = "FILE", requires = "ca", conflicts_with = "cert")]
    token: Option<String>,

    /// The folder into which all files are written, instead of printing one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// How to write it
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml", conflicts_with = "dir")]
    output: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some((host, port)) =
        args.xds.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)))
    else {
        bail!("--xds: {:?} is not HOST:PORT", args.xds);
    };
    let dir = match &args.dir {
        None => None,
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let whole = fs::canonicalize(dir)?;
            Some(whole.to_str().context("--dir: its name is not UTF-8")?.to_owned())
        }
    };
    let tls = args
        .ca
        .as_deref()
        .map(|ca_file| Tls { ca_file, certificate: args.cert.as_deref().zip(args.key.as_deref()) });
    let node =
        Node { id: args.node_id.clone(), region: args.region.clone(), zone: args.zone.clone() };
    let bootstrap = Bootstrap {
        fleet: &args.fleet,
        node: Some(node),
        distributors: Distributors {
            host: host.trim_matches(['[', ']']),
            port,
            tls,
            token: args.token.as_deref(),
            folder: dir.as_deref().unwrap_or_default(),
        },
        own: OwnPorts::All,
        memory: None,
    };
    let files = bootstrap.files();
    match dir {
        None => {
            if let Some(bootstrap) = files.get(BOOTSTRAP_FILE) {
                output::result(&args.output.render(bootstrap)?)?;
            }
        }
        Some(dir) => {
            for (name, content) in &files {
                let path = format!("{dir}/{name}");
                fs::write(&path, format!("{content:#}\n"))
                    .with_context(|| format!("cannot write {path}"))?;
                output::line(&path)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

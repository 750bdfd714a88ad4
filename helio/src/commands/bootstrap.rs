use crate::output::{self, Format};
use anyhow::{Context, bail};
use heliograph_gateway::infra::bootstrap::{
    BOOTSTRAP_FILE, Bootstrap, Distributors, Node, OwnPorts, Tls,
};
use heliograph_snapshot::FleetName;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the bootstrap configuration of an Envoy outside Kubernetes
///
/// Give paths as the Envoy sees them. With certificates or a token, there are additional files, so that Envoy reads them again
/// when they are replaced: --dir is the directory for all files.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Fleet: NAMESPACE/NAME of its Gateway, or NAMESPACE/class:CLASS of Gateways that share their Envoys
    #[arg(long, value_name = "FLEET")]
    fleet: FleetName,

    /// Address of the distributors
    #[arg(long, value_name = "HOST:PORT")]
    xds: String,

    /// Node id of this Envoy, unique in its fleet
    #[arg(long, value_name = "ID")]
    node_id: String,

    /// Region in which the Envoy runs
    #[arg(long)]
    region: Option<String>,

    /// Zone in which the Envoy runs
    #[arg(long)]
    zone: Option<String>,

    /// File with the CA bundle that verifies the distributors' certificates; without it, the Envoy connects in plain text
    #[arg(long, value_name = "FILE", requires = "dir")]
    ca: Option<String>,

    /// File with the Envoy's client certificate
    #[arg(long, value_name = "FILE", requires_all = ["ca", "key"])]
    cert: Option<String>,

    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,

    /// File with the Envoy's token, which you can replace at any time
    #[arg(long, value_name = "FILE", requires = "ca", conflicts_with = "cert")]
    token: Option<String>,

    /// Directory to write all files to, instead of printing one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Output format
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

//! A support bundle: one file that helps others find a fault without access to the installation.

mod bundle;
mod gather;
mod pods;
mod prose;
mod scrub;

use crate::output;
use crate::sources::{SourcesArgs, report_silent};
use gather::gather;
use heliograph_store::StoreArgs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Collect diagnostic data in one file, without secrets
///
/// The file has the status, the proxies, the names and versions of each fleet's resources (not their content), metrics, log
/// levels and versions of every replica; in a cluster also pods, including ended ones, and their logs; with --store also the
/// history of fleets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// File to write, a .tar.gz [default: heliograph-TIME.tar.gz in the current directory]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Number of lines of each pod's log; 0 for none
    #[arg(long, value_name = "NUMBER", default_value_t = 2000)]
    log_lines: u32,

    #[command(flatten)]
    sources: SourcesArgs,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now();
    let folder = format!("heliograph-{}", output::shown_time(now).replace([':', '-'], ""));
    let file = args.file.clone().unwrap_or_else(|| format!("{folder}.tar.gz").into());
    tokio::runtime::Runtime::new()?.block_on(async {
        let sources = args.sources.open_with_ended().await?;
        let (bundle, silent) = gather(&sources, args, now).await?;
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        bundle.write(&folder, seconds, &file)?;
        report_silent(&silent);
        output::line(&file.display().to_string())?;
        Ok(ExitCode::SUCCESS)
    })
}

//! The snapshots of a fleet to which an operator can roll back.

mod diff;
mod list;
mod pinning;
mod show;

pub(super) use list::histories;

use crate::output::{shown_time, with_progress};
use anyhow::{anyhow, bail};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{OperatorStore, Record, StoreArgs};
use prometheus::Registry;
use std::process::ExitCode;
use std::sync::Arc;

/// List the history of a fleet, compare snapshots, and roll back
#[derive(Clone, Debug, clap::Args)]
// The flags of the store may stand behind the command too, where people put them.
#[command(mut_args(|arg| arg.global(true)))]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Show(show::Args),
    Diff(diff::Args),
    Rollback(pinning::RollbackArgs),
    Release(pinning::ReleaseArgs),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let store = args.store.open_for_operator(&Registry::new())?;
        let reading = || "reading from the store".to_owned();
        match &args.command {
            Command::List(args) => with_progress(list::run(&store, args), reading).await,
            Command::Show(args) => with_progress(show::run(&store, args), reading).await,
            Command::Diff(args) => with_progress(diff::run(&store, args), reading).await,
            Command::Rollback(args) => pinning::rollback(&store, args).await,
            Command::Release(args) => pinning::release(&store, args).await,
        }
    })
}

/// The history, newest first. A fleet without one is none.
async fn history(store: &OperatorStore, fleet: &FleetName) -> anyhow::Result<Vec<Arc<Record>>> {
    let history = store.history.history(fleet.clone()).await?;
    if history.is_empty() {
        bail!(
            "{fleet} has no snapshots in the store: `helio snapshot list` shows which fleets have"
        );
    }
    Ok(history)
}

/// The record that a person means: by its head, or by its sequence alone if that is clear.
fn find(history: &[Arc<Record>], wanted: &str) -> anyhow::Result<Arc<Record>> {
    let of_sequence = |record: &&Arc<Record>| Ok(record.head.sequence) == wanted.parse();
    let of_head = |record: &&Arc<Record>| Ok(record.head) == wanted.parse::<Head>();
    let found: Vec<_> =
        history.iter().filter(|record| of_head(record) || of_sequence(record)).collect();
    match *found {
        [record] => Ok(record.clone()),
        [] => Err(anyhow!("{wanted} is not in the history: `helio snapshot list` shows what is")),
        _ => Err(anyhow!("{wanted} is in the history more than once: give the whole head")),
    }
}

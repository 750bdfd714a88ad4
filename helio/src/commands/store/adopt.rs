use crate::output;
use heliograph_store::StoreArgs;
use prometheus::Registry;
use std::process::ExitCode;

/// Raise the epoch, so that a translator can publish although its fences are lower than before: after an etcd restore or a move
/// to another cluster
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(adopt(args))
}

async fn adopt(args: &Args) -> anyhow::Result<ExitCode> {
    let history = args.store.open_for_operator(&Registry::new())?.history;
    let from = history.term().await?;
    let fleets = history.inspect(Vec::new()).await?.heads.len();
    output::message(&format!(
        "The store is in epoch {}, and its newest translator has the fence {}. This begins a new epoch:\n\
         - a translator that runs now is stopped by its next write, and has to be started again;\n\
         - after that any translator may write, however low its fence;\n\
         - the {fleets} fleets in the store stay as they are, and no proxy is sent anything.\n\
         Do this only when no other translator is meant to write here.",
        from.epoch, from.fence
    ));
    if !args.yes && !output::confirm("Begin a new epoch?")? {
        output::message("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    let to = history.adopt(from).await?;
    output::line(&format!("the epoch is {} now", to.epoch))?;
    Ok(ExitCode::SUCCESS)
}

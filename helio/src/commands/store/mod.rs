//! Commands for the store itself.

mod adopt;
pub(crate) mod keys;

use std::process::ExitCode;

/// Maintain the store: its keys, and its epoch after a restore
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    Adopt(Box<adopt::Args>),
    Keys(keys::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Adopt(args) => adopt::run(args),
        Command::Keys(args) => keys::run(args),
    }
}

//! The commands, one file each.

mod snapshot;
mod standalone;
mod store;
mod translate;

use std::process::ExitCode;

/// In the order in which `--help` lists them.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Command {
    Standalone(standalone::Args),
    Translate(translate::Args),
    Snapshot(snapshot::Args),
    Store(store::Args),
}

impl Command {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Standalone(args) => standalone::run(args),
            Self::Translate(args) => translate::run(args),
            Self::Snapshot(args) => snapshot::run(args),
            Self::Store(args) => store::run(args),
        }
    }
}

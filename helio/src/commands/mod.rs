//! The commands, one file each.

mod bootstrap;
mod secrets;
mod snapshot;
mod standalone;
mod store;
mod translate;

use heliograph_shared::telemetry::Logging;
use std::process::ExitCode;

/// In the order in which `--help` lists them.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Command {
    Standalone(standalone::Args),
    Translate(translate::Args),
    Bootstrap(bootstrap::Args),
    Snapshot(snapshot::Args),
    Store(store::Args),
    Secrets(secrets::Args),
}

impl Command {
    /// `logging` is for commands that run on.
    pub(crate) fn run(&self, logging: Logging) -> anyhow::Result<ExitCode> {
        match self {
            Self::Standalone(args) => standalone::run(args, logging),
            Self::Translate(args) => translate::run(args),
            Self::Bootstrap(args) => bootstrap::run(args),
            Self::Snapshot(args) => snapshot::run(args),
            Self::Store(args) => store::run(args),
            Self::Secrets(args) => secrets::run(args),
        }
    }
}

//! The commands, one file each.

mod standalone;
mod translate;

use std::process::ExitCode;

/// In the order in which `--help` lists them.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Command {
    Standalone(standalone::Args),
    Translate(translate::Args),
}

impl Command {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Standalone(args) => standalone::run(args),
            Self::Translate(args) => translate::run(args),
        }
    }
}

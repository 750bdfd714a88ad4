use crate::commands::Command;
use clap::{CommandFactory, Parser};
use heliograph_shared::settings::{self, SettingsArgs};
use heliograph_shared::telemetry::{self, LogArgs};
use std::process::ExitCode;

/// Gateway API for fleets of Envoys
#[derive(Clone, Debug, Parser)]
#[command(name = "helio", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    settings: SettingsArgs,

    #[command(flatten)]
    logs: LogArgs,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let cli: Cli = settings::parse_or_exit();
    let logging = telemetry::init(&cli.logs)?;
    cli.command.run(logging)
}

/// Everything that can be called.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
#[path = "../../shared/tests/reference/mod.rs"]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_program_is_up_to_date() {
        reference::check(command());
    }

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }
}

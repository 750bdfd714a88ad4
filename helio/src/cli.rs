use crate::commands::Command;
use clap::Parser;
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }
}

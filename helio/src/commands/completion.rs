use crate::{cli, output};
use clap_complete::{Shell, generate};
use std::process::ExitCode;

/// Print the shell's completion script for commands and flags
///
/// For bash: source <(helio completion bash)
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut cli::command(), "helio", &mut script);
    output::result(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

//! The command-line program: every command is a file in `commands`.

mod cli;
mod commands;
mod envoys;
#[cfg(test)]
mod golden;
mod output;
mod sources;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|error| {
        // Each cause in turn, in one line; the next one often says what to do.
        output::message(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

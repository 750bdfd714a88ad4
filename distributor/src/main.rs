//! Serves the snapshots of a translator to Envoys.
#![allow(clippy::print_stderr)]

use heliograph_distributor::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    match program::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Each cause in turn, in one line; the next one often says what to do.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! Translates Gateway API objects, and publishes snapshots for distributors.

use heliograph_translator::program;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match program::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Each cause in turn, in one line; the next one often says what to do. stderr may be closed.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

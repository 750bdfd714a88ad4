//! The program `loadtest`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heliograph_loadtest::commands::main()
}

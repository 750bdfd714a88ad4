//! The commands of `loadtest`.

mod bench;
mod compare;
mod play;
mod show;

use crate::{tied, worker};
use clap::{Parser, Subcommand};
use heliograph_shared::output;
use std::process::ExitCode;

/// Load-test any xDS server with simulated fleets of Envoys
#[derive(Debug, Parser)]
#[command(name = "loadtest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the built-in scenarios
    List,
    /// Print a built-in scenario, as a start for your own file
    Show(show::ShowArgs),
    /// Run a scenario against servers, and report the results
    Run(Box<play::RunArgs>),
    /// Measure Heliograph, go-control-plane and Envoy Gateway in one run, and print tables of ratios
    Bench(bench::BenchArgs),
    /// Compare two reports; the exit code is 1 if a figure got worse by more than its bound
    Compare(compare::CompareArgs),
    /// Print a report, or write it as a page
    Report(compare::ReportArgs),
    #[command(hide = true)]
    Worker,
    #[command(hide = true)]
    Tied(tied::TiedArgs),
}

/// How a command ended, if nothing stood in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    /// Something was measured that should not be.
    Bad,
}

/// Usage that clap cannot see is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

const BAD: u8 = 1;
const USAGE: u8 = 2;

pub fn main() -> ExitCode {
    // Before any TLS: with none chosen, or two, rustls panics.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse().command) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::from(BAD),
        Err(error) => {
            complain(&format!("{error:#}"));
            let usage = error.downcast_ref::<Usage>().is_some();
            ExitCode::from(if usage { USAGE } else { BAD })
        }
    }
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::List => show::list(),
        Command::Show(args) => args.run(),
        Command::Run(args) => on_this_thread(args.run()),
        Command::Bench(args) => on_this_thread(args.run()),
        Command::Compare(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Worker => on_this_thread(worker::run()).map(|()| Outcome::Good),
        Command::Tied(args) => args.run().map(|()| Outcome::Good),
    }
}

/// On one thread: clients of a worker share most of what they have, and programs that are tied to this one are tied to
/// the thread that started them.
fn on_this_thread<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(future);
    // A read of stdin that is under way would be waited for.
    runtime.shutdown_background();
    outcome
}

/// For people, beside what the command was asked for.
fn complain(text: &str) {
    output::message(&format!("loadtest: {text}"));
}

#[cfg(test)]
#[path = "../../../shared/tests/reference/mod.rs"]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_page_of_the_program_is_up_to_date() {
        reference::check(Cli::command());
    }

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }
}

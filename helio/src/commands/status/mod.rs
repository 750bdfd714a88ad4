//! The programs that run, and their problems.

mod problems;
mod store;
mod summary;

pub(super) use store::ask as ask_store;
pub(super) use summary::{Reply, Status};

use crate::output::{self, Format};
use crate::sources::{Silent, SourcesArgs, report_silent};
use heliograph_store::StoreArgs;
use std::process::ExitCode;

/// Show translators, distributors and fleets, and their problems
///
/// With --store also what Redis contains: the term, pinned fleets, and distributors that were not queried. The exit code is 1 if
/// there is a problem, or if a program did not respond.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Output format [default: tables]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    sources: SourcesArgs,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let sources = args.sources.open().await?;
        let (answers, store) = tokio::join!(
            sources.ask(async |_, port| Reply::from(port).await),
            store::ask(&args.store, args.sources.timeout()),
        );
        let mut answers = answers?;
        let store = store.unwrap_or_else(|error| {
            answers.silent.push(Silent::new(Silent::STORE, &error));
            None
        });
        let status = Status::of(answers, store);
        output::result(&match args.output {
            Some(format) => format.render(&status)?,
            None => status.tables(output::colour()),
        })?;
        report_silent(&status.silent);
        Ok(if status.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

//! The commands, one file each.

mod bootstrap;
mod check;
mod collect;
mod completion;
mod config;
mod proxies;
mod secrets;
mod snapshot;
mod standalone;
mod status;
mod store;
mod translate;

use heliograph_shared::telemetry::Logging;
use heliograph_snapshot::{Internal, ResourceType};
use std::process::ExitCode;

/// In the order in which `--help` lists them.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Command {
    Status(Box<status::Args>),
    Proxies(Box<proxies::Args>),
    Config(Box<config::Args>),
    Snapshot(snapshot::Args),
    Store(store::Args),
    Secrets(secrets::Args),
    Collect(Box<collect::Args>),
    Check(check::Args),
    Translate(translate::Args),
    Bootstrap(bootstrap::Args),
    Standalone(Box<standalone::Args>),
    Completion(completion::Args),
}

impl Command {
    /// `logging` is for commands that run on.
    pub(crate) fn run(&self, logging: Logging) -> anyhow::Result<ExitCode> {
        match self {
            Self::Status(args) => status::run(args),
            Self::Proxies(args) => proxies::run(args),
            Self::Config(args) => config::run(args),
            Self::Snapshot(args) => snapshot::run(args),
            Self::Store(args) => store::run(args),
            Self::Secrets(args) => secrets::run(args),
            Self::Collect(args) => collect::run(args),
            Self::Check(args) => check::run(args),
            Self::Translate(args) => translate::run(args),
            Self::Bootstrap(args) => bootstrap::run(args),
            Self::Standalone(args) => standalone::run(args, logging),
            Self::Completion(args) => completion::run(args),
        }
    }
}

/// What `--type` is for where proxies are sent what is shown.
fn served_types() -> String {
    format!(
        "Show only resources of this type: {}",
        listed(&ResourceType::ALL.map(ResourceType::as_str))
    )
}

/// The same of whole snapshots.
fn all_types() -> String {
    let internal = listed(&Internal::ALL.map(Internal::as_str));
    format!("{}; or {internal}, which are not sent to proxies", served_types())
}

/// `a, b or c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

use super::{find, history};
use crate::output::{self, Format};
use heliograph_snapshot::{Difference, FleetName, Section, Snapshot};
use heliograph_store::{OperatorStore, Record};
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

/// Print which resources differ between two snapshots of a fleet
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// Head, as `helio snapshot list` prints it, or its last number
    before: String,

    /// Head to compare with, in the same form
    after: String,

    /// Output format [default: one line each]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// A resource that is not the same.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    r#type: &'static str,
    name: Arc<str>,
    /// The version in the one, and in the other; none where it does not have it.
    before: Option<String>,
    after: Option<String>,
}

pub(super) async fn run(store: &OperatorStore, args: &Args) -> anyhow::Result<ExitCode> {
    let history = history(store, &args.fleet).await?;
    let before = find(&history, &args.before)?;
    let after = find(&history, &args.after)?;
    let differences = differences(store, before, after, |_| true).await?;
    output::result(&match args.output {
        Some(format) => format.render(&differences)?,
        None => differences.iter().map(|line| format!("{line}\n")).collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Each resource of these sections that is not the same, by section and name.
pub(super) async fn differences(
    store: &OperatorStore,
    before: Arc<Record>,
    after: Arc<Record>,
    compared: fn(Section) -> bool,
) -> anyhow::Result<Vec<Changed>> {
    let before = store.reader.load(before, None).await?.snapshot;
    // What both have is read once.
    let after = store.reader.load(after, Some(before.clone())).await?.snapshot;
    let sections = Section::all().filter(|section| compared(*section));
    Ok(sections.flat_map(|section| changes(section, &before, &after)).collect())
}

fn changes(section: Section, before: &Snapshot, after: &Snapshot) -> Vec<Changed> {
    let differences = after.section(section).differences(before.section(section));
    let change = |difference: &Difference<'_>| {
        let Difference { before, after, .. } = difference;
        let name = after.or(*before)?.name.clone();
        let [before, after] = [before, after].map(|it| it.map(|it| it.version.to_string()));
        Some(Changed { r#type: section.as_str(), name, before, after })
    };
    let mut changes: Vec<_> = differences.iter().filter_map(change).collect();
    changes.sort_by(|one, other| one.name.cmp(&other.name));
    changes
}

/// `+ cluster NAME VERSION`.
impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { r#type, name, before, after } = self;
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "~ {type} {name} {before} -> {after}"),
            (None, Some(after)) => write!(f, "+ {type} {name} {after}"),
            (_, None) => write!(f, "- {type} {name}"),
        }
    }
}

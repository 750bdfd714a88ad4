use super::{find, history};
use crate::output;
use heliograph_snapshot::{Difference, FleetName, Section, Snapshot};
use heliograph_store::redis::RedisStore;
use heliograph_store::{Record, Store};
use std::process::ExitCode;
use std::sync::Arc;

/// Print which resources differ between two snapshots of a fleet
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// A head as `helio snapshot list` prints it, or its last number
    before: String,

    /// The one to compare it with, in the same way
    after: String,
}

pub(super) async fn run(store: &RedisStore, args: &Args) -> anyhow::Result<ExitCode> {
    let history = history(store, &args.fleet).await?;
    let before = find(&history, &args.before)?;
    let after = find(&history, &args.after)?;
    let differences = differences(store, before, after, |_| true).await?;
    output::result(&differences.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each resource of these sections that is not the same: `+ cluster NAME`.
pub(super) async fn differences(
    store: &RedisStore,
    before: Arc<Record>,
    after: Arc<Record>,
    compared: fn(Section) -> bool,
) -> anyhow::Result<Vec<String>> {
    let before = store.load(before, None).await?.snapshot;
    // What both have is read once.
    let after = store.load(after, Some(before.clone())).await?.snapshot;
    let sections = Section::all().filter(|section| compared(*section));
    Ok(sections.flat_map(|section| lines(section, &before, &after)).collect())
}

fn lines(section: Section, before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut differences = after.section(section).differences(before.section(section));
    differences.sort_by(|one, other| name(one).cmp(name(other)));
    let line = |difference: &Difference<'_>| match (difference.before, difference.after) {
        (Some(before), Some(after)) => {
            format!("~ {section} {} {} -> {}", after.name, before.version, after.version)
        }
        (None, Some(after)) => format!("+ {section} {} {}", after.name, after.version),
        _ => format!("- {section} {}", name(difference)),
    };
    differences.iter().map(line).collect()
}

fn name<'a>(difference: &Difference<'a>) -> &'a str {
    difference.after.or(difference.before).map_or("", |resource| &resource.name)
}

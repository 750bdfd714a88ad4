use super::{history, shown};
use crate::output::{self, Format};
use heliograph_shared::table::columns;
use heliograph_snapshot::FleetName;
use heliograph_store::redis::RedisStore;
use heliograph_store::{Record, Store};
use serde::Serialize;
use std::process::ExitCode;

/// List the snapshots that a fleet can go back to, newest first
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// How to print them: as a table, if not said
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct Row {
    head: String,
    time: String,
    cause: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing {
    fleet: FleetName,
    /// What is served: newer than the first of the history if only endpoints changed since.
    newest: Option<String>,
    /// Where an operator holds the fleet.
    pinned_to: Option<String>,
    history: Vec<Row>,
}

pub(super) async fn run(store: &RedisStore, args: &Args) -> anyhow::Result<ExitCode> {
    let fleet = &args.fleet;
    let history = history(store, fleet).await?;
    let found = store.inspect(vec![fleet.clone()]).await?;
    let listing = Listing {
        fleet: fleet.clone(),
        newest: found.heads.get(fleet).map(ToString::to_string),
        pinned_to: found.pins.get(fleet).map(|pin| pin.record.head.to_string()),
        history: history.iter().map(|record| Row::of(record)).collect(),
    };
    output::result(&match args.output {
        Some(format) => format.render(&listing)?,
        None => listing.table(),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Row {
    fn of(record: &Record) -> Self {
        Self {
            head: record.head.to_string(),
            time: shown(record.time),
            cause: record.cause.to_string(),
            pinned: record.pinned.map(|head| head.to_string()),
        }
    }
}

impl Listing {
    fn table(&self) -> String {
        let mut rows = vec![["HEAD", "TIME", "CAUSE"].map(str::to_owned)];
        rows.extend(
            self.history.iter().map(|row| [&row.head, &row.time, &row.cause].map(Clone::clone)),
        );
        let mut text = columns(&rows);
        if let Some(newest) = &self.newest {
            text += &format!("newest: {newest}\n");
        }
        if let Some(head) = &self.pinned_to {
            text += &format!(
                "pinned to {head}: `helio snapshot release {}` lets it go on\n",
                self.fleet
            );
        }
        text
    }
}

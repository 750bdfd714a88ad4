use super::{history, shown_time};
use crate::output::{self, Cell, Format, TextTable, cell};
use anyhow::anyhow;
use heliograph_snapshot::FleetName;
use heliograph_store::{Inspection, OperatorStore, Pinned, Record, StoreArgs};
use prometheus::Registry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// List the snapshots in a fleet's history, newest first; without a fleet, list the fleets
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: Option<FleetName>,

    /// Output format [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// A snapshot that can be gone back to.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotRow {
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
    #[serde(flatten)]
    pinned: Option<Pin>,
    history: Vec<SnapshotRow>,
}

#[derive(Debug, Serialize)]
struct Fleets {
    fleets: Vec<FleetRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetRow {
    fleet: FleetName,
    newest: String,
    time: String,
    cause: String,
    retired: bool,
    #[serde(flatten)]
    pinned: Option<Pin>,
}

/// Where an operator holds a fleet, since when, who and why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pin {
    pinned_to: String,
    pinned_since: String,
    pinned_by: String,
    pin_reason: String,
}

pub(super) async fn run(store: &OperatorStore, args: &Args) -> anyhow::Result<ExitCode> {
    let text = match &args.fleet {
        Some(fleet) => {
            let listing = Listing::of(store, fleet).await?;
            match args.output {
                Some(format) => format.render(&listing)?,
                None => listing.table(output::colour()),
            }
        }
        None => {
            let fleets = Fleets::of(store).await?;
            match args.output {
                Some(format) => format.render(&fleets)?,
                None => fleets.table().render(output::colour()),
            }
        }
    };
    output::result(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The histories of these fleets.
pub(crate) async fn histories(
    args: &StoreArgs,
    fleets: impl Iterator<Item = &str>,
    limit: Duration,
) -> anyhow::Result<BTreeMap<String, Vec<SnapshotRow>>> {
    let store = args.open_for_operator(&Registry::new())?;
    let read = async {
        let mut histories = BTreeMap::new();
        for name in fleets {
            let history = store.history.history(name.parse()?).await?;
            histories
                .insert(name.to_owned(), history.iter().map(|it| SnapshotRow::of(it)).collect());
        }
        anyhow::Ok(histories)
    };
    timeout(limit, read).await.unwrap_or_else(|_| Err(anyhow!("no answer within {limit:?}")))
}

impl SnapshotRow {
    fn of(record: &Record) -> Self {
        Self {
            head: record.head.to_string(),
            time: shown_time(record.time),
            cause: record.cause.to_string(),
            pinned: record.pin.pinned.as_ref().map(|pinned| pinned.head.to_string()),
        }
    }
}

impl Listing {
    async fn of(store: &OperatorStore, fleet: &FleetName) -> anyhow::Result<Self> {
        let history = history(store, fleet).await?;
        let found = store.history.inspect(vec![fleet.clone()]).await?;
        let records = store.reader.newest(vec![fleet.clone()]).await?;
        let record = records.get(fleet).map(|record| &**record);
        Ok(Self {
            fleet: fleet.clone(),
            newest: found.heads.get(fleet).map(ToString::to_string),
            pinned: Pinned::of(record, found.orders.get(fleet)).map(Pin::of),
            history: history.iter().map(|record| SnapshotRow::of(record)).collect(),
        })
    }

    fn table(&self, colour: bool) -> String {
        let mut table = TextTable::new(["HEAD", "TIME", "CAUSE"]);
        for SnapshotRow { head, time, cause, pinned: _ } in &self.history {
            table.push([head.into(), time.into(), cause.into()]);
        }
        let mut text = table.render(colour);
        if let Some(newest) = &self.newest {
            text += &format!("newest: {newest}\n");
        }
        if let Some(pin) = &self.pinned {
            text += &format!("{pin}; `helio snapshot release {}` ends the pin\n", self.fleet);
        }
        text
    }
}

impl Fleets {
    async fn of(store: &OperatorStore) -> anyhow::Result<Self> {
        let found = store.history.inspect(Vec::new()).await?;
        let records = store.reader.newest(found.heads.keys().cloned().collect()).await?;
        Ok(Self { fleets: records.values().map(|record| FleetRow::of(record, &found)).collect() })
    }

    fn table(&self) -> TextTable<5> {
        let mut table = TextTable::new(["FLEET", "NEWEST", "TIME", "PINNED TO", "CAUSE"]);
        for it in &self.fleets {
            let newest = if it.retired { Cell::from("retired") } else { Cell::from(&it.newest) };
            let pinned = cell(it.pinned.as_ref().map(|pin| &pin.pinned_to));
            table.push([
                Cell::from(&it.fleet),
                newest,
                Cell::from(&it.time),
                if it.pinned.is_some() { pinned.doubtful() } else { pinned },
                Cell::from(&it.cause),
            ]);
        }
        table
    }
}

impl FleetRow {
    fn of(record: &Arc<Record>, found: &Inspection) -> Self {
        Self {
            fleet: record.fleet.clone(),
            newest: record.head.to_string(),
            time: shown_time(record.time),
            cause: record.cause.to_string(),
            retired: !record.is_live(),
            pinned: Pinned::of(Some(record), found.orders.get(&record.fleet)).map(Pin::of),
        }
    }
}

impl Pin {
    fn of(pinned: Pinned) -> Self {
        let Pinned { head, since, by, reason } = pinned;
        Self {
            pinned_to: head.to_string(),
            pinned_since: shown_time(since),
            pinned_by: by.to_string(),
            pin_reason: reason.to_string(),
        }
    }
}

/// `pinned to 0.1.2 by ann since …: checkout is broken`.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pinned_to, pinned_since, pinned_by, pin_reason } = self;
        let by = if pinned_by.is_empty() { "an operator" } else { pinned_by };
        let reason = if pin_reason.is_empty() { "no reason given" } else { pin_reason };
        write!(f, "pinned to {pinned_to} by {by} since {pinned_since}: {reason}")
    }
}

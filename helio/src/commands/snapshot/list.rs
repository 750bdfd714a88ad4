use super::{history, shown_time};
use crate::output::{self, Cell, Format, Table, cell};
use anyhow::anyhow;
use heliograph_snapshot::FleetName;
use heliograph_store::redis::RedisStore;
use heliograph_store::{Inspection, Record, Store, StoreArgs};
use prometheus::Registry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// List the snapshots that a fleet can go back to, newest first; without a fleet, list the fleets
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: Option<FleetName>,

    /// How to print them: as a table, if not said
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// A snapshot that can be gone back to.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
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
    /// Where an operator holds it, since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin_reason: Option<String>,
}

pub(super) async fn run(store: &RedisStore, args: &Args) -> anyhow::Result<ExitCode> {
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
) -> anyhow::Result<BTreeMap<String, Vec<Row>>> {
    let store = args.open(&Registry::new())?;
    let read = async {
        let mut histories = BTreeMap::new();
        for name in fleets {
            let history = store.history(name.parse()?).await?;
            histories.insert(name.to_owned(), history.iter().map(|it| Row::of(it)).collect());
        }
        anyhow::Ok(histories)
    };
    timeout(limit, read).await.unwrap_or_else(|_| Err(anyhow!("no answer within {limit:?}")))
}

impl Row {
    fn of(record: &Record) -> Self {
        Self {
            head: record.head.to_string(),
            time: shown_time(record.time),
            cause: record.cause.to_string(),
            pinned: record.pinned.map(|head| head.to_string()),
        }
    }
}

impl Listing {
    async fn of(store: &RedisStore, fleet: &FleetName) -> anyhow::Result<Self> {
        let history = history(store, fleet).await?;
        let found = store.inspect(vec![fleet.clone()]).await?;
        Ok(Self {
            fleet: fleet.clone(),
            newest: found.heads.get(fleet).map(ToString::to_string),
            pinned_to: found.pins.get(fleet).map(|pin| pin.record.head.to_string()),
            history: history.iter().map(|record| Row::of(record)).collect(),
        })
    }

    fn table(&self, colour: bool) -> String {
        let mut table = Table::new(["HEAD", "TIME", "CAUSE"]);
        for Row { head, time, cause, pinned: _ } in &self.history {
            table.push([head.into(), time.into(), cause.into()]);
        }
        let mut text = table.render(colour);
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

impl Fleets {
    async fn of(store: &RedisStore) -> anyhow::Result<Self> {
        let found = store.inspect(Vec::new()).await?;
        let records = store.newest(found.heads.keys().cloned().collect()).await?;
        Ok(Self { fleets: records.values().map(|record| FleetRow::of(record, &found)).collect() })
    }

    fn table(&self) -> Table<5> {
        let mut table = Table::new(["FLEET", "NEWEST", "TIME", "PINNED TO", "CAUSE"]);
        for it in &self.fleets {
            let newest = if it.retired { Cell::from("retired") } else { Cell::from(&it.newest) };
            let pinned = cell(it.pinned_to.as_ref());
            table.push([
                Cell::from(&it.fleet),
                newest,
                Cell::from(&it.time),
                if it.pinned_to.is_some() { pinned.doubtful() } else { pinned },
                Cell::from(&it.cause),
            ]);
        }
        table
    }
}

impl FleetRow {
    fn of(record: &Arc<Record>, found: &Inspection) -> Self {
        let pin = found.pins.get(&record.fleet);
        Self {
            fleet: record.fleet.clone(),
            newest: record.head.to_string(),
            time: shown_time(record.time),
            cause: record.cause.to_string(),
            retired: !record.is_live(),
            pinned_to: pin.map(|pin| pin.record.head.to_string()),
            pinned_since: pin.map(|pin| shown_time(pin.time)),
            pin_reason: pin.map(|pin| pin.cause.to_string()),
        }
    }
}

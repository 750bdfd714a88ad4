use super::diff::differences;
use super::{find, history};
use crate::output::{self, shown_time, with_progress};
use anyhow::bail;
use heliograph_snapshot::{FleetName, Head, Section};
use heliograph_store::redis::RedisStore;
use heliograph_store::{Notice, Pin, Store};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Hold a fleet at an earlier snapshot, endpoints excepted, until it is released
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// A head as `helio snapshot list` prints it, or its last number
    head: String,

    /// Why, for those who find it pinned
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Let a fleet that was rolled back go on with what its objects say
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,
}

/// A translator obeys within seconds.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn rollback(store: &RedisStore, args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    let fleet = &args.fleet;
    let history = history(store, fleet).await?;
    let record = find(&history, &args.head)?;
    let head = record.head;
    output::note(&format!(
        "{fleet} goes back to {head} of {}, {}. Its endpoints stay as they are now, and what its objects say from now on \
         waits until `helio snapshot release {fleet}`.",
        shown_time(record.time),
        record.cause
    ));
    if let Some(newest) = history.first() {
        for line in differences(store, newest.clone(), record.clone(), Section::lasts).await? {
            output::note(&format!("  {line}"));
        }
    }
    if !args.yes && !output::confirm("Go back?")? {
        output::note("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    let pin = Pin { record, time: SystemTime::now(), cause: args.reason.as_str().into() };
    store.pin(fleet.clone(), pin).await?;
    obeyed(store, fleet, Some(head)).await
}

pub(super) async fn release(store: &RedisStore, args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    if !store.release(args.fleet.clone()).await? {
        bail!("{} is not pinned", args.fleet);
    }
    obeyed(store, &args.fleet, None).await
}

/// Waits until the translator has published what was asked for.
async fn obeyed(
    store: &RedisStore,
    fleet: &FleetName,
    pinned: Option<Head>,
) -> anyhow::Result<ExitCode> {
    let mut watch = store.watch();
    let published = timeout(PATIENCE, async {
        loop {
            match watch.next().await {
                Notice::Fleet(record) if record.fleet == *fleet && record.pinned == pinned => {
                    return record;
                }
                _ => {}
            }
        }
    });
    match with_progress(published, || "waiting for the translator".to_owned()).await {
        Ok(record) => {
            let what = pinned.map_or("released".to_owned(), |head| format!("pinned to {head}"));
            output::line(&format!("{fleet} is {what}, published as {}", record.head))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(_) => bail!(
            "the wish is in the store, and no translator has obeyed within {} s: is one running?",
            PATIENCE.as_secs()
        ),
    }
}

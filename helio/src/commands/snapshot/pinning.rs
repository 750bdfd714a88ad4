use super::diff::differences;
use super::{find, history};
use crate::output::{self, shown_time, with_progress};
use anyhow::bail;
use heliograph_snapshot::{FleetName, Section};
use heliograph_store::{Notice, OperatorStore, PinOrder, Pinned, Record};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Pin a fleet to an earlier snapshot until it is released; endpoints stay current
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// Head, as `helio snapshot list` prints it, or its last number
    head: String,

    /// Reason, which status and conditions show
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,

    #[command(flatten)]
    operator: Operator,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// End a rollback: publish what the fleet's objects specify now
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    #[command(flatten)]
    operator: Operator,
}

#[derive(Clone, Debug, clap::Args)]
struct Operator {
    /// Name of the operator, which status and conditions show [default: $USER]
    #[arg(long, value_name = "NAME", env = "HELIO_OPERATOR")]
    by: Option<String>,
}

/// A translator obeys within seconds.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn rollback(
    store: &OperatorStore,
    args: &RollbackArgs,
) -> anyhow::Result<ExitCode> {
    let fleet = &args.fleet;
    let history = history(store, fleet).await?;
    let record = find(&history, &args.head)?;
    let head = record.head;
    output::message(&format!(
        "{fleet} goes back to {head} of {}, {}. Its endpoints stay as they are now, and what its objects say from now on \
         waits until `helio snapshot release {fleet}`.",
        shown_time(record.time),
        record.cause
    ));
    if let Some(newest) = history.first() {
        for line in differences(store, newest.clone(), record.clone(), Section::lasts).await? {
            output::message(&format!("  {line}"));
        }
    }
    if !args.yes && !output::confirm("Go back?")? {
        output::message("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    let number = give(store, fleet, Some(record), &args.operator, &args.reason).await?;
    obeyed(store, fleet, number, &format!("pinned to {head}")).await
}

pub(super) async fn release(store: &OperatorStore, args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    let fleet = &args.fleet;
    let orders = store.history.inspect(vec![fleet.clone()]).await?.orders;
    let newest = store.reader.newest(vec![fleet.clone()]).await?;
    if Pinned::of(newest.get(fleet).map(|record| &**record), orders.get(fleet)).is_none() {
        bail!("{fleet} is not pinned");
    }
    let number = give(store, fleet, None, &args.operator, "").await?;
    obeyed(store, fleet, number, "released").await
}

/// Writes an order for the translator. Returns its number.
async fn give(
    store: &OperatorStore,
    fleet: &FleetName,
    at: Option<Arc<Record>>,
    operator: &Operator,
    reason: &str,
) -> anyhow::Result<u64> {
    let now = SystemTime::now();
    let number = PinOrder::next_number(&*store.history, &*store.reader, fleet, now).await?;
    let cut = |text: &str| text[..text.floor_char_boundary(PinOrder::TEXT)].into();
    let (by, reason) = (cut(&operator.name()), cut(reason));
    store.history.order(fleet.clone(), PinOrder { number, at, time: now, by, reason }).await?;
    Ok(number)
}

impl Operator {
    fn name(&self) -> String {
        let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        self.by.clone().or_else(|| user().ok()).unwrap_or_default()
    }
}

/// Waits until the translator has published what was asked for.
async fn obeyed(
    store: &OperatorStore,
    fleet: &FleetName,
    number: u64,
    what: &str,
) -> anyhow::Result<ExitCode> {
    let mut watch = store.reader.watch();
    let published = timeout(PUBLISH_TIMEOUT, async {
        loop {
            match watch.next().await {
                Notice::Fleet(record) if record.fleet == *fleet && record.pin.number >= number => {
                    return record;
                }
                _ => {}
            }
        }
    });
    match with_progress(published, || "waiting for the translator".to_owned()).await {
        Ok(record) => {
            output::line(&format!("{fleet} is {what}, published as {}", record.head))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(_) => bail!(
            "the order is in the store, but no translator has executed it within {} s: is one running?",
            PUBLISH_TIMEOUT.as_secs()
        ),
    }
}

//! The program `translator`: this crate over Redis, with an admin port.

use crate::acks::AckReader;
use crate::metrics::{FileMetrics, TranslatorMetrics};
use crate::provider::file::{self, File, Remark};
use crate::report::Report;
use crate::status;
use crate::term::Translator;
use clap::Parser;
use heliograph_shared::admin::{self, AdminArgs, Pages, Readiness};
use heliograph_shared::settings::{self, SettingsArgs};
use heliograph_shared::shutdown;
use heliograph_shared::tasks::Tasks;
use heliograph_shared::telemetry::{self, LogArgs, Logging};
use heliograph_store::{Store, StoreArgs};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How many batches of events may wait for the translator.
pub const WAITING_BATCHES: usize = 16;

/// Translate a directory of Gateway API objects into snapshots for distributors
#[derive(Clone, Debug, Parser)]
#[command(name = "translator", version)]
pub struct Program {
    /// The directory of manifests
    #[arg(long, env = "HELIO_DIR", value_name = "DIR")]
    pub dir: PathBuf,

    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub admin: AdminArgs,

    #[command(flatten)]
    pub settings: SettingsArgs,

    #[command(flatten)]
    pub logs: LogArgs,
}

/// A program that translates, once its tasks are run.
pub struct Started {
    pub tasks: Tasks,
    pub admin: SocketAddr,
}

/// Runs the program until a signal ends it.
pub fn run() -> anyhow::Result<()> {
    let program: Program = settings::parse_or_exit();
    let logging = telemetry::init(&program.logs)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(async {
        let mut signal = std::pin::pin!(shutdown::signal()?);
        let started = tokio::select! {
            () = &mut signal => return Ok(()),
            started = program.start(logging) => started?,
        };
        started.tasks.run(signal).await
    });
    // Otherwise a file that takes long to read would hold up the end.
    runtime.shutdown_background();
    outcome
}

/// Adds what a translator has to show to the admin port.
pub fn add_pages(
    pages: Pages,
    report: watch::Receiver<Report>,
    remarks: watch::Receiver<Arc<[Remark]>>,
) -> Pages {
    pages.page("/status", "the conditions of every object", status::page(report, remarks))
}

impl Program {
    /// The way of the data: files, translator, store. Everything that can be refused is, before anything runs. A Redis
    /// that is away is not: what is to be written to it waits.
    pub async fn start(&self, logging: Logging) -> anyhow::Result<Started> {
        let stop = CancellationToken::new();
        let readiness = Readiness::new();
        let registry = telemetry::registry("translator")?;
        let (dir, metrics) = (self.dir.clone(), FileMetrics::register(&registry)?);
        let file = tokio::task::spawn_blocking(move || File::open(&dir, metrics)).await??;
        let remarks = file.remarks();
        file::refuse_faults(&remarks.borrow())?;
        let store: Arc<dyn Store> = Arc::new(self.store.open(&registry)?);
        let metrics = TranslatorMetrics::register(&registry)?;
        let admin = admin::bind(self.admin.admin_address).await?;

        // Without an election there is no fence: the store finds one above all it has seen.
        let guard = readiness.guard("translation");
        let translator = Translator::new(store.clone(), None, metrics, guard);
        let report = translator.report();
        let acks = AckReader::new(store, &translator);
        let (inputs, outputs) = mpsc::channel(WAITING_BATCHES);
        let admin_address = admin.address();
        tracing::info!(dir = %self.dir.display(), admin = %admin_address, "translating");
        let pages = Pages::new(registry, readiness).logging(logging);
        let pages = acks.add_page(add_pages(pages, report.clone(), remarks), report);
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("admin port", admin.serve(pages, stop.clone().cancelled_owned()));
        tasks.spawn("acknowledgements", acks.run(stop.clone()));
        tasks.spawn("translator", translator.run(outputs, stop.clone()));
        tasks.spawn("files", file.run(inputs, stop));
        Ok(Started { tasks, admin: admin_address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_fit_together() {
        Program::command().debug_assert();
    }
}

use super::translate::Offline;
use crate::envoys::Envoys;
use crate::output::{self, Format};
use heliograph_shared::admin::{self, AdminArgs, Pages, Readiness};
use heliograph_shared::tasks::Tasks;
use heliograph_shared::telemetry::Logging;
use heliograph_shared::{shutdown, telemetry};
use heliograph_store::{DistributorStore, Embedded, TranslatorStore};
use heliograph_translator::program::{WAITING_BATCHES, add_pages};
use heliograph_translator::provider::file::{self, File, RemarkKind};
use heliograph_translator::{
    AckReader, FLEETS_WITH_METRICS, FileMetrics, FleetMetrics, LimitArgs, Remarks, StatusPage,
    Translator, TranslatorMetrics,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Serve a directory of Gateway API objects to Envoys, in one process
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of manifests
    #[arg(long, env = "HELIO_DIR", value_name = "DIR")]
    dir: PathBuf,

    /// Run an Envoy for each Gateway
    #[arg(long, env = "HELIO_ENVOY")]
    envoy: bool,

    /// Path of the Envoy to run [default: envoy on PATH]
    #[arg(long, env = "ENVOY", value_name = "PROGRAM")]
    envoy_binary: Option<PathBuf>,

    /// Print the conditions of every object, and exit
    #[arg(long)]
    status: bool,

    /// Output format of the conditions [default: table]
    #[arg(short, long, value_name = "FORMAT", requires = "status")]
    output: Option<Format>,

    #[command(flatten)]
    xds: heliograph_distributor::DistributorArgs,

    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: &Args, logging: Logging) -> anyhow::Result<ExitCode> {
    if args.status {
        return print_status(args);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(serve(args, logging));
    // Otherwise a file that takes long to read would hold up the end.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &Args, logging: Logging) -> anyhow::Result<()> {
    let mut signal = std::pin::pin!(shutdown::signal()?);
    let tasks = tokio::select! {
        () = &mut signal => return Ok(()),
        tasks = start(args, logging) => tasks?,
    };
    tasks.run(signal).await
}

/// The way of the data: files, translator, store, distributor, Envoys.
async fn start(args: &Args, logging: Logging) -> anyhow::Result<Tasks> {
    let stop = CancellationToken::new();
    let readiness = Readiness::new();
    let registry = telemetry::registry("helio")?;

    // Everything that can be refused is, before anything runs.
    args.xds.check_beside(args.admin.admin_address)?;
    let (dir, metrics) = (args.dir.clone(), FileMetrics::register(&registry)?);
    let file = tokio::task::spawn_blocking(move || File::open(&dir, metrics)).await??;
    file::refuse_faults(file.remarks().borrow().iter())?;
    let remarks = Remarks::Files(file.remarks());
    let store = Arc::new(Embedded::new());
    let metrics = TranslatorMetrics::register(&registry)?;
    let translating = TranslatorStore::new(store.clone());
    let acks = translating.feedback.clone();
    let guard = readiness.token("translation");
    let translator =
        Translator::new(translating, None, metrics, guard).with_limits(args.limits.limits());
    let report = translator.report();
    FleetMetrics::register(&registry, report.clone(), FLEETS_WITH_METRICS)?;
    let acks = AckReader::new(acks, &translator);
    let admin = admin::bind(args.admin.admin_address).await?;
    // Its own Envoys are on this machine, so clients are not authenticated.
    let security = heliograph_distributor::SecurityArgs::default();
    let store = DistributorStore::new(store);
    let distributor =
        heliograph_distributor::build(&args.xds, &security, store, &registry, &readiness).await?;
    let xds_address = distributor.address();
    let envoys = match args.envoy {
        true => Some(Envoys::new(args.envoy_binary.as_deref(), xds_address).await?),
        false => None,
    };

    let (inputs, outputs) = mpsc::channel(WAITING_BATCHES);
    let mut tasks = Tasks::new(stop.clone()).with_longer_end(distributor.drain_time());
    if let Some(envoys) = envoys {
        let envoys = envoys.spawn(report.clone(), &readiness, stop.clone())?;
        tasks.spawn("envoys", envoys);
    }
    heliograph_distributor::allow_open_files(&args.xds.load);
    tracing::info!(dir = %args.dir.display(), xds = %xds_address, admin = %admin.address(), "serving");
    let pages = Pages::new(registry, readiness).logging(logging);
    let pages = add_pages(pages, report, remarks);
    let pages = distributor.add_pages(pages);
    // The port says that this program is not ready for as long as it drains.
    let over = CancellationToken::new();
    tasks.spawn("admin port", admin.serve(pages, over.clone().cancelled_owned()));
    let (over, drained) = (over.drop_guard(), stop.clone());
    tasks.spawn("distributor", async move {
        let outcome = distributor.run(drained).await;
        drop(over);
        outcome
    });
    tasks.spawn("acknowledgements", acks.run(stop.clone()));
    tasks.spawn("translator", translator.run(outputs, stop.clone()));
    tasks.spawn("files", file.run(inputs, stop));
    Ok(tasks)
}

fn print_status(args: &Args) -> anyhow::Result<ExitCode> {
    let Offline { world, remarks, .. } =
        Offline::read(std::slice::from_ref(&args.dir), &args.limits)?;
    let page = StatusPage::new(world.statuses(), &remarks)?;
    output::result(&match args.output {
        Some(format) => format.render(&page)?,
        None => page.table(),
    })?;
    let faulty = remarks.iter().any(|remark| remark.kind == RemarkKind::Fault);
    Ok(if faulty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

use crate::envoys::Envoys;
use crate::output::{self, Format};
use crate::status::StatusPage;
use crate::tasks::Tasks;
use anyhow::bail;
use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use heliograph_distributor::Acks;
use heliograph_shared::admin::{self, AdminArgs, Pages, Readiness};
use heliograph_shared::store::Embedded;
use heliograph_shared::{shutdown, telemetry};
use heliograph_translator::provider::file::{self, File, Remark, RemarkKind};
use heliograph_translator::{FileMetrics, Report, Translator, TranslatorMetrics};
use heliograph_translator_core::World;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Serve a directory of Gateway API objects to Envoys, all in one process
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of manifests
    #[arg(long, env = "HELIO_DIR", value_name = "DIR")]
    dir: PathBuf,

    /// Run an Envoy for each Gateway
    #[arg(long, env = "HELIO_ENVOY")]
    envoy: bool,

    /// The Envoy to run; without it, the one on PATH
    #[arg(long, env = "ENVOY", value_name = "PROGRAM")]
    envoy_binary: Option<PathBuf>,

    /// Print the conditions of every object, and exit
    #[arg(long)]
    status: bool,

    /// How to print the conditions: as a table, if not said
    #[arg(short, long, value_name = "FORMAT", requires = "status")]
    output: Option<Format>,

    #[command(flatten)]
    xds: heliograph_distributor::DistributorArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

/// How many batches of events may wait for the translator.
const WAITING_BATCHES: usize = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.status {
        return print_status(args);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(serve(args));
    // Otherwise a file that takes long to read would hold up the end.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let mut signal = std::pin::pin!(shutdown::signal()?);
    let tasks = tokio::select! {
        () = &mut signal => return Ok(()),
        tasks = start(args) => tasks?,
    };
    tasks.run(signal).await
}

/// The way of the data: files, translator, store, distributor, Envoys.
async fn start(args: &Args) -> anyhow::Result<Tasks> {
    let stop = CancellationToken::new();
    let readiness = Readiness::new();
    let registry = telemetry::registry("helio")?;

    // Everything that can be refused is, before anything runs.
    check_addresses(args.admin.admin_address, args.xds.xds_address)?;
    let (dir, metrics) = (args.dir.clone(), FileMetrics::register(&registry)?);
    let file = tokio::task::spawn_blocking(move || File::open(&dir, metrics)).await??;
    let remarks = file.remarks();
    refuse_faults(&remarks.borrow())?;
    let store = Arc::new(Embedded::new());
    let metrics = TranslatorMetrics::register(&registry)?;
    let translator =
        Translator::claim(store.clone(), None, metrics, readiness.guard("translation")).await?;
    let report = translator.report();
    let admin = admin::bind(args.admin.admin_address).await?;
    let distributor =
        heliograph_distributor::build(&args.xds, store, &registry, &readiness).await?;
    let xds_address = distributor.address();
    let acks = distributor.acks();
    let envoys = match args.envoy {
        true => Some(Envoys::new(args.envoy_binary.as_deref(), xds_address).await?),
        false => None,
    };

    let (inputs, outputs) = mpsc::channel(WAITING_BATCHES);
    let mut tasks = Tasks::new(stop.clone());
    if let Some(envoys) = envoys {
        let envoys = envoys.spawn(report.clone(), &readiness, stop.clone())?;
        tasks.spawn("envoys", envoys);
    }
    tracing::info!(dir = %args.dir.display(), xds = %xds_address, admin = %admin.address(), "serving");
    let pages = Pages::new(registry, readiness)
        .page("/status", "the conditions of every object", status_page(report, remarks))
        .page(
            "/fleets",
            "what each fleet is told, and what its proxies say to that",
            fleets_page(acks),
        );
    tasks.spawn("admin port", admin.serve(pages, stop.clone().cancelled_owned()));
    tasks.spawn("distributor", distributor.run(stop.clone()));
    tasks.spawn("translator", translator.run(outputs, stop.clone()));
    tasks.spawn("files", file.run(inputs, stop));
    Ok(tasks)
}

/// Two of our own on one port deserve better than to be told that it is in use.
fn check_addresses(admin: SocketAddr, xds: SocketAddr) -> anyhow::Result<()> {
    let any = admin.ip().is_unspecified() || xds.ip().is_unspecified();
    if admin.port() == xds.port() && admin.port() != 0 && (any || admin.ip() == xds.ip()) {
        bail!(
            "the admin address {admin} and the xDS address {xds} are the same: choose another with --admin-address or --xds-address"
        );
    }
    Ok(())
}

/// At the start there is no earlier version that could go on to count.
fn refuse_faults(remarks: &[Remark]) -> anyhow::Result<()> {
    let mut faults = remarks.iter().filter(|remark| remark.kind == RemarkKind::Fault);
    let Some(first) = faults.next() else { return Ok(()) };
    match faults.count() {
        0 => bail!("{first}"),
        more => bail!("{first} (and {more} more like it)"),
    }
}

fn print_status(args: &Args) -> anyhow::Result<ExitCode> {
    let found = file::read_once(std::slice::from_ref(&args.dir))?;
    let mut world = World::new();
    for event in found.events {
        world.apply(event);
    }
    world.settle();
    let page = StatusPage::new(world.statuses(), &found.remarks)?;
    output::result(&page.render(args.output)?)?;
    let faulty = found.remarks.iter().any(|remark| remark.kind == RemarkKind::Fault);
    Ok(if faulty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[derive(Deserialize)]
struct StatusQuery {
    format: Option<StatusFormat>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum StatusFormat {
    Json,
    Yaml,
    Text,
}

fn status_page(
    report: watch::Receiver<Report>,
    remarks: watch::Receiver<Arc<[Remark]>>,
) -> MethodRouter {
    get(async move |query: Result<Query<StatusQuery>, QueryRejection>| {
        let Ok(Query(query)) = query else {
            let said = "format is not one of json, yaml, text\n";
            return (StatusCode::BAD_REQUEST, said).into_response();
        };
        let (format, kind) = match query.format {
            None | Some(StatusFormat::Json) => (Some(Format::Json), "application/json"),
            Some(StatusFormat::Yaml) => (Some(Format::Yaml), "application/yaml"),
            Some(StatusFormat::Text) => (None, "text/plain; charset=utf-8"),
        };
        let report = report.borrow().clone();
        let remarks = remarks.borrow().clone();
        let statuses = report.statuses.iter().map(|(key, status)| (key, &**status));
        match StatusPage::new(statuses, &remarks).and_then(|page| page.render(format)) {
            Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
            Err(error) => failure(&error),
        }
    })
}

fn fleets_page(acks: Acks) -> MethodRouter {
    get(async move || Json(acks.all()))
}

fn failure(error: &anyhow::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response()
}

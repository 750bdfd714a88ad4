//! The program `translator`: this crate over Redis, with an admin port.

use crate::acks::AckReader;
use crate::connect::KubernetesArgs;
use crate::election::{Election, ElectionArgs, Lead, each_term};
use crate::fleet_metrics::{FLEETS_WITH_METRICS, FleetMetrics};
use crate::kubernetes::{Infra, InfraMetrics, Observed, ProxyArgs, StatusMetrics, StatusWriter};
use crate::limits::LimitArgs;
use crate::metrics::{ElectionMetrics, FileMetrics, KubernetesMetrics, TranslatorMetrics};
use crate::provider::file::{self, File};
use crate::provider::kubernetes::{Kubernetes, Scope};
use crate::provider::proxy_inventory::ProxyInventory;
use crate::report::Report;
use crate::status::{self, Remarks};
use crate::term::Translator;
use anyhow::bail;
use clap::Parser;
use heliograph_gateway::infra::ProxySettings;
use heliograph_shared::admin::{self, AdminArgs, Pages, Readiness};
use heliograph_shared::settings::{self, SettingsArgs};
use heliograph_shared::shutdown;
use heliograph_shared::tasks::Tasks;
use heliograph_shared::telemetry::{self, LogArgs, Logging};
use heliograph_store::StoreArgs;
use kube::Client;
use prometheus::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How many batches of events may wait for the translator.
pub const WAITING_BATCHES: usize = 16;

/// Translate Gateway API objects, from a Kubernetes cluster or a directory, into snapshots for distributors
#[derive(Clone, Debug, Parser)]
#[command(name = "translator", version)]
pub struct Program {
    /// Directory of manifests to translate. There is no leader election, so run only one translator for a store
    #[arg(long, env = "HELIO_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    #[command(flatten)]
    pub kubernetes: KubernetesArgs,

    #[command(flatten)]
    pub election: ElectionArgs,

    #[command(flatten, next_help_heading = "Proxies")]
    pub proxies: ProxyArgs,

    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,

    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub admin: AdminArgs,

    /// Number of fleets that have metrics of their own, the first ones by name; 0 for none
    #[arg(
        long,
        help_heading = "Admin",
        env = "HELIO_FLEET_METRICS",
        value_name = "COUNT",
        default_value_t = FLEETS_WITH_METRICS
    )]
    pub fleet_metrics: usize,

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
pub fn add_pages(pages: Pages, report: watch::Receiver<Report>, remarks: Remarks) -> Pages {
    pages.page("/status", "the conditions of every object", status::page(report, remarks))
}

/// Where objects come from.
enum Source {
    Files(Box<File>),
    Api(Box<Api>),
}

/// A Kubernetes API, with an election among all translators of the same Lease.
struct Api {
    client: Client,
    objects: Kubernetes,
    observed: Observed,
    election: Election,
    statuses: StatusMetrics,
    /// How Envoys are run, if any are.
    proxies: Option<(ProxySettings, InfraMetrics)>,
}

impl Program {
    /// The way of the data: objects, translator, store. All settings are checked before anything runs. An unreachable
    /// Redis or API is not an error: the program waits for it.
    pub async fn start(&self, logging: Logging) -> anyhow::Result<Started> {
        let stop = CancellationToken::new();
        let readiness = Readiness::new();
        let registry = telemetry::registry("translator")?;
        let source = self.source(&registry).await?;
        let store = self.store.open_for_translator(&registry)?;
        let metrics = TranslatorMetrics::register(&registry)?;
        let admin = admin::bind(self.admin.admin_address).await?;

        // The fence of a term comes with it; without an election the store finds one above all it has seen.
        let guard = readiness.token(source.awaited());
        let translator =
            Translator::new(store.clone(), None, metrics, guard).with_limits(self.limits.limits());
        let report = translator.report();
        FleetMetrics::register(&registry, report.clone(), self.fleet_metrics)?;
        let acks = AckReader::new(store.feedback, &translator);
        let (inputs, outputs) = mpsc::channel(WAITING_BATCHES);
        let admin_address = admin.address();
        tracing::info!(admin = %admin_address, "translating {}", self.description());
        let pages = Pages::new(registry, readiness).logging(logging);
        let pages = add_pages(pages, report.clone(), source.remarks());
        let pages = acks.add_page(pages, report.clone());
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("admin port", admin.serve(pages, stop.clone().cancelled_owned()));
        tasks.spawn("acknowledgements", acks.run(stop.clone()));
        match source {
            Source::Files(file) => {
                tasks.spawn("translator", translator.run(outputs, stop.clone()));
                tasks.spawn("files", file.run(inputs, stop));
            }
            Source::Api(api) => {
                let Api { client, objects, observed, election, statuses, proxies } = *api;
                if let Some((settings, metrics)) = proxies {
                    let (client, report) = (client.clone(), report.clone());
                    let deployed = objects.deployed();
                    let run_envoys = {
                        let client = client.clone();
                        move |lead, term: CancellationToken| {
                            let (client, mut report) = (client.clone(), report.clone());
                            let deployed = deployed.clone();
                            let (settings, metrics) = (settings.clone(), metrics.clone());
                            async move {
                                if !is_reported(&mut report, lead, &term).await {
                                    return;
                                }
                                let infra = Infra::new(client, report, deployed, settings, metrics);
                                if let Err(error) = infra.run(term).await {
                                    tracing::error!(%error, "the Envoys of Gateways are not managed");
                                }
                            }
                        }
                    };
                    let envoys = each_term(election.leadership(), stop.clone(), run_envoys);
                    tasks.spawn("envoys", envoys);
                    let (inputs, stop) = (inputs.clone(), stop.clone());
                    tasks.spawn("directory", async move {
                        ProxyInventory::new(client).run(inputs, stop).await;
                        Ok::<_, std::convert::Infallible>(())
                    });
                }
                let write_statuses = move |lead, term: CancellationToken| {
                    let (client, mut report) = (client.clone(), report.clone());
                    let (observed, statuses) = (observed.clone(), statuses.clone());
                    async move {
                        if is_reported(&mut report, lead, &term).await {
                            StatusWriter::new(client, report, observed, statuses).run(term).await;
                        }
                    }
                };
                let writing = each_term(election.leadership(), stop.clone(), write_statuses);
                tasks.spawn("statuses", writing);
                let translation = translator.run_elected(
                    outputs,
                    election.leadership(),
                    objects.refresh(),
                    election.resign(),
                    stop.clone(),
                );
                tasks.spawn("translator", translation);
                tasks.spawn("election", election.run(stop.clone()));
                tasks.spawn("watches", objects.run(inputs, stop));
            }
        }
        Ok(Started { tasks, admin: admin_address })
    }

    async fn source(&self, registry: &Registry) -> anyhow::Result<Source> {
        let args = &self.kubernetes;
        match (&self.dir, args.kubernetes) {
            (Some(dir), false) => {
                let (dir, metrics) = (dir.clone(), FileMetrics::register(registry)?);
                let file = tokio::task::spawn_blocking(move || File::open(&dir, metrics)).await??;
                file::refuse_faults(file.remarks().borrow().iter())?;
                Ok(Source::Files(Box::new(file)))
            }
            (None, true) => {
                let client = args.connect().await?;
                let scope = Scope {
                    namespace_selector: args.namespace_selector.clone(),
                    ignored: args.ignore_kind.iter().copied().collect(),
                };
                let metrics = ElectionMetrics::register(registry)?;
                let election = Election::new(client.clone(), &self.election, metrics);
                let metrics = KubernetesMetrics::register(registry)?;
                let (observed, statuses) =
                    (Observed::default(), StatusMetrics::register(registry)?);
                let objects = Kubernetes::new(client.clone(), scope, observed.clone(), metrics)
                    .with_limits(&self.limits.limits());
                let settings = self.proxies.settings()?;
                let proxies = match settings {
                    Some(settings) => Some((settings, InfraMetrics::register(registry)?)),
                    None => None,
                };
                let api = Api { client, objects, observed, election, statuses, proxies };
                Ok(Source::Api(Box::new(api)))
            }
            (None, false) => bail!("set the source of objects: --kubernetes or --dir DIR"),
            (Some(_), true) => bail!("set only one of --kubernetes and --dir"),
        }
    }

    /// Where objects come from, for people.
    fn description(&self) -> String {
        match (&self.dir, &self.kubernetes.kubeconfig) {
            (Some(dir), _) => format!("the files of {}", dir.display()),
            (None, Some(file)) => format!("the objects of the API that {} names", file.display()),
            (None, None) => "the objects of this cluster's API".to_owned(),
        }
    }
}

/// Waits until what is reported is of this term: what an earlier one found may be there still, and must not be acted on.
/// Returns whether it came to that.
async fn is_reported(
    report: &mut watch::Receiver<Report>,
    lead: Lead,
    term: &CancellationToken,
) -> bool {
    tokio::select! {
        () = term.cancelled() => false,
        reported = report.wait_for(|report| report.fence == Some(lead.fence)) => reported.is_ok(),
    }
}

impl Source {
    /// The name of what readiness waits for with this provider.
    fn awaited(&self) -> &'static str {
        match self {
            Self::Files(_) => "translation",
            Self::Api(_) => "objects",
        }
    }

    fn remarks(&self) -> Remarks {
        match self {
            Self::Files(file) => Remarks::Files(file.remarks()),
            Self::Api(api) => Remarks::Api(api.objects.health()),
        }
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

//! The program `distributor`: this crate over Redis, with an admin port.

use crate::app::{self, DistributorArgs};
use crate::identity::SecurityArgs;
use crate::load::{LoadArgs, allow_open_files};
use clap::Parser;
use heliograph_shared::admin::{self, AdminArgs, Pages, Readiness};
use heliograph_shared::settings::{self, SettingsArgs};
use heliograph_shared::shutdown;
use heliograph_shared::tasks::Tasks;
use heliograph_shared::telemetry::{self, LogArgs, Logging};
use heliograph_store::{SnapshotCacheArgs, StoreArgs};
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;

/// Serve the snapshots of a translator to Envoys
#[derive(Clone, Debug, Parser)]
#[command(name = "distributor", version)]
pub struct Program {
    #[command(flatten)]
    pub xds: DistributorArgs,

    #[command(flatten)]
    pub security: SecurityArgs,

    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub cache: SnapshotCacheArgs,

    #[command(flatten)]
    pub admin: AdminArgs,

    #[command(flatten)]
    pub settings: SettingsArgs,

    #[command(flatten)]
    pub logs: LogArgs,
}

/// A program that serves, once its tasks are run.
pub struct Started {
    pub tasks: Tasks,
    pub xds: SocketAddr,
    pub admin: SocketAddr,
}

/// Runs the program until a signal ends it.
pub fn run() -> anyhow::Result<()> {
    let program: Program = settings::parse_or_exit();
    let logging = telemetry::init(&program.logs)?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let signal = shutdown::signal()?;
        let started = program.start(logging).await?;
        started.tasks.run(signal).await
    })
}

impl Program {
    /// All settings are checked before anything runs. An unreachable Redis is not an error: clients wait until it
    /// answers.
    pub async fn start(&self, logging: Logging) -> anyhow::Result<Started> {
        let stop = CancellationToken::new();
        let readiness = Readiness::new();
        let registry = telemetry::registry("distributor")?;
        self.xds.check_beside(self.admin.admin_address)?;
        let (store, cache) = self.store.open_for_distributor(&self.cache, &registry)?;
        let admin = admin::bind(self.admin.admin_address).await?;
        let mut xds = self.xds.clone();
        xds.load.drain_time.get_or_insert(LoadArgs::DRAIN_TIME);
        let distributor = app::build(&xds, &self.security, store, &registry, &readiness).await?;

        let (xds, admin_address) = (distributor.address(), admin.address());
        allow_open_files(&self.xds.load);
        tracing::info!(%xds, admin = %admin_address, "serving");
        let served = cache.clone();
        let pages = Pages::new(registry, readiness).logging(logging);
        let pages = pages.ready_note(move || served.served().map(|it| it.to_string()));
        let pages = distributor.add_pages(pages);
        let mut tasks = Tasks::new(stop.clone()).with_longer_end(distributor.drain_time());
        // The port says that this replica is not ready for as long as it drains.
        let over = CancellationToken::new();
        tasks.spawn("admin port", admin.serve(pages, over.clone().cancelled_owned()));
        let over = over.drop_guard();
        tasks.spawn("distributor", async move {
            let ended = CancellationToken::new();
            let running = async {
                let outcome = distributor.run(stop).await;
                ended.cancel();
                outcome
            };
            let (outcome, ()) = tokio::join!(running, cache.write(ended.cancelled()));
            drop(over);
            outcome
        });
        Ok(Started { tasks, xds, admin: admin_address })
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

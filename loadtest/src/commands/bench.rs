use super::play::stop_at_signal;
use super::{Outcome, complain};
use crate::bench::{Bench, find_place, rewrite};
use crate::scenario::Span;
use crate::servers::Programs;
use crate::tied::pin;
use anyhow::Context;
use heliograph_shared::output;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    /// Measure only these rows of the table, as in 1,3,4
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    rows: Vec<u8>,
    /// Number of rounds; the result is the median
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Measure a tenth of everything, to try it out
    #[arg(long)]
    brief: bool,
    /// Measure only Heliograph, for example where Go is missing to build the others
    #[arg(long)]
    without_peers: bool,
    /// Directory with the distributor and the translator of another build, to measure it in turn with this one
    #[arg(long, value_name = "DIR")]
    before: Option<PathBuf>,
    /// Duration of continuous changes, in row 8
    #[arg(long, value_name = "DURATION", default_value = "15m")]
    churn: Span,
    /// Number of routes that are added one by one and requested through an Envoy, in row 9
    #[arg(long, value_name = "NUMBER", default_value = "3000")]
    probes: usize,
    /// CPU on which to run the servers
    #[arg(long, value_name = "CPU", default_value = "0")]
    pin_server: usize,
    /// CPU on which to run the clients
    #[arg(long, value_name = "CPU", default_value = "1")]
    pin_clients: usize,
    /// Page to write the table into, at its marked place
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl BenchArgs {
    /// A missed target is a finding, not a failure.
    pub(super) async fn run(self) -> anyhow::Result<Outcome> {
        let stop = CancellationToken::new();
        tokio::spawn(stop_at_signal(stop.clone())?);
        let cores = std::thread::available_parallelism().context("cannot count the CPUs")?.get();
        let apart = cores > 1;
        if apart {
            // To look at servers costs more the larger they are: they are not to pay for it.
            pin(self.pin_clients)?;
        } else {
            complain("note: there is one CPU, so servers and clients share it");
        }
        let programs = Programs::here()?;
        let before = self.before.map(|folder| programs.of_build(&folder)).transpose()?;
        let bench = Bench {
            programs,
            before,
            rows: self.rows,
            rounds: self.rounds.into(),
            brief: self.brief,
            without_peers: self.without_peers,
            churn: self.churn.0,
            probes: self.probes,
            server_cpu: apart.then_some(self.pin_server),
            clients_cpu: apart.then_some(self.pin_clients),
            stop: stop.clone(),
        };
        let lanes = bench.lanes()?;
        if let Some(page) = &self.write {
            // Half an hour later would be late to say that there is no place for the table.
            lanes.iter().try_for_each(|lane| find_place(page, *lane))?;
        }
        for lane in lanes {
            let table = bench.run(lane, complain).await;
            let command: Vec<_> = std::env::args().skip(1).collect();
            let text =
                format!("{}\nCommand: `loadtest {}`.\n", table.markdown(), command.join(" "));
            // The page is written though this is not: it took half an hour.
            let printed = output::result(&text);
            match &self.write {
                Some(page) if stop.is_cancelled() => {
                    complain(&format!("interrupted, so {} stays as it is", page.display()));
                    break;
                }
                Some(page) => rewrite(page, lane, &text)?,
                None => {}
            }
            printed?;
            match table.missed() {
                0 => {}
                missed => complain(&format!("{missed} targets are missed or not measured")),
            }
        }
        Ok(Outcome::Good)
    }
}

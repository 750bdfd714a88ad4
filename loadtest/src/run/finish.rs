use super::{Run, RunError};
use heliograph_report::{Clients, Report};
use std::time::Duration;

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    pub report: Report,
    /// What to know before the figures are believed.
    pub notes: Vec<String>,
}

/// Clients that use more of a core than this are what is measured, not the server.
const BUSY: f64 = 0.8;
/// For the last look at all clients.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// A user who interrupts a run does not want to wait.
const INTERRUPTED_TIMEOUT: Duration = Duration::from_secs(1);

impl Finished {
    /// Nothing was wrong, as far as it came.
    pub fn is_good(&self) -> bool {
        let figures = &self.report.figures;
        figures.violations.total() == 0 && figures.errors.total() == 0
    }
}

impl Run {
    /// Something ended the steps of the run before their time.
    pub fn record_error(&mut self, error: &RunError) {
        if !matches!(error, RunError::Interrupted) {
            self.errors.push(error.to_string());
        }
    }

    /// Ends the run. Every client has to have everything, unless the run was interrupted.
    pub async fn finish(mut self) -> Finished {
        let interrupted = self.stop.is_cancelled();
        let within = if interrupted { INTERRUPTED_TIMEOUT } else { FINISH_TIMEOUT };
        // The last look at the servers comes before the clients leave.
        if !interrupted && let Err(error) = self.watch.sample().await {
            self.errors.push(error.to_string());
        }
        if let Err(error) = self.workers.finish(!interrupted, within).await {
            self.errors.push(error.to_string());
        }
        let figures = self.reports.figures();
        self.close_phase(&figures);
        drop(self.tasks);
        let mut report = self.report;
        report.servers = self.watch.servers();
        report.per_stream = self.cost.per_stream();
        report.figures = figures;
        self.errors.iter().for_each(|_| report.figures.errors.add("run ended early"));
        report.violations = self.reports.violations().into();
        report.errors = self.reports.errors().into_iter().chain(self.errors).collect();
        report.clients = Clients {
            processes: self.workers.count() as u64,
            cpus: self.clients_cpus as u64,
            used: self.watch.clients(),
        };
        let mut notes = notes(interrupted, report.clients.busiest().unwrap_or(0.0));
        notes.splice(..0, self.notes);
        Finished { report, notes }
    }
}

fn notes(interrupted: bool, busy: f64) -> Vec<String> {
    let mut notes = Vec::new();
    if interrupted {
        notes.push("the run was interrupted: lost updates were not checked".to_owned());
    }
    if busy > BUSY {
        let percent = (busy * 100.0).round();
        notes.push(format!(
            "the clients used {percent} % of a core: latencies are partly theirs; use more processes or fewer clients"
        ));
    }
    notes
}

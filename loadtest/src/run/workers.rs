use super::RunError;
use super::reports::WorkerReports;
use crate::servers::Programs;
use crate::worker::{Begin, WorkerMessage, WorkerOrder};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};

/// The processes that the clients live in. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    children: Vec<Child>,
    orders: Vec<ChildStdin>,
    reports: Arc<WorkerReports>,
    /// How many orders were given that are answered.
    asked: u64,
}

/// For an answer to an order; a worker whose clients are in the middle of a push gets time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

impl Workers {
    /// Each on this CPU, if it is said.
    pub(super) fn start(
        programs: &Programs,
        count: usize,
        cpu: Option<usize>,
        reports: Arc<WorkerReports>,
    ) -> Result<Self, RunError> {
        let (mut children, mut orders) = (Vec::new(), Vec::new());
        for worker in 0..count {
            let mut command = programs.command(programs.loadtest(), cpu);
            command.arg("worker").stderr(Stdio::inherit());
            let mut child = command.spawn().map_err(RunError::Start)?;
            orders.extend(child.stdin.take());
            if let Some(output) = child.stdout.take() {
                tokio::spawn(listen(worker, output, reports.clone()));
            }
            children.push(child);
        }
        Ok(Self { children, orders, reports, asked: 0 })
    }

    pub(super) fn count(&self) -> usize {
        self.children.len()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().filter_map(Child::id).collect()
    }

    pub(super) async fn begin(&mut self, begin: &Begin) -> Result<(), RunError> {
        for worker in 0..self.count() {
            let begin = Begin { worker, ..begin.clone() };
            self.give(worker, &WorkerOrder::Begin(Box::new(begin))).await?;
        }
        self.asked += 1;
        self.answered().await
    }

    pub(super) async fn send(&mut self, order: &WorkerOrder) -> Result<(), RunError> {
        for worker in 0..self.count() {
            self.give(worker, order).await?;
        }
        Ok(())
    }

    /// Gives an order that is answered, without waiting for the answer.
    pub(super) async fn ask(&mut self, order: &WorkerOrder) -> Result<(), RunError> {
        self.send(order).await?;
        self.asked += 1;
        Ok(())
    }

    /// Waits for all answers.
    pub(super) async fn answered(&self) -> Result<(), RunError> {
        let asked = self.asked;
        self.until(ANSWER_TIMEOUT, |reports| reports.answers() >= asked).await
    }

    /// Lets the workers end.
    pub(super) async fn finish(&mut self, check: bool, within: Duration) -> Result<(), RunError> {
        self.send(&WorkerOrder::Finish { check }).await?;
        self.until(within, WorkerReports::is_done).await
    }

    async fn until(
        &self,
        within: Duration,
        condition: impl Fn(&WorkerReports) -> bool,
    ) -> Result<(), RunError> {
        let mut changes = self.reports.changes();
        let met = async {
            while !condition(&self.reports) {
                if let Some(reason) = self.reports.failure() {
                    return Err(RunError::Worker(reason));
                }
                // The sender is ours.
                let _ = changes.changed().await;
            }
            Ok(())
        };
        tokio::time::timeout(within, met).await.unwrap_or(Err(RunError::Silent))
    }

    async fn give(&mut self, worker: usize, order: &WorkerOrder) -> Result<(), RunError> {
        let failed = |cause: std::io::Error| {
            RunError::Worker(self.reports.failure().unwrap_or_else(|| cause.to_string()))
        };
        let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        match self.orders.get_mut(worker) {
            Some(orders) => orders.write_all(&line).await.map_err(failed),
            None => Ok(()),
        }
    }
}

/// Collects what a worker reports, until it ends.
async fn listen(worker: usize, output: impl AsyncRead + Unpin, reports: Arc<WorkerReports>) {
    let mut lines = BufReader::new(output).lines();
    let reason = loop {
        match lines.next_line().await {
            Ok(Some(line)) => match serde_json::from_str::<WorkerMessage>(&line) {
                Ok(message) => reports.receive(worker, message),
                Err(error) => break format!("it told something that is no tiding: {error}"),
            },
            Ok(None) => break "it has ended; was it killed for its memory?".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    reports.ended(worker, reason);
}

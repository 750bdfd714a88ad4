use super::RunError;
use super::board::Board;
use crate::servers::Programs;
use crate::worker::{Begin, Order, Tiding};
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
    board: Arc<Board>,
    /// How many orders were given that are answered.
    asked: u64,
}

/// For an answer to an order; a worker whose clients are in the middle of a push gets time.
const PATIENCE: Duration = Duration::from_secs(60);

impl Workers {
    /// Each on this CPU, if it is said.
    pub(super) fn start(
        programs: &Programs,
        count: usize,
        cpu: Option<usize>,
        board: Arc<Board>,
    ) -> Result<Self, RunError> {
        let (mut children, mut orders) = (Vec::new(), Vec::new());
        for worker in 0..count {
            let mut command = programs.command(programs.loadtest(), cpu);
            command.arg("worker").stderr(Stdio::inherit());
            let mut child = command.spawn().map_err(RunError::Start)?;
            orders.extend(child.stdin.take());
            if let Some(output) = child.stdout.take() {
                tokio::spawn(listen(worker, output, board.clone()));
            }
            children.push(child);
        }
        Ok(Self { children, orders, board, asked: 0 })
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
            self.give(worker, &Order::Begin(Box::new(begin))).await?;
        }
        self.asked += 1;
        self.answered().await
    }

    pub(super) async fn tell(&mut self, order: &Order) -> Result<(), RunError> {
        for worker in 0..self.count() {
            self.give(worker, order).await?;
        }
        Ok(())
    }

    /// Gives an order that is answered, without waiting for the answer.
    pub(super) async fn ask(&mut self, order: &Order) -> Result<(), RunError> {
        self.tell(order).await?;
        self.asked += 1;
        Ok(())
    }

    /// Waits for all answers.
    pub(super) async fn answered(&self) -> Result<(), RunError> {
        let asked = self.asked;
        self.until(PATIENCE, |board| board.answers() >= asked).await
    }

    /// Lets the workers end.
    pub(super) async fn finish(&mut self, check: bool, within: Duration) -> Result<(), RunError> {
        self.tell(&Order::Finish { check }).await?;
        self.until(within, Board::is_done).await
    }

    async fn until(
        &self,
        within: Duration,
        condition: impl Fn(&Board) -> bool,
    ) -> Result<(), RunError> {
        let mut changes = self.board.changes();
        let met = async {
            while !condition(&self.board) {
                if let Some(reason) = self.board.failure() {
                    return Err(RunError::Worker(reason));
                }
                // The sender is ours.
                let _ = changes.changed().await;
            }
            Ok(())
        };
        tokio::time::timeout(within, met).await.unwrap_or(Err(RunError::Silent))
    }

    async fn give(&mut self, worker: usize, order: &Order) -> Result<(), RunError> {
        let failed = |cause: std::io::Error| {
            RunError::Worker(self.board.failure().unwrap_or_else(|| cause.to_string()))
        };
        let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        match self.orders.get_mut(worker) {
            Some(orders) => orders.write_all(&line).await.map_err(failed),
            None => Ok(()),
        }
    }
}

/// Puts what a worker tells on the board, until it ends.
async fn listen(worker: usize, output: impl AsyncRead + Unpin, board: Arc<Board>) {
    let mut lines = BufReader::new(output).lines();
    let reason = loop {
        match lines.next_line().await {
            Ok(Some(line)) => match serde_json::from_str::<Tiding>(&line) {
                Ok(tiding) => board.take(worker, tiding),
                Err(error) => break format!("it told something that is no tiding: {error}"),
            },
            Ok(None) => break "it has ended; was it killed for its memory?".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    board.ended(worker, reason);
}

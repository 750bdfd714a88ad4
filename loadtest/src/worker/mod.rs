//! A process full of clients: it reads orders from stdin and writes the progress of its clients to stdout.
//!
//! A worker knows the workload by itself, so that orders stay small: it only needs to know which changes there will be,
//! and when they are due.

mod crew;
mod order;
mod publish_log;
mod tracker;
mod watcher;

pub use order::{Begin, ClientTotals, Excuse, Spread, StreamFailure, WorkerMessage, WorkerOrder};

use anyhow::{Context, bail};
use crew::Crew;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, Stdout};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// How many clients one process takes.
pub const MOST_CLIENTS: usize = 15_000;

/// How often a worker looks at where its clients are, and after how many checks it sends all its figures.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const FIGURES: u32 = 10;
/// At the end, for those whose last response is on its way.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The two ends of the pipes to the coordinator.
struct Pipes {
    orders: Lines<BufReader<Stdin>>,
    messages: Stdout,
}

/// Serves a coordinator until it says that this is all, or is gone.
pub async fn run() -> anyhow::Result<()> {
    let orders = BufReader::new(tokio::io::stdin()).lines();
    let mut pipes = Pipes { orders, messages: tokio::io::stdout() };
    match work(&mut pipes).await {
        Ok(()) => Ok(()),
        Err(error) => pipes.send(&WorkerMessage::Failed(format!("{error:#}"))).await,
    }
}

async fn work(pipes: &mut Pipes) -> anyhow::Result<()> {
    let crew = match pipes.next().await? {
        Some(WorkerOrder::Begin(begin)) => Crew::new(*begin)?,
        Some(_) => bail!("the first order is to begin"),
        None => return Ok(()),
    };
    pipes.send(&WorkerMessage::Ready).await?;
    let mut checks = ticks(CHECK_INTERVAL);
    let mut count = 0_u32;
    let mut last = ClientTotals::default();
    loop {
        tokio::select! {
            order = pipes.next() => match order? {
                None => return Ok(()),
                Some(WorkerOrder::Finish { check }) => return finish(&crew, pipes, check).await,
                Some(order) => carry_out(&crew, pipes, order).await?,
            },
            _ = checks.tick() => {
                count = count.wrapping_add(1);
                let totals = crew.totals();
                if totals != last {
                    last = totals;
                    pipes.send(&WorkerMessage::Standing(totals)).await?;
                }
                if count.is_multiple_of(FIGURES) {
                    send_all(&crew, pipes).await?;
                }
            }
        }
    }
}

async fn carry_out(crew: &Crew, pipes: &mut Pipes, order: WorkerOrder) -> anyhow::Result<()> {
    match order {
        WorkerOrder::Connect { clients, rate } => crew.connect(clients, rate),
        WorkerOrder::Expect(updates) => {
            crew.expect(&updates);
            // What lacks these now is to be known with the answer.
            pipes.send(&WorkerMessage::Standing(crew.totals())).await?;
            pipes.send(&WorkerMessage::Ready).await?;
        }
        WorkerOrder::Schedule(schedule) => crew.schedule(schedule),
        WorkerOrder::Reconnect { share, over } => crew.reconnect(share, over.0),
        WorkerOrder::Behave { share, conduct } => crew.behave(share, &conduct),
        WorkerOrder::Servers(servers) => crew.set_servers(&servers)?,
        WorkerOrder::Excuse(excuse) => crew.excuse(excuse),
        WorkerOrder::Tell => {
            pipes.send(&WorkerMessage::Standing(crew.totals())).await?;
            send_all(crew, pipes).await?;
            pipes.send(&WorkerMessage::Ready).await?;
        }
        WorkerOrder::Begin(_) => bail!("it has begun already"),
        WorkerOrder::Finish { .. } => {}
    }
    Ok(())
}

async fn finish(crew: &Crew, pipes: &mut Pipes, check: bool) -> anyhow::Result<()> {
    if check {
        let deadline = Instant::now() + LAST_RESPONSE_TIMEOUT;
        let mut checks = ticks(CHECK_INTERVAL);
        loop {
            checks.tick().await;
            let violations = crew.violations_at_the_end();
            let over = Instant::now() >= deadline;
            if over || !violations.iter().any(heliograph_checker::Violation::may_pass) {
                crew.record(violations);
                break;
            }
        }
    }
    send_all(crew, pipes).await?;
    pipes.send(&WorkerMessage::Done(Box::new(crew.figures()))).await
}

/// Sends the failures, the violations and the figures.
async fn send_all(crew: &Crew, pipes: &mut Pipes) -> anyhow::Result<()> {
    for failure in crew.failures() {
        pipes.send(&WorkerMessage::Trouble(failure)).await?;
    }
    for violation in crew.found() {
        pipes.send(&WorkerMessage::Violation(violation)).await?;
    }
    pipes.send(&WorkerMessage::Figures(Box::new(crew.figures()))).await
}

impl Pipes {
    /// None: the coordinator is gone.
    async fn next(&mut self) -> anyhow::Result<Option<WorkerOrder>> {
        let Some(line) = self.orders.next_line().await? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&line).context("an order that is none")?))
    }

    async fn send(&mut self, message: &WorkerMessage) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.messages.write_all(&line).await?;
        Ok(self.messages.flush().await?)
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

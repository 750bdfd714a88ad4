//! A process full of clients: it takes orders on stdin and tells on stdout how they fare.
//!
//! A worker knows the workload by itself, so that orders stay small: it needs only be told which changes there will be,
//! and when they are due.

mod book;
mod crew;
mod desk;
mod order;
mod watcher;

pub use order::{Begin, Excuse, Order, Spread, Standing, Tiding, Trouble};

use anyhow::{Context, bail};
use crew::Crew;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, Stdout};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// How many clients one process takes.
pub const MOST_CLIENTS: usize = 15_000;

/// How often a worker looks at where its clients are, and every how many looks it sends all its figures.
const LOOK: Duration = Duration::from_millis(50);
const FIGURES: u32 = 10;
/// At the end, for those whose last response is on its way.
const PATIENCE: Duration = Duration::from_secs(5);

/// The two ends of the pipes to the coordinator.
struct Pipes {
    orders: Lines<BufReader<Stdin>>,
    tidings: Stdout,
}

/// Serves a coordinator until it says that this is all, or is gone.
pub async fn run() -> anyhow::Result<()> {
    let orders = BufReader::new(tokio::io::stdin()).lines();
    let mut pipes = Pipes { orders, tidings: tokio::io::stdout() };
    match work(&mut pipes).await {
        Ok(()) => Ok(()),
        Err(error) => pipes.tell(&Tiding::Failed(format!("{error:#}"))).await,
    }
}

async fn work(pipes: &mut Pipes) -> anyhow::Result<()> {
    let crew = match pipes.next().await? {
        Some(Order::Begin(begin)) => Crew::new(*begin)?,
        Some(_) => bail!("the first order is to begin"),
        None => return Ok(()),
    };
    pipes.tell(&Tiding::Ready).await?;
    let mut looks = ticks(LOOK);
    let mut count = 0_u32;
    let mut last = Standing::default();
    loop {
        tokio::select! {
            order = pipes.next() => match order? {
                None => return Ok(()),
                Some(Order::Finish { check }) => return finish(&crew, pipes, check).await,
                Some(order) => carry_out(&crew, pipes, order).await?,
            },
            _ = looks.tick() => {
                count = count.wrapping_add(1);
                let standing = crew.standing();
                if standing != last {
                    last = standing;
                    pipes.tell(&Tiding::Standing(standing)).await?;
                }
                if count.is_multiple_of(FIGURES) {
                    tell_all(&crew, pipes).await?;
                }
            }
        }
    }
}

async fn carry_out(crew: &Crew, pipes: &mut Pipes, order: Order) -> anyhow::Result<()> {
    match order {
        Order::Connect { clients, rate } => crew.connect(clients, rate),
        Order::Expect(updates) => {
            crew.expect(&updates);
            // What lacks these now is to be known with the answer.
            pipes.tell(&Tiding::Standing(crew.standing())).await?;
            pipes.tell(&Tiding::Ready).await?;
        }
        Order::Schedule(schedule) => crew.schedule(schedule),
        Order::Reconnect { share, over } => crew.reconnect(share, over.0),
        Order::Behave { share, conduct } => crew.behave(share, &conduct),
        Order::Servers(servers) => crew.set_servers(&servers)?,
        Order::Excuse(excuse) => crew.excuse(excuse),
        Order::Tell => {
            pipes.tell(&Tiding::Standing(crew.standing())).await?;
            tell_all(crew, pipes).await?;
            pipes.tell(&Tiding::Ready).await?;
        }
        Order::Begin(_) => bail!("it has begun already"),
        Order::Finish { .. } => {}
    }
    Ok(())
}

async fn finish(crew: &Crew, pipes: &mut Pipes, check: bool) -> anyhow::Result<()> {
    if check {
        let deadline = Instant::now() + PATIENCE;
        let mut looks = ticks(LOOK);
        loop {
            looks.tick().await;
            let violations = crew.violations_at_the_end();
            let over = Instant::now() >= deadline;
            if over || !violations.iter().any(heliograph_checker::Violation::may_pass) {
                crew.note(violations);
                break;
            }
        }
    }
    tell_all(crew, pipes).await?;
    pipes.tell(&Tiding::Done(Box::new(crew.figures()))).await
}

/// What was found, and the figures.
async fn tell_all(crew: &Crew, pipes: &mut Pipes) -> anyhow::Result<()> {
    for trouble in crew.troubles() {
        pipes.tell(&Tiding::Trouble(trouble)).await?;
    }
    for violation in crew.found() {
        pipes.tell(&Tiding::Violation(violation)).await?;
    }
    pipes.tell(&Tiding::Figures(Box::new(crew.figures()))).await
}

impl Pipes {
    /// None: the coordinator is gone.
    async fn next(&mut self) -> anyhow::Result<Option<Order>> {
        let Some(line) = self.orders.next_line().await? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&line).context("an order that is none")?))
    }

    async fn tell(&mut self, tiding: &Tiding) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(tiding)?;
        line.push(b'\n');
        self.tidings.write_all(&line).await?;
        Ok(self.tidings.flush().await?)
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

use super::objects::GATEWAY;
use super::testbed::Testbed;
use crate::bench::BenchError;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// How many routes come and go, one at a time.
pub(super) const ROUTES: usize = 1;
/// A change.
const EVERY: Duration = Duration::from_millis(250);
/// Every so many changes a route comes or goes; the others are of endpoints.
const ROUTE: usize = 4;

/// Changes at fixed moments, whatever comes of them: seconds of CPU a minute, and the most memory.
pub(super) async fn measure(
    testbed: &mut Testbed,
    duration: Duration,
) -> Result<(f64, f64), BenchError> {
    let app = testbed.next_app();
    let (routes, route) = app.route(GATEWAY, app);
    let path = format!("{routes}/{}", app.name());
    let mut is_there = false;
    let (before, begun) = (testbed.sample()?, Instant::now());
    let mut memory = before.memory();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for change in 0.. {
        ticks.tick().await;
        if begun.elapsed() >= duration {
            break;
        }
        if change % ROUTE != 0 {
            let (app, backend) = testbed.next_move();
            let (path, change) = app.moved(backend);
            testbed.kubernetes.patch(&path, &change).await?;
        } else {
            if is_there {
                testbed.kubernetes.delete(&path).await?;
            } else {
                testbed.kubernetes.create(&routes, &route).await?;
            }
            is_there = !is_there;
            memory = memory.max(testbed.sample()?.memory());
        }
    }
    // What was put off is part of it.
    testbed.until_quiet(Duration::from_secs(3)).await?;
    let after = testbed.sample()?;
    memory = memory.max(after.memory());
    let minutes = duration.as_secs_f64() / 60.0;
    Ok(((after.cpu_us - before.cpu_us) as f64 / 1e6 / minutes, memory as f64))
}

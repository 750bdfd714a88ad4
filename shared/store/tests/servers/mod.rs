//! Real Redis servers that a test starts, stops, pauses and cuts off. All on loopback, with their files in a temporary
//! directory, and gone when the test is.
//!
//! The program is `REDIS_SERVER`, or `redis-server` on the path.

// Each program of tests uses a part of this.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
mod cluster;
pub(crate) mod lifeline;
mod proxy;
mod sentinels;
mod server;

#[allow(unused_imports)]
pub(crate) use self::{
    certificates::Certificates,
    cluster::Cluster,
    proxy::Proxy,
    sentinels::Sentinels,
    server::{Server, connect},
};

use redis::{Cmd, FromRedisValue, ServerErrorKind};
use std::time::{Duration, Instant};

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for what another process does.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    until_found(what, async || condition().await.then_some(())).await;
}

/// The same, and what was found: it may be gone at the next look.
pub(crate) async fn until_found<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a master answers. While a node is silent, a Cluster does not answer, and another server may become the master:
/// then the new master is asked again. For commands that may be repeated.
pub(crate) async fn ask<'a, T: FromRedisValue>(
    command: &Cmd,
    master: impl AsyncFn() -> &'a Server,
) -> T {
    until_found("the master answers", async || {
        let mut connection = master().await.connect().await.ok()?;
        match command.query_async(&mut connection).await {
            Err(error) if is_temporary(&error) => None,
            answer => Some(answer.unwrap()),
        }
    })
    .await
}

fn is_temporary(error: &redis::RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    let redis::ErrorKind::Server(kind) = error.kind() else { return error.is_io_error() };
    matches!(kind, BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly | TryAgain)
}

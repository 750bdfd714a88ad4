//! Every store keeps the same contract: to test another, add a line here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acks;
mod contract;
mod follower;
mod history;
mod model;
mod presence;
mod reading;
#[path = "../servers/mod.rs"]
mod servers;
#[path = "../redis/shared.rs"]
mod shared;
mod terms;
mod walk;
mod writer;
mod writing;

use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{
    Embedded, FeedbackReader, FeedbackSender, History, Reader, Replicas, Writer,
};
use prometheus::Registry;
use std::sync::Arc;
use std::time::Duration;

/// A store in all its roles.
pub(crate) trait Store:
    Writer + Reader + History + FeedbackSender + FeedbackReader + Replicas
{
}

impl<T> Store for T where T: Writer + Reader + History + FeedbackSender + FeedbackReader + Replicas {}

contract::cases!(embedded, async { Arc::new(Embedded::new()) as Arc<dyn Store> });
contract::cases!(redis_single, redis(shared::server()), proptest_cases = 24);
contract::cases!(redis_sentinel, redis(shared::sentinels()), proptest_cases = 6);
contract::cases!(redis_cluster, redis(shared::cluster()), proptest_cases = 6);

/// An empty store in servers that the tests share. It deletes at once what it may delete.
async fn redis(url: &str) -> Arc<dyn Store> {
    // The ring outlives its file, as it does where a mount is gone for a while.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.yaml");
    std::fs::write(&file, KeyRing::generate("key").unwrap()).unwrap();
    let keys = KeyFile::open(file).unwrap();
    let (prefix, history) = (shared::fresh_prefix(), contract::HISTORY);
    let options =
        RedisOptions { prefix, history, grace: Duration::ZERO, ..RedisOptions::default() };
    let link = Link::new(url.parse().unwrap());
    Arc::new(RedisStore::new(link, keys, options, &Registry::new()).unwrap())
}

use super::cache::{CacheError, SnapshotCacheArgs};
use super::link::{Link, RedisArgs, RedisSettings, RedisSettingsError};
use super::{InvalidPrefix, RedisOptions, RedisStore, SnapshotCache};
use crate::keys::{KeyError, KeyFile};
use crate::{DistributorStore, OperatorStore, TranslatorStore};
use prometheus::Registry;
use std::path::PathBuf;
use std::sync::Arc;

/// The flags of a program whose store is in Redis.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    #[command(flatten)]
    pub redis: RedisArgs,

    /// File with the key ring; create one with `helio store keys new FILE`
    #[arg(long, env = "HELIO_STORE_KEYS", value_name = "FILE")]
    pub store_keys: Option<PathBuf>,

    /// Prefix of all keys in Redis
    #[arg(long, env = "HELIO_STORE_PREFIX", value_name = "TEXT", default_value = "heliograph")]
    pub store_prefix: String,

    /// Number of snapshots of each fleet that the history keeps
    #[arg(
        long,
        env = "HELIO_STORE_HISTORY",
        value_name = "NUMBER",
        default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub store_history: u16,
}

/// Why there is no store. Redis being away is no reason.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error(transparent)]
    Settings(#[from] RedisSettingsError),
    #[error(
        "there is no key ring: create one with `helio store keys new FILE`, and set --store-keys in every program"
    )]
    NoKeys,
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Prefix(#[from] InvalidPrefix),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl StoreArgs {
    /// Opens the store in all its roles. This waits for nothing: a Redis that is away is found when it is there.
    pub fn open(&self, registry: &Registry) -> Result<RedisStore, StoreOpenError> {
        let (link, keys, options) = self.parts()?;
        RedisStore::new(link, keys, options, registry)
    }

    pub fn open_for_translator(
        &self,
        registry: &Registry,
    ) -> Result<TranslatorStore, StoreOpenError> {
        Ok(TranslatorStore::new(Arc::new(self.open(registry)?)))
    }

    pub fn open_for_operator(&self, registry: &Registry) -> Result<OperatorStore, StoreOpenError> {
        Ok(OperatorStore::new(Arc::new(self.open(registry)?)))
    }

    /// The store of a distributor, which may have a snapshot cache.
    pub fn open_for_distributor(
        &self,
        cache: &SnapshotCacheArgs,
        registry: &Registry,
    ) -> Result<(DistributorStore, SnapshotCache), StoreOpenError> {
        let (link, keys, options) = self.parts()?;
        let store = match cache.options() {
            Some(cache) => RedisStore::with_cache(link, keys, options, &cache, registry)?,
            None => RedisStore::new(link, keys, options, registry)?,
        };
        let cache = store.snapshot_cache();
        Ok((DistributorStore::new(Arc::new(store)), cache))
    }

    fn parts(&self) -> Result<(Link, KeyFile, RedisOptions), StoreOpenError> {
        let settings = RedisSettings::from_args(&self.redis)?;
        let keys = KeyFile::open(self.store_keys.as_ref().ok_or(StoreOpenError::NoKeys)?)?;
        let options = RedisOptions {
            prefix: self.store_prefix.clone(),
            history: usize::from(self.store_history),
            ..RedisOptions::default()
        };
        Ok((Link::new(settings), keys, options))
    }
}

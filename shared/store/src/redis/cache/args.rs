use super::CacheOptions;
use heliograph_shared::size;
use std::path::PathBuf;

/// The flags of a program that has a snapshot cache.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct SnapshotCacheArgs {
    /// Directory of the snapshot cache, which serves the last good snapshots when the distributor starts while Redis is
    /// unreachable [default: no cache]
    #[arg(long, env = "HELIO_SNAPSHOT_CACHE", value_name = "DIR")]
    pub snapshot_cache: Option<PathBuf>,

    /// Maximum size of the snapshot cache; beyond it, the fleets that were not used for the longest time are removed
    #[arg(
        long,
        env = "HELIO_SNAPSHOT_CACHE_SIZE",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "512MiB"
    )]
    pub snapshot_cache_size: u64,
}

impl SnapshotCacheArgs {
    pub fn options(&self) -> Option<CacheOptions> {
        let path = self.snapshot_cache.clone()?;
        Some(CacheOptions { path, limit: self.snapshot_cache_size })
    }
}

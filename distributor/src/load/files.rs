use super::LoadArgs;
use heliograph_shared::open_files;

/// Every stream is a connection, and so an open file. Called when a program starts: raises its limit as far as it may,
/// and logs the limit.
pub fn allow_open_files(args: &LoadArgs) {
    let limit = open_files::raise();
    match limit {
        Some(limit) => tracing::info!(
            open_files = limit,
            "the soft limit of open files is as high as the hard limit allows"
        ),
        None => tracing::info!("there is no limit of open files"),
    }
    if let Some(warning) = too_few(limit, args.max_streams) {
        tracing::warn!("{warning}");
    }
}

/// The problem if the limit is too low for the admitted streams.
fn too_few(limit: Option<u64>, max_streams: usize) -> Option<String> {
    let limit = limit.filter(|limit| *limit < max_streams as u64)?;
    Some(format!(
        "only {limit} files may be open, fewer than --max-streams={max_streams}, and each stream is one: raise the hard limit \
         (ulimit -Hn; in a cluster, that of the container runtime), or lower --max-streams and run more replicas"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_for_all_streams_are_told_of() {
        let warning = too_few(Some(1024), 20_000).unwrap();
        assert!(warning.starts_with("only 1024 files may be open"), "{warning}");
        assert!(warning.contains("--max-streams=20000"), "{warning}");
        for (limit, streams) in [(None, 20_000), (Some(20_000), 20_000), (Some(1024), 0)] {
            assert_eq!(too_few(limit, streams), None, "{limit:?}, {streams}");
        }
    }
}

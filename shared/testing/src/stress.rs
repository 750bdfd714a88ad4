//! `scripts/stress` runs a test again and again, and may pause its servers. It names a folder in `HELIO_STRESS`, with
//!
//! - `pauses`: `paused` as long as a server is paused, and then when it was resumed, in seconds since 1970;
//! - `held/ID`: a process that the test itself has stopped, which no other process may pause or resume. Readers and
//!   writers lock `held/lock` first;
//! - `kept`: files that a failed test leaves for the search for its cause.
//!
//! Without it, nothing here does anything.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, thread};

/// Measures times that have a promised limit.
///
/// The promise does not hold while a server is paused, so time counts from the end of the last pause.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        let elapsed = self.started.elapsed();
        let Some(folder) = folder() else { return elapsed };
        // There is no file before the first pause.
        let said = fs::read_to_string(folder.join("pauses")).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        counted(elapsed, &said, now)
    }
}

/// The seed for random choices, so that they can be repeated.
pub fn seed() -> Option<u64> {
    env::var("HELIO_STRESS_SEED").ok()?.parse().ok()
}

/// Stops a process by `signal`, so that no other process resumes it before [`release`].
pub fn hold<T>(id: u32, signal: impl FnOnce() -> T) -> io::Result<T> {
    let Some(folder) = folder() else { return Ok(signal()) };
    let _lock = lock(&folder)?;
    File::create(folder.join("held").join(id.to_string()))?;
    Ok(signal())
}

/// Resumes a process by `signal`.
pub fn release<T>(id: u32, signal: impl FnOnce() -> T) -> io::Result<T> {
    let Some(folder) = folder() else { return Ok(signal()) };
    let _lock = lock(&folder)?;
    let _ = fs::remove_file(folder.join("held").join(id.to_string()));
    Ok(signal())
}

/// Called by what goes with a test: if that fails, leaves a file.
pub fn keep_if_failing(name: &str, content: impl FnOnce() -> String) {
    let Some(folder) = folder().filter(|_| thread::panicking()) else { return };
    let test = thread::current().name().unwrap_or("test").replace("::", ".");
    // It fails already, and with a better reason.
    let _ = fs::write(folder.join("kept").join(format!("{test}.{name}")), content());
}

/// A file that is kept if a test of this run fails.
pub fn file(name: &str) -> Option<File> {
    File::options().create(true).append(true).open(folder()?.join("kept").join(name)).ok()
}

fn folder() -> Option<PathBuf> {
    env::var_os("HELIO_STRESS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

fn lock(folder: &Path) -> io::Result<File> {
    let lock = File::options().create(true).append(true).open(folder.join("held/lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn counted(elapsed: Duration, said: &str, now: Duration) -> Duration {
    let said = said.trim();
    if said == "paused" {
        return Duration::ZERO;
    }
    let resumed = said.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    resumed.map_or(elapsed, |resumed| elapsed.min(now.saturating_sub(resumed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_a_pause_all_time_counts() {
        assert_eq!(counted(7 * SECOND, "", 1_000 * SECOND), 7 * SECOND);
        assert_eq!(counted(7 * SECOND, "990.0\n", 1_000 * SECOND), 7 * SECOND, "it was before");
    }

    #[test]
    fn time_counts_from_the_end_of_the_last_pause() {
        assert_eq!(counted(7 * SECOND, "paused\n", 1_000 * SECOND), Duration::ZERO);
        assert_eq!(counted(7 * SECOND, "998.0\n", 1_000 * SECOND), 2 * SECOND);
    }
}

use super::TelemetryError;
use super::logs::parse_level;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing_subscriber::{EnvFilter, Registry, reload};

/// How much this process logs, which can be changed while it runs. Clones are the same.
#[derive(Clone)]
pub struct Logging(Arc<Inner>);

struct Inner {
    filter: reload::Handle<EnvFilter, Registry>,
    /// What the settings say, and what it goes back to.
    configured: String,
    change: Mutex<Option<Change>>,
}

/// Another level than the configured one.
struct Change {
    level: String,
    /// When it ends, and who ends it.
    end: Option<(Instant, AbortHandle)>,
}

/// Longer levels are no typing errors.
const LONGEST_LEVEL: usize = 1024;
/// A day is long for a visit, and a deadline beyond what a clock can tell would be none.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);

impl Logging {
    pub(super) fn new(filter: reload::Handle<EnvFilter, Registry>, configured: &str) -> Self {
        let (configured, change) = (configured.to_owned(), Mutex::default());
        Self(Arc::new(Inner { filter, configured, change }))
    }

    /// Sets the log level from now on, or for a time. It replaces any earlier change. To be called within a runtime,
    /// which ends the change.
    pub fn set(&self, level: &str, time: Option<Duration>) -> Result<(), TelemetryError> {
        if level.len() > LONGEST_LEVEL {
            return Err(TelemetryError::LongLevel { most: LONGEST_LEVEL });
        }
        if time.is_some_and(|time| time > LONGEST_TIME) {
            return Err(TelemetryError::LongTime { hours: LONGEST_TIME.as_secs() / 3600 });
        }
        let filter = parse_level(level)
            .map_err(|reason| TelemetryError::Level { level: level.to_owned(), reason })?;
        let mut change = self.change();
        if let Some(Change { end: Some((_, timer)), .. }) = &*change {
            timer.abort();
        }
        self.0.filter.reload(filter).map_err(|_| TelemetryError::Gone)?;
        let end = time.map(|time| Instant::now() + time);
        let end = end.map(|end| (end, self.reset_at(end)));
        let is_other = level != self.0.configured || end.is_some();
        *change = is_other.then(|| Change { level: level.to_owned(), end });
        drop(change);
        tracing::info!("the log level is now: {self}");
        Ok(())
    }

    fn reset_at(&self, end: Instant) -> AbortHandle {
        let logging = self.clone();
        let timer = tokio::spawn(async move {
            sleep_until(end).await;
            logging.reset(end);
        });
        timer.abort_handle()
    }

    fn reset(&self, at: Instant) {
        let mut change = self.change();
        // A change meanwhile could not stop this task any more.
        let is_ours = matches!(&*change, Some(Change { end: Some((end, _)), .. }) if *end == at);
        // It was accepted when the program started.
        if let (true, Ok(filter)) = (is_ours, parse_level(&self.0.configured)) {
            let _ = self.0.filter.reload(filter);
            *change = None;
            drop(change);
            tracing::info!("the log level is now: {self}");
        }
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn change(&self) -> MutexGuard<'_, Option<Change>> {
        self.0.change.lock()
    }
}

/// `info`, or `debug for another 598s, then info`.
impl fmt::Display for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let configured = &self.0.configured;
        match &*self.change() {
            None => f.write_str(configured),
            Some(Change { level, end: None }) => write!(f, "{level}, configured: {configured}"),
            Some(Change { level, end: Some((end, _)) }) => {
                let left = end.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
                write!(f, "{level} for another {left}s, then {configured}")
            }
        }
    }
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logging({self})")
    }
}

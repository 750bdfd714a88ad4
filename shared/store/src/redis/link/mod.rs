//! Connections to Redis that recover by themselves.
//!
//! A [`Link`] is opened by its first use and again whenever it fails, with a new lookup of everything: credentials,
//! certificates, the master that the Sentinels name, the nodes of the Cluster. So a rotated password, a failover or a
//! repaired server needs no restart. A [`Listener`] does the same for a channel.

mod connect;
mod error;
mod listener;
mod settings;
mod state;
mod url;

pub use connect::RedisConnection;
pub use error::{LinkError, LinkErrorKind};
pub use listener::{ChannelListener, ListenerEvent};
pub use settings::{RedisArgs, RedisSettings, RedisSettingsError, StoreUrl};
pub use url::{Mode, ServerAddress, UrlError};

use self::error::ClassifiedError;
use self::state::{Attempt, ConnectionState, OpenConnection, OutageEvent, Step};
use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult};
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};

/// A connection to Redis for any number of concurrent users, which share it.
///
/// Cheap to clone. It lives in a tokio runtime.
#[derive(Clone, Debug)]
pub struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: RedisSettings,
    state: Mutex<ConnectionState<RedisConnection>>,
}

impl Link {
    /// Connects to nothing yet, so it works without a Redis.
    pub fn new(settings: RedisSettings) -> Self {
        // rustls panics if it has to guess a provider; the first that was installed stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            shared: Arc::new(Shared { settings, state: Mutex::new(ConnectionState::default()) }),
        }
    }

    pub fn mode(&self) -> Mode {
        self.shared.settings.mode()
    }

    pub fn settings(&self) -> &RedisSettings {
        &self.shared.settings
    }

    /// Whether an outage of Redis was reported, and not its end yet.
    pub fn is_away(&self) -> bool {
        self.shared.state().is_away()
    }

    /// Does some work on the connection. `work` is not repeated: the caller decides whether to retry, since only it
    /// knows what a lost reply means ([`LinkError::outcome_unknown`]).
    ///
    /// Fails at once while Redis is unreachable and the next attempt to connect is not due, at most two seconds.
    ///
    /// Commands that are polled together, as with `join_all`, are sent together, in every mode: a thousand of them take
    /// some milliseconds, about twice as long as one pipeline. A `redis::Pipeline` works too, but in a Cluster only if all
    /// its keys are in one slot, which for this store means: of one fleet.
    pub async fn run<T, W, F>(&self, work: W) -> Result<T, LinkError>
    where
        W: FnOnce(RedisConnection) -> F,
        F: Future<Output = RedisResult<T>>,
    {
        let open = self.shared.connection().await?;
        match work(open.connection.clone()).await {
            Ok(value) => {
                self.shared.worked(&open);
                Ok(value)
            }
            Err(error) => Err(self.shared.failed(&open, &error)),
        }
    }

    /// One command.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LinkError> {
        self.run(|mut connection| async move { command.query_async(&mut connection).await }).await
    }

    /// Listens to a channel on a connection of its own, from now until the listener is dropped.
    pub fn listen(&self, channel: impl Into<String>) -> ChannelListener {
        ChannelListener::start(self.shared.settings.clone(), channel.into())
    }
}

impl Shared {
    async fn connection(self: &Arc<Self>) -> Result<OpenConnection<RedisConnection>, LinkError> {
        let attempt = {
            let mut state = self.state();
            match state.next_step(Instant::now()) {
                Step::Use(open) => return Ok(open),
                Step::Refuse(error) => return Err(error),
                Step::Join(attempt) => attempt,
                Step::Open => {
                    let attempt = self.open();
                    state.begin(attempt.clone());
                    attempt
                }
            }
        };
        attempt.await
    }

    /// In a task of its own, so that it completes even if its caller stops waiting.
    fn open(self: &Arc<Self>) -> Attempt<RedisConnection> {
        let shared = self.clone();
        let task = tokio::spawn(async move {
            let outcome = connect::open(&shared.settings).await;
            let (outcome, event) = shared.state().opened(outcome, Instant::now(), fastrand::f64());
            shared.report(event);
            outcome
        });
        let ended = |_| Err(LinkError::ended());
        task.map(move |joined| joined.unwrap_or_else(ended)).boxed().shared()
    }

    fn worked(&self, open: &OpenConnection<RedisConnection>) {
        let event = self.state().worked(open, Instant::now());
        self.report(event);
    }

    fn failed(&self, open: &OpenConnection<RedisConnection>, error: &RedisError) -> LinkError {
        let ClassifiedError { error, connection } =
            error::classify(error, &open.server, self.settings.mode());
        let event = self.state().failed(open, &error, connection, Instant::now(), fastrand::f64());
        self.report(event);
        error
    }

    fn report(&self, event: Option<OutageEvent>) {
        match event {
            None => {}
            Some(OutageEvent::Away(error)) => warn!("{error}; retrying"),
            Some(OutageEvent::Back(after)) => {
                info!("Redis at {} is back after {} s", self.settings, after.as_secs());
            }
        }
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn state(&self) -> MutexGuard<'_, ConnectionState<RedisConnection>> {
        self.state.lock()
    }
}

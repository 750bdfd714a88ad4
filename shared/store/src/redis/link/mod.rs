//! Connections to Redis that recover by themselves.
//!
//! A [`Link`] is opened by its first use and whenever it is of no more use, with everything looked up anew: credentials,
//! certificates, the master that the Sentinels name, the nodes of the Cluster. So a rotated password, a failover or a
//! mended server needs no restart. A [`Listener`] does the same for a channel.

mod connect;
mod error;
mod listener;
mod settings;
mod state;
mod url;

pub use connect::Connection;
pub use error::{LinkError, LinkErrorKind};
pub use listener::{Heard, Listener};
pub use settings::{RedisArgs, RedisSettings, SettingsError, StoreUrl};
pub use url::{Address, Mode, UrlError};

use self::error::Judgement;
use self::state::{Attempt, Held, Notice, State, Step};
use futures::FutureExt as _;
use redis::{Cmd, FromRedisValue, RedisError, RedisResult};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    state: Mutex<State<Connection>>,
}

impl Link {
    /// Connects to nothing yet, so it works without a Redis.
    pub fn new(settings: RedisSettings) -> Self {
        // rustls panics if it has to guess a provider; whoever installed one first has won.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { shared: Arc::new(Shared { settings, state: Mutex::new(State::default()) }) }
    }

    pub fn mode(&self) -> Mode {
        self.shared.settings.mode()
    }

    pub fn settings(&self) -> &RedisSettings {
        &self.shared.settings
    }

    /// Whether the operator was told that Redis is away, and not yet that it is back.
    pub fn is_away(&self) -> bool {
        self.shared.state().is_away()
    }

    /// Does some work on the connection. `work` is not repeated: whether to try again is up to the caller, who knows what
    /// a lost reply means ([`LinkError::outcome_unknown`]).
    ///
    /// Fails at once while Redis is away and the next try to connect is not due, at most two seconds.
    ///
    /// Commands that are polled together, as with `join_all`, are sent together, in every mode: a thousand of them take
    /// some milliseconds, about twice as long as one pipeline. A `redis::Pipeline` works too, but in a Cluster only if all
    /// its keys are in one slot, which for this store means: of one fleet.
    pub async fn run<T, W, F>(&self, work: W) -> Result<T, LinkError>
    where
        W: FnOnce(Connection) -> F,
        F: Future<Output = RedisResult<T>>,
    {
        let held = self.shared.connection().await?;
        match work(held.connection.clone()).await {
            Ok(value) => {
                self.shared.worked(&held);
                Ok(value)
            }
            Err(error) => Err(self.shared.failed(&held, &error)),
        }
    }

    /// One command.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LinkError> {
        self.run(|mut connection| async move { command.query_async(&mut connection).await }).await
    }

    /// Listens to a channel on a connection of its own, from now until the listener is dropped.
    pub fn listen(&self, channel: impl Into<String>) -> Listener {
        Listener::start(self.shared.settings.clone(), channel.into())
    }
}

impl Shared {
    async fn connection(self: &Arc<Self>) -> Result<Held<Connection>, LinkError> {
        let attempt = {
            let mut state = self.state();
            match state.next_step(Instant::now()) {
                Step::Use(held) => return Ok(held),
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

    /// In a task of its own, so that it ends even if nobody waits for it any more.
    fn open(self: &Arc<Self>) -> Attempt<Connection> {
        let shared = self.clone();
        let task = tokio::spawn(async move {
            let outcome = connect::open(&shared.settings).await;
            let (outcome, notice) = shared.state().opened(outcome, Instant::now(), fastrand::f64());
            shared.tell(notice);
            outcome
        });
        let ended = |_| Err(LinkError::ended());
        task.map(move |joined| joined.unwrap_or_else(ended)).boxed().shared()
    }

    fn worked(&self, held: &Held<Connection>) {
        let notice = self.state().worked(held, Instant::now());
        self.tell(notice);
    }

    fn failed(&self, held: &Held<Connection>, error: &RedisError) -> LinkError {
        let Judgement { error, connection } =
            error::judge(error, &held.place, self.settings.mode());
        let notice = self.state().failed(held, &error, connection, Instant::now(), fastrand::f64());
        self.tell(notice);
        error
    }

    fn tell(&self, notice: Option<Notice>) {
        match notice {
            None => {}
            Some(Notice::Away(error)) => warn!("{error}; trying again"),
            Some(Notice::Back(after)) => {
                info!("Redis at {} is back after {} s", self.settings, after.as_secs());
            }
        }
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn state(&self) -> MutexGuard<'_, State<Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Decides when to connect, what callers get meanwhile, and what to report to the operator: without IO, with time and
//! jitter as values.

use super::error::{ConnectionAction, LinkError, LinkErrorKind};
use futures::future::{BoxFuture, Shared};
use heliograph_shared::backoff::Backoff;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection, its number and the server that it leads to.
#[derive(Clone, Debug)]
pub(super) struct OpenConnection<C> {
    pub(super) connection: C,
    pub(super) server: Arc<str>,
    number: u64,
}

/// A connection that is being made; all who wait for it share it.
pub(super) type Attempt<C> = Shared<BoxFuture<'static, Result<OpenConnection<C>, LinkError>>>;

/// The next step of a caller that needs a connection.
pub(super) enum Step<C> {
    Use(OpenConnection<C>),
    Join(Attempt<C>),
    /// Begin an attempt, and join it.
    Open,
    /// It was tried just now, with this result.
    Refuse(LinkError),
}

/// An event for the operator: once for an outage, not once for an attempt.
#[derive(Debug)]
pub(super) enum OutageEvent {
    Away(LinkError),
    Back(Duration),
}

#[derive(Debug)]
pub(super) struct ConnectionState<C> {
    open: Option<OpenConnection<C>>,
    /// When it was opened.
    since: Option<Instant>,
    /// A better one is wanted, see [`ConnectionAction::Doubt`].
    doubted: bool,
    attempt: Option<Attempt<C>>,
    opened: u64,
    /// How many attempts in a row led to nothing that lasted.
    failures: u32,
    /// The next attempt is not made earlier.
    not_before: Option<Instant>,
    /// Why there is no connection.
    last_error: Option<LinkError>,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    began: Instant,
    /// The last error that was reported.
    reported: LinkErrorKind,
}

/// With jitter, so that many programs do not come back at once.
pub(super) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

impl<C> Default for ConnectionState<C> {
    fn default() -> Self {
        Self {
            open: None,
            since: None,
            doubted: false,
            attempt: None,
            opened: 0,
            failures: 0,
            not_before: None,
            last_error: None,
            outage: None,
        }
    }
}

impl<C: Clone> ConnectionState<C> {
    pub(super) fn next_step(&self, now: Instant) -> Step<C> {
        let early = self.not_before.is_some_and(|at| now < at);
        match (&self.open, &self.attempt) {
            (Some(open), _) if !self.doubted || early => Step::Use(open.clone()),
            // A better one is being opened.
            (Some(open), Some(_)) => Step::Use(open.clone()),
            (None, Some(attempt)) => Step::Join(attempt.clone()),
            (_, None) if !early => Step::Open,
            (_, None) => Step::Refuse(match &self.last_error {
                Some(error) => error.not_sent(),
                None => LinkError::ended(),
            }),
        }
    }

    pub(super) fn begin(&mut self, attempt: Attempt<C>) {
        self.attempt = Some(attempt);
    }

    /// The attempt is over.
    pub(super) fn opened(
        &mut self,
        outcome: Result<(C, Arc<str>), LinkError>,
        now: Instant,
        jitter: f64,
    ) -> (Result<OpenConnection<C>, LinkError>, Option<OutageEvent>) {
        self.attempt = None;
        match outcome {
            Ok((connection, server)) => {
                self.opened += 1;
                let open = OpenConnection { connection, server, number: self.opened };
                self.open = Some(open.clone());
                self.since = Some(now);
                self.doubted = false;
                // Not yet a success: see `worked` and `failed`.
                self.not_before = None;
                (Ok(open), None)
            }
            Err(error) => {
                self.wait(now, jitter);
                self.last_error = Some(error.clone());
                let event = self.away(&error, now);
                let outcome = match &self.open {
                    Some(doubted) => Ok(doubted.clone()),
                    None => Err(error),
                };
                (outcome, event)
            }
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.outage.is_some()
    }

    /// A command was obeyed over this connection.
    pub(super) fn worked(&mut self, open: &OpenConnection<C>, now: Instant) -> Option<OutageEvent> {
        if !self.is_current(open) || self.doubted {
            return None;
        }
        let outage = self.outage.take()?;
        Some(OutageEvent::Back(now.saturating_duration_since(outage.began)))
    }

    /// A command failed over this connection.
    pub(super) fn failed(
        &mut self,
        open: &OpenConnection<C>,
        error: &LinkError,
        action: ConnectionAction,
        now: Instant,
        jitter: f64,
    ) -> Option<OutageEvent> {
        // Others who used it have said so already.
        let known = !self.is_current(open) || self.doubted && action == ConnectionAction::Doubt;
        if action == ConnectionAction::Keep || known {
            return None;
        }
        // A connection that breaks as soon as it is made counts as one that was not made, or a server that accepts every
        // connection and closes it would get one after the other.
        let lived = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if lived < BACKOFF.longest {
            self.wait(now, jitter);
        } else {
            self.failures = 0;
            self.not_before = None;
        }
        self.last_error = Some(error.clone());
        match action {
            ConnectionAction::Keep => None,
            ConnectionAction::Doubt => {
                self.doubted = true;
                None
            }
            ConnectionAction::Drop => {
                self.open = None;
                self.away(error, now)
            }
        }
    }

    fn is_current(&self, open: &OpenConnection<C>) -> bool {
        self.open.as_ref().is_some_and(|current| current.number == open.number)
    }

    fn wait(&mut self, now: Instant, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + BACKOFF.jittered(self.failures, jitter));
    }

    /// Reports an outage once, and again if it is something else that has to be repaired.
    fn away(&mut self, error: &LinkError, now: Instant) -> Option<OutageEvent> {
        let reported = error.kind;
        let began = match &self.outage {
            Some(outage) if outage.reported == reported => return None,
            Some(outage) => outage.began,
            None => now,
        };
        self.outage = Some(Outage { began, reported });
        Some(OutageEvent::Away(error.not_sent()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    /// A state, a clock, and what was reported to the operator.
    struct Story {
        state: ConnectionState<u32>,
        now: Instant,
        reported: Vec<String>,
    }

    fn error(kind: LinkErrorKind) -> LinkError {
        LinkError::before_sending(kind, kind)
    }

    impl Story {
        fn new() -> Self {
            Self { state: ConnectionState::default(), now: Instant::now(), reported: Vec::new() }
        }

        fn pass(&mut self, ms: u64) {
            self.now += Duration::from_millis(ms);
        }

        fn step(&self) -> String {
            match self.state.next_step(self.now) {
                Step::Use(open) => format!("use {}", open.connection),
                Step::Join(_) => "join".to_owned(),
                Step::Open => "open".to_owned(),
                Step::Refuse(error) => format!("refuse {error}"),
            }
        }

        fn begin(&mut self) {
            assert_eq!(self.step(), "open");
            self.state.begin(std::future::pending().boxed().shared());
        }

        fn open(&mut self, outcome: Result<u32, LinkErrorKind>) -> Option<OpenConnection<u32>> {
            self.begin();
            let outcome = outcome.map(|number| (number, "here".into())).map_err(error);
            let (outcome, event) = self.state.opened(outcome, self.now, 1.0);
            self.report(event);
            outcome.ok()
        }

        fn work(&mut self, open: &OpenConnection<u32>) {
            let event = self.state.worked(open, self.now);
            self.report(event);
        }

        fn fail(
            &mut self,
            open: &OpenConnection<u32>,
            kind: LinkErrorKind,
            action: ConnectionAction,
        ) {
            let event = self.state.failed(open, &error(kind), action, self.now, 1.0);
            self.report(event);
        }

        fn report(&mut self, event: Option<OutageEvent>) {
            self.reported.extend(event.map(|event| match event {
                OutageEvent::Away(error) => format!("away: {error}"),
                OutageEvent::Back(after) => format!("back after {} ms", after.as_millis()),
            }));
        }
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_spread() {
        let ms = |failures, jitter| BACKOFF.jittered(failures, jitter).as_millis();
        assert_eq!(
            [1, 2, 3, 6, 7, u32::MAX].map(|failures| ms(failures, 1.0)),
            [50, 100, 200, 1600, 2000, 2000]
        );
        assert_eq!([0.0, 0.5].map(|jitter| ms(2, jitter)), [50, 75]);
    }

    #[test]
    fn who_comes_meanwhile_waits_for_the_same_attempt() {
        let mut story = Story::new();
        story.begin();
        assert_eq!(story.step(), "join");
    }

    #[test]
    fn an_outage_is_reported_once_and_tried_ever_less() {
        let mut story = Story::new();
        for pause in [50, 100, 200] {
            assert!(story.open(Err(LinkErrorKind::Unavailable)).is_none());
            assert_eq!(story.step(), "refuse unavailable");
            story.pass(pause);
        }
        let open = story.open(Ok(1)).unwrap();
        assert_eq!(story.reported, ["away: unavailable"], "a connection alone is not worth a word");
        story.work(&open);
        story.work(&open);
        assert_eq!(story.reported, ["away: unavailable", "back after 350 ms"]);
    }

    #[test]
    fn another_reason_is_reported_too() {
        let mut story = Story::new();
        for kind in [LinkErrorKind::Unavailable, LinkErrorKind::Auth, LinkErrorKind::Auth] {
            story.open(Err(kind));
            story.pass(2000);
        }
        assert_eq!(story.reported, ["away: unavailable", "away: auth"]);
    }

    #[test]
    fn a_connection_that_lasted_is_replaced_at_once() {
        let mut story = Story::new();
        let open = story.open(Ok(1)).unwrap();
        story.pass(2000);
        story.fail(&open, LinkErrorKind::Unavailable, ConnectionAction::Drop);
        assert_eq!(story.step(), "open");
    }

    #[test]
    fn connections_that_do_not_last_are_replaced_ever_less() {
        let mut story = Story::new();
        for pause in [50, 100, 200] {
            let open = story.open(Ok(1)).unwrap();
            story.fail(&open, LinkErrorKind::Unavailable, ConnectionAction::Drop);
            story.pass(pause - 1);
            assert_eq!(story.step(), "refuse unavailable");
            story.pass(1);
        }
        assert_eq!(story.reported, ["away: unavailable"]);
    }

    #[test]
    fn a_doubted_connection_serves_until_there_is_a_better_one() {
        let mut story = Story::new();
        let first = story.open(Ok(1)).unwrap();
        story.fail(&first, LinkErrorKind::ReadOnly, ConnectionAction::Doubt);
        assert_eq!(story.step(), "use 1");
        story.pass(50);
        story.begin();
        assert_eq!(story.step(), "use 1", "nobody else waits");
        let failed = story.state.opened(Err(error(LinkErrorKind::Unavailable)), story.now, 1.0);
        assert_eq!(failed.0.unwrap().connection, 1);
        story.pass(100);
        story.open(Ok(2));
        assert_eq!(story.step(), "use 2");
        story.fail(&first, LinkErrorKind::Unavailable, ConnectionAction::Drop);
        assert_eq!(story.step(), "use 2", "late news of the first");
    }

    #[test]
    fn a_doubted_connection_may_still_break() {
        let mut story = Story::new();
        let open = story.open(Ok(1)).unwrap();
        story.fail(&open, LinkErrorKind::ReadOnly, ConnectionAction::Doubt);
        story.fail(&open, LinkErrorKind::Unavailable, ConnectionAction::Drop);
        assert_eq!(story.step(), "refuse unavailable");
    }

    #[test]
    fn a_refusal_says_nothing_about_the_connection() {
        let mut story = Story::new();
        let open = story.open(Ok(1)).unwrap();
        story.fail(&open, LinkErrorKind::OutOfMemory, ConnectionAction::Keep);
        assert_eq!(story.step(), "use 1");
        assert!(story.reported.is_empty());
    }
}

//! Which of several translators leads: the one that holds a Lease.
//!
//! The crate that asks for the Lease can let two candidates lead, and waits for an answer without a limit. So
//! [`Candidacy`] trusts an answer only if it names us, and for no longer than the Lease would last if the call had been
//! answered at once; every call has a time limit; and the term's fence makes the store reject a leader whose term is
//! over.

mod candidacy;

pub use candidacy::Lead;

use crate::metrics::ElectionMetrics;
use candidacy::Candidacy;
use heliograph_shared::duration;
use kube::Client;
use kube_leader_election::{Error as LeaseError, LeaseLock, LeaseLockParams};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The time limit for giving the Lease back when the program ends. Others can wait until it runs out.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The flags of the election.
#[derive(Clone, Debug, clap::Args)]
pub struct ElectionArgs {
    /// Name of the Lease for leader election
    #[arg(
        long,
        help_heading = "Election",
        env = "HELIO_LEASE_NAME",
        value_name = "NAME",
        default_value = "heliograph-translator"
    )]
    pub lease_name: String,

    /// Namespace of the Lease [default: that of this pod, or of the kubeconfig's context]
    #[arg(
        long,
        help_heading = "Election",
        env = "HELIO_LEASE_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub lease_namespace: Option<String>,

    /// How long the Lease lasts: a leader that does not renew it loses it after this time; in whole seconds, at least 3s
    #[arg(
        long,
        help_heading = "Election",
        env = "HELIO_LEASE_DURATION",
        value_name = "DURATION",
        value_parser = lease_duration,
        default_value = "15s"
    )]
    pub lease_duration: Duration,
}

/// A candidate, for as long as the program runs.
pub struct Election {
    lock: LeaseLock,
    /// Its namespace and name, for people.
    lease: String,
    candidacy: Candidacy,
    leadership: watch::Sender<Option<Lead>>,
    resign: Resign,
    metrics: ElectionMetrics,
    failure_log: LeaseFailureLog,
}

/// Logs when asking for the Lease begins to fail, and when it succeeds again. Not a `FailureLog` of `heliograph-shared`: how often
/// the Lease may fail before that is logged depends on whether this translator leads.
#[derive(Debug, Default)]
struct LeaseFailureLog {
    /// In a row.
    failures: u32,
    logged: bool,
}

/// Gives up the lead.
#[derive(Clone, Debug, Default)]
pub struct Resign(Arc<Notify>);

/// Whether to ask again.
enum Turn {
    Ask,
    Resign,
    Stop,
}

impl Election {
    pub fn new(client: Client, args: &ElectionArgs, metrics: ElectionMetrics) -> Self {
        let ttl = args.lease_duration;
        let name = identity();
        let namespace =
            args.lease_namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let params = LeaseLockParams {
            lease_name: args.lease_name.clone(),
            holder_id: name.clone(),
            lease_ttl: ttl,
        };
        Self {
            lease: format!("{namespace}/{}", args.lease_name),
            lock: LeaseLock::new(client, &namespace, params),
            candidacy: Candidacy::new(name, ttl),
            leadership: watch::Sender::new(None),
            resign: Resign::default(),
            metrics,
            failure_log: LeaseFailureLog::default(),
        }
    }

    /// The lease of the current term, while this translator leads.
    pub fn leadership(&self) -> watch::Receiver<Option<Lead>> {
        self.leadership.subscribe()
    }

    pub fn resign(&self) -> Resign {
        self.resign.clone()
    }

    /// Asks for the Lease again and again, until it is stopped; then it is given back.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        tracing::info!(candidate = self.candidacy.name(), "standing for election");
        loop {
            let asked = Instant::now();
            match self.ask(asked, &stop).await {
                Turn::Ask => {}
                Turn::Resign => {
                    self.step_down().await;
                    // Other candidates get time to lead.
                    let pause = self.candidacy.ttl();
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = sleep(pause) => {}
                    }
                }
                Turn::Stop => {
                    self.step_down().await;
                    return Ok(());
                }
            }
        }
    }

    /// Asks for the Lease once, and waits until it is time to ask again.
    async fn ask(&mut self, asked: Instant, stop: &CancellationToken) -> Turn {
        let limit = self.candidacy.call_limit();
        let next = asked + self.candidacy.pause(fastrand::f64());
        let mut call = std::pin::pin!(timeout(limit, self.lock.try_acquire_or_renew()));
        let mut answered = false;
        loop {
            let until = self.candidacy.lead().map(|lead| lead.until);
            tokio::select! {
                // In this order, so that a term that is over is not kept by an answer that came late.
                biased;
                () = stop.cancelled() => return Turn::Stop,
                () = self.resign.asked() => return Turn::Resign,
                () = sleep_until(until.unwrap_or(asked)), if until.is_some() => {
                    self.candidacy.overdue(Instant::now());
                    publish(&self.leadership, &self.candidacy, &self.metrics);
                }
                answer = &mut call, if !answered => {
                    answered = true;
                    let failure = match answer {
                        Ok(Ok(answer)) => answer
                            .lease()
                            .and_then(|lease| self.candidacy.receive(asked, lease).err())
                            .map(|refusal| refusal.to_string()),
                        Ok(Err(error)) => Some(in_words(&error)),
                        Err(_) => Some(format!("no answer within {limit:?}")),
                    };
                    if failure.is_some() {
                        self.metrics.failed();
                    }
                    self.failure_log.record(&self.lease, self.candidacy.lead().is_some(), failure);
                    publish(&self.leadership, &self.candidacy, &self.metrics);
                }
                () = sleep_until(next), if answered => return Turn::Ask,
            }
        }
    }

    /// Ends the term, then releases the Lease, so that the next leader need not wait until it expires.
    async fn step_down(&mut self) {
        let is_ours = self.candidacy.give_up(Instant::now());
        publish(&self.leadership, &self.candidacy, &self.metrics);
        if !is_ours {
            return;
        }
        let limit = self.candidacy.call_limit().min(STEP_DOWN_TIMEOUT);
        match timeout(limit, self.lock.step_down()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the Lease could not be released: {error}"),
            Err(_) => tracing::warn!("the Lease could not be released: no response"),
        }
    }
}

impl Resign {
    /// For a leader that the store refuses: another translator may succeed, and the next term has another fence.
    pub fn resign(&self) {
        self.0.notify_one();
    }

    /// For who is to answer: waits until it is asked.
    pub async fn asked(&self) {
        self.0.notified().await;
    }
}

/// Runs what only a leader does, once for each term, until it is stopped. The token that `begin` gets is cancelled when the
/// term is over, and the next one begins when all of the last one has ended.
pub async fn each_term<F: Future<Output = ()>>(
    mut leadership: watch::Receiver<Option<Lead>>,
    stop: CancellationToken,
    mut begin: impl FnMut(Lead, CancellationToken) -> F,
) -> Result<(), Infallible> {
    loop {
        let lead = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            lead = won(&mut leadership) => lead,
        };
        // Also cancelled by `stop`.
        let term = stop.child_token();
        let work = begin(lead, term.clone());
        let over = async {
            tokio::select! {
                () = lost(&mut leadership, lead.fence) => term.cancel(),
                () = term.cancelled() => {}
            }
        };
        tokio::join!(work, over);
    }
}

/// Waits until this candidate leads.
pub(crate) async fn won(leadership: &mut watch::Receiver<Option<Lead>>) -> Lead {
    let is_valid = |lead: &Option<Lead>| lead.is_some_and(|lead| Instant::now() < lead.until);
    loop {
        match leadership.wait_for(is_valid).await.map(|lead| *lead) {
            Ok(Some(lead)) => return lead,
            Ok(None) => {}
            // There is no candidate any more.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Waits until the term with this token is over.
pub(crate) async fn lost(leadership: &mut watch::Receiver<Option<Lead>>, fence: u128) {
    loop {
        let lead = *leadership.borrow_and_update();
        let Some(lead) = lead.filter(|lead| lead.fence == fence) else { return };
        tokio::select! {
            changed = leadership.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = sleep_until(lead.until) => return,
        }
    }
}

fn publish(
    leadership: &watch::Sender<Option<Lead>>,
    candidacy: &Candidacy,
    metrics: &ElectionMetrics,
) {
    let (before, now) = (*leadership.borrow(), candidacy.lead());
    if before == now {
        return;
    }
    leadership.send_replace(now);
    match (before, now) {
        (None, Some(lead)) => {
            metrics.leads(true);
            tracing::info!(fence = %lead.fence, "leads");
        }
        (Some(before), Some(lead)) if before.fence != lead.fence => {
            metrics.leads(true);
            tracing::warn!(fence = %lead.fence, "this translator leads again; another one led in between");
        }
        (Some(lead), None) => {
            metrics.leads(false);
            tracing::warn!(fence = %lead.fence, "does not lead any more, and is a standby");
        }
        _ => {}
    }
}

impl LeaseFailureLog {
    /// Logs a failure when failures begin and when they are over. A term outlasts one call that fails, so the first is not logged then.
    fn record(&mut self, lease: &str, leads: bool, failure: Option<String>) {
        let Some(failure) = failure else {
            let Self { logged, .. } = std::mem::take(self);
            if logged {
                tracing::info!("the Lease {lease} is available again");
            }
            return;
        };
        self.failures = self.failures.saturating_add(1);
        let failure = one_line(&failure);
        match (self.logged, leads) {
            (true, _) => return,
            (false, true) if self.failures == 1 => {
                return tracing::debug!("the Lease {lease} was not renewed: {failure}");
            }
            (false, true) => tracing::warn!("the Lease {lease} cannot be renewed: {failure}"),
            (false, false) => tracing::error!("the Lease {lease} cannot be acquired: {failure}"),
        }
        self.logged = true;
    }
}

/// The API's error, with the remedy.
fn in_words(error: &LeaseError) -> String {
    let refused = match error {
        LeaseError::ApiError { response } => Some(&**response),
        LeaseError::GetLease(error)
        | LeaseError::CreateLease(error)
        | LeaseError::AcquireLease(error)
        | LeaseError::RenewLease(error)
        | LeaseError::ReleaseLease(error)
        | LeaseError::Kube(error) => match error {
            kube::Error::Api(status) => Some(&**status),
            _ => None,
        },
        _ => None,
    };
    match refused.filter(|status| status.code == 403) {
        Some(status) => {
            let words = one_line(&status.message);
            format!("grant this account get, create and patch on leases there ({words})")
        }
        None => one_line(&error.to_string()).to_owned(),
    }
}

fn one_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The holder in the Lease: the pod, and a random part, since a container that is started again is another candidate.
fn identity() -> String {
    const LONGEST: usize = 128;
    let pod = std::env::var("HOSTNAME").unwrap_or_else(|_| "translator".to_owned());
    let suffix = format!("{:016x}", fastrand::u64(..));
    let pod: String = pod.chars().filter(char::is_ascii_graphic).take(LONGEST - 17).collect();
    format!("{pod}-{suffix}")
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_secs(3) || duration.subsec_nanos() != 0 {
        return Err("the duration of a Lease must be in whole seconds, at least 3s".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_of_one_pod_have_names_of_their_own() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        assert!(one.len() <= 128 && one.is_ascii(), "{one}");
    }

    #[test]
    fn a_lease_lasts_for_whole_seconds() {
        assert_eq!(lease_duration("15s"), Ok(Duration::from_secs(15)));
        assert!(lease_duration("2s").is_err());
        assert!(lease_duration("4500ms").is_err());
    }

    #[test]
    fn rights_are_advised_where_they_are_missing() {
        let answer = |code| {
            let status = kube::core::Status::failure("in its words\nand more", "Reason");
            in_words(&LeaseError::RenewLease(kube::Error::Api(status.with_code(code).boxed())))
        };
        assert_eq!(
            answer(403),
            "grant this account get, create and patch on leases there (in its words)"
        );
        assert!(!answer(500).contains("allow"), "{}", answer(500));
    }

    #[test]
    fn one_call_that_fails_within_a_term_is_not_told() {
        let failed = || Some("no answer".to_owned());
        let mut failure_log = LeaseFailureLog::default();
        failure_log.record("a/b", true, failed());
        assert!(!failure_log.logged);
        failure_log.record("a/b", true, failed());
        assert!(failure_log.logged);
        failure_log.record("a/b", true, None);
        assert!(!failure_log.logged && failure_log.failures == 0);
        failure_log.record("a/b", false, failed());
        assert!(failure_log.logged, "who does not lead has nothing to outlast it");
    }

    fn lead(fence: u128) -> Lead {
        Lead { fence, until: Instant::now() + Duration::from_secs(10) }
    }

    #[tokio::test(start_paused = true)]
    async fn each_term_is_ended_before_the_next_begins() {
        let (leadership, stop) = (watch::Sender::new(None), CancellationToken::new());
        let (log, mut logged) = tokio::sync::mpsc::unbounded_channel();
        let terms = each_term(leadership.subscribe(), stop.clone(), |lead, term| {
            let log = log.clone();
            async move {
                log.send(format!("{} begins", lead.fence)).unwrap();
                term.cancelled().await;
                log.send(format!("{} ends", lead.fence)).unwrap();
            }
        });
        let tasks = async {
            let mut next = async || logged.recv().await.unwrap();
            leadership.send_replace(Some(lead(7)));
            assert_eq!(next().await, "7 begins");
            leadership.send_replace(Some(lead(7)));
            leadership.send_replace(Some(lead(9)));
            assert_eq!(next().await, "7 ends");
            assert_eq!(next().await, "9 begins");
            // No translator renews the Lease.
            assert_eq!(next().await, "9 ends");
            leadership.send_replace(None);
            leadership.send_replace(Some(lead(12)));
            assert_eq!(next().await, "12 begins");
            stop.cancel();
        };
        tokio::join!(terms, tasks).0.unwrap();
    }
}

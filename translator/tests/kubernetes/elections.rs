//! Who leads, on a real API and on one that misleads. Time is the test's own where the API is in this process.

use crate::faulty::Faulty;
use crate::kubernetes::Kubernetes;
use crate::{DEADLINE, client};
use heliograph_translator::ElectionMetrics;
use heliograph_translator::election::{Election, ElectionArgs, Lead};
use kube::Client;
use prometheus::Registry;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

struct Candidate {
    leadership: watch::Receiver<Option<Lead>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    registry: Registry,
}

impl Candidate {
    fn start(client: Client, name: &str, seconds: u64) -> Self {
        let args = ElectionArgs {
            lease_name: name.to_owned(),
            lease_namespace: None,
            lease_duration: Duration::from_secs(seconds),
        };
        let registry = Registry::new();
        let metrics = ElectionMetrics::register(&registry).unwrap();
        let election = Election::new(client, &args, metrics);
        let (leadership, stop) = (election.leadership(), CancellationToken::new());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { election.run(stop).await.unwrap() }
        });
        Self { leadership, stop, task, registry }
    }

    async fn leads(&mut self) -> Lead {
        let wait = self.leadership.wait_for(Option::is_some);
        timeout(DEADLINE, wait).await.expect("it leads in time").unwrap().unwrap()
    }

    async fn stands_by(&mut self) {
        let wait = self.leadership.wait_for(Option::is_none);
        timeout(DEADLINE, wait).await.expect("it stands by in time").unwrap();
    }

    fn is_leader(&self) -> bool {
        self.leadership.borrow().is_some()
    }
}

#[tokio::test]
async fn one_leads_and_the_next_one_when_it_steps_down() {
    let cluster = Kubernetes::shared().await;
    let mut first = Candidate::start(client(&cluster).await, "one-leads", 10);
    let led = first.leads().await;
    let mut second = Candidate::start(client(&cluster).await, "one-leads", 10);
    first.stop.cancel();
    (&mut first.task).await.unwrap();
    assert!(!first.is_leader());
    let leads = second.leads().await;
    assert!(leads.fence > led.fence, "{leads:?} after {led:?}");
    let metrics =
        prometheus::TextEncoder::new().encode_to_string(&first.registry.gather()).unwrap();
    assert!(metrics.contains("heliograph_election_transitions_total 2"), "{metrics}");
    second.stop.cancel();
    second.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_names_another_holder_ends_the_term() {
    let api = Faulty::new();
    let mut candidate = Candidate::start(api.client(), "lease", 15);
    let led = candidate.leads().await;
    assert_eq!(led.fence, 101);
    api.usurp("another");
    candidate.stands_by().await;
    assert!(Instant::now() < led.until, "at once, and not when the term would have been over");
    assert_eq!(api.holder().as_deref(), Some("another"));
}

#[tokio::test(start_paused = true)]
async fn an_api_that_hangs_ends_the_term_before_the_lease_does() {
    let api = Faulty::new();
    let mut candidate = Candidate::start(api.client(), "lease", 15);
    let began = Instant::now();
    candidate.leads().await;
    api.hang(true);
    candidate.stands_by().await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(began.elapsed() >= Duration::from_secs(10), "but not at the first call that hangs");
    api.hang(false);
    let again = candidate.leads().await;
    assert!(again.fence > 101, "in a new term");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_take_an_expired_lease_at_once_one_leads() {
    let api = Faulty::new();
    api.expired_lease();
    api.let_meet(2);
    let mut candidates =
        [Candidate::start(api.client(), "lease", 15), Candidate::start(api.client(), "lease", 15)];
    let mut terms = Vec::new();
    for candidate in &mut candidates {
        terms.push(candidate.leads().await);
    }
    assert_ne!(terms[0].fence, terms[1].fence, "each has a token of its own");
    let loser = if terms[0].fence < terms[1].fence { 0 } else { 1 };
    candidates[loser].stands_by().await;
    assert!(candidates[1 - loser].is_leader(), "whose token is higher, the Lease names");
}

/// Each takes the Lease from the other again and again. A token is never had twice, and never a lower one.
#[tokio::test(start_paused = true)]
async fn with_clocks_an_hour_ahead_tokens_only_rise() {
    let api = Faulty::new();
    api.set_clocks_ahead(Duration::from_secs(3600));
    let terms = ["one", "other"].map(|_| {
        let mut candidate = Candidate::start(api.client(), "lease", 15);
        tokio::spawn(async move {
            let mut terms: Vec<u128> = Vec::new();
            while terms.len() < 3 {
                let is_new = |lead: &Option<Lead>| {
                    lead.is_some_and(|lead| terms.last() != Some(&lead.fence))
                };
                let wait = candidate.leadership.wait_for(is_new);
                let lead =
                    timeout(DEADLINE, wait).await.expect("a new term in time").unwrap().unwrap();
                terms.push(lead.fence);
            }
            terms
        })
    });
    let mut all = Vec::new();
    for terms in terms {
        let terms = terms.await.unwrap();
        assert!(terms.is_sorted_by(|earlier, later| earlier < later), "{terms:?}");
        all.extend(terms);
    }
    all.sort_unstable();
    assert!(all.is_sorted_by(|earlier, later| earlier < later), "{all:?}");
}

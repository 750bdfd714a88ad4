use heliograph_shared::backoff::upper_half;
use k8s_openapi::api::coordination::v1::Lease;
use std::time::Duration;
use tokio::time::Instant;

/// A term as a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The token of the term: the Lease's resourceVersion when it was won. A later term has a higher one.
    pub fence: u128,
    /// When it is over unless it is renewed. Nothing may be written after it.
    pub until: Instant,
}

/// The state of a candidate, which answers of the API change. It does no IO, and callers pass the time.
#[derive(Debug)]
pub(super) struct Candidacy {
    name: String,
    ttl: Duration,
    lead: Option<Lead>,
    /// How often the Lease had changed hands when the term began.
    transitions: Option<i32>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the Lease's resourceVersion {0:?} is not a number, so it cannot be a fence")]
    NotANumber(String),
}

impl Candidacy {
    pub(super) fn new(name: String, ttl: Duration) -> Self {
        Self { name, ttl, lead: None, transitions: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn lead(&self) -> Option<Lead> {
        self.lead
    }

    /// How long one call may take: then there is time for another one before the term is over.
    pub(super) fn call_limit(&self) -> Duration {
        self.ttl / 3
    }

    /// How long after a call the next one begins. `jitter` is from 0 to 1.
    pub(super) fn pause(&self, jitter: f64) -> Duration {
        match self.lead {
            Some(_) => self.ttl / 3,
            // A Lease that runs out, or is given back, is not left alone for long.
            None => upper_half(self.ttl / 6, jitter),
        }
    }

    /// Receives the Lease that answers a call which began at `asked`. An answer that we have acquired it is not enough:
    /// two candidates may get that answer. The holder is the one that the Lease names.
    pub(super) fn receive(&mut self, asked: Instant, lease: &Lease) -> Result<(), Refusal> {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if holder != Some(&self.name) {
            self.lead = None;
            return Ok(());
        }
        // The API may have counted from any moment since.
        let until = asked + self.ttl - self.margin();
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        if let Some(lead) = self.lead.as_mut().filter(|_| self.transitions == transitions) {
            lead.until = until;
            return Ok(());
        }
        // Also if we have led until now: another translator had the Lease in between, and its fence is higher than ours.
        self.lead = None;
        self.transitions = transitions;
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let fence = version.parse().map_err(|_| Refusal::NotANumber(version.to_owned()))?;
        self.lead = Some(Lead { fence, until });
        Ok(())
    }

    /// Ends the term if its time is up.
    pub(super) fn overdue(&mut self, now: Instant) {
        self.lead.take_if(|lead| lead.until <= now);
    }

    /// Ends the term. Says whether there was one that was not over.
    pub(super) fn give_up(&mut self, now: Instant) -> bool {
        self.lead.take().is_some_and(|lead| now < lead.until)
    }

    /// For what is under way when the term ends, and for clocks that do not run alike.
    fn margin(&self) -> Duration {
        self.ttl / 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    const TTL: Duration = Duration::from_secs(15);

    fn lease(holder: &str, version: &str) -> Lease {
        lease_of(holder, version, 1)
    }

    fn lease_of(holder: &str, version: &str, transitions: i32) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        let holder_identity = Some(holder.to_owned());
        let lease_transitions = Some(transitions);
        lease.spec = Some(LeaseSpec { holder_identity, lease_transitions, ..LeaseSpec::default() });
        lease
    }

    fn candidacy() -> Candidacy {
        Candidacy::new("me".to_owned(), TTL)
    }

    #[test]
    fn the_token_is_that_of_the_first_answer_and_the_deadline_that_of_the_last() {
        let (mut candidacy, start) = (candidacy(), Instant::now());
        candidacy.receive(start, &lease("me", "7")).unwrap();
        let until = start + Duration::from_secs(12);
        assert_eq!(candidacy.lead(), Some(Lead { fence: 7, until }));
        let later = start + Duration::from_secs(5);
        candidacy.receive(later, &lease("me", "9")).unwrap();
        let until = later + Duration::from_secs(12);
        assert_eq!(candidacy.lead(), Some(Lead { fence: 7, until }));
    }

    #[test]
    fn an_answer_that_names_another_holder_ends_the_term() {
        let (mut candidacy, start) = (candidacy(), Instant::now());
        candidacy.receive(start, &lease("other", "7")).unwrap();
        assert_eq!(candidacy.lead(), None);
        candidacy.receive(start, &lease("me", "8")).unwrap();
        candidacy.receive(start, &lease("other", "9")).unwrap();
        assert_eq!(candidacy.lead(), None);
        candidacy.receive(start, &lease("me", "10")).unwrap();
        assert_eq!(candidacy.lead().map(|lead| lead.fence), Some(10), "a new term");
        candidacy.receive(start, &Lease::default()).unwrap();
        assert_eq!(candidacy.lead(), None, "a Lease that names nobody");
    }

    #[test]
    fn a_lease_that_another_had_in_between_is_a_new_term() {
        let (mut candidacy, start) = (candidacy(), Instant::now());
        candidacy.receive(start, &lease_of("me", "7", 1)).unwrap();
        candidacy.receive(start, &lease_of("me", "9", 3)).unwrap();
        assert_eq!(candidacy.lead().map(|lead| lead.fence), Some(9));
        candidacy.receive(start, &lease_of("me", "11", 3)).unwrap();
        assert_eq!(candidacy.lead().map(|lead| lead.fence), Some(9));
    }

    #[test]
    fn a_term_that_is_not_renewed_ends_before_the_lease_does() {
        let (mut candidacy, start) = (candidacy(), Instant::now());
        candidacy.receive(start, &lease("me", "7")).unwrap();
        candidacy.overdue(start + Duration::from_secs(11));
        assert!(candidacy.lead().is_some());
        candidacy.overdue(start + Duration::from_secs(12));
        assert_eq!(candidacy.lead(), None);
        assert!(!candidacy.give_up(start), "there is nothing to give back");
        candidacy.receive(start, &lease("me", "8")).unwrap();
        assert!(!candidacy.give_up(start + TTL), "it may be another's by now");
        candidacy.receive(start, &lease("me", "9")).unwrap();
        assert!(candidacy.give_up(start));
    }

    #[test]
    fn a_call_and_a_second_one_end_before_the_term() {
        let candidacy = candidacy();
        assert!(2 * candidacy.call_limit() < TTL - candidacy.margin());
        assert!(candidacy.pause(1.0) <= TTL / 6, "who stands by asks more often");
    }

    #[test]
    fn a_version_that_is_no_number_is_refused() {
        let mut candidacy = candidacy();
        let refused = candidacy.receive(Instant::now(), &lease("me", "a7"));
        assert_eq!(refused, Err(Refusal::NotANumber("a7".to_owned())));
        assert_eq!(candidacy.lead(), None);
    }
}

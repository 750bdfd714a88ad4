use super::Shared;
use super::metrics::{Operation, RefusedWrite};
use super::records;
use super::scripts::{self, Call, Reply, detail, word};
use crate::{ClaimedTerm, Inspection, Record, StoreError, Term};
use futures::future::try_join_all;
use heliograph_snapshot::{FleetName, Head};
use redis::cmd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For so long a tombstone stays. A translator that slept longer than this is stopped by its term alone.
const TOMBSTONES: Duration = Duration::from_secs(7 * 24 * 3600);

impl Shared {
    pub(super) async fn claim(&self, fence: Option<u128>) -> Result<ClaimedTerm, StoreError> {
        self.refresh_keys();
        if self.keys().active_id().is_none() {
            return Err(StoreError::Refused(
                "the key ring has no key to seal secrets with: add one with `helio store keys rotate FILE`".to_owned(),
            ));
        }
        let call = scripts::CLAIM
            .call()
            .key(self.names.term())
            .arg(fence.map(|fence| fence.to_string()).unwrap_or_default())
            .arg(unix_milliseconds().to_string());
        let reply = self.invoke(Operation::Claim, call).await?;
        let term = term_in(detail(&reply))?;
        if word(&reply) != "ok" {
            let ours = Term { epoch: term.epoch, fence: fence.unwrap_or_default() };
            return Err(self.fenced(ours, term));
        }
        // From here on no older writer gets through, so what is read stays true.
        let index = self.index(Operation::Claim).await?;
        let fleets: Vec<_> = index.keys().cloned().collect();
        self.advance_terms(&fleets, term).await?;
        let mut records = self.records(Operation::Claim, &fleets).await?;
        // Those that a writer entered and then crashed.
        let entered = index.iter().filter(|(_, head)| **head == Some(Head::default()));
        for (fleet, _) in entered.filter(|(fleet, _)| !records.contains_key(*fleet)) {
            self.leave_index(fleet).await?;
        }
        let orders = self.orders(Operation::Claim, &records).await?;
        for fleet in self.forget_tombstones(&records, term).await {
            records.remove(&fleet);
        }
        self.cleaning().clear();
        *self.claimed.lock() = Some(term);
        Ok(ClaimedTerm { term, records, orders })
    }

    pub(super) async fn inspect(&self, known: Vec<FleetName>) -> Result<Inspection, StoreError> {
        self.refresh_keys();
        let term = self.read_term(Operation::Inspect).await?;
        let index = self.index(Operation::Inspect).await?;
        let mut fleets = known;
        fleets.extend(index.keys().cloned());
        fleets.sort_unstable();
        fleets.dedup();
        let records = self.records(Operation::Inspect, &fleets).await?;
        let heads: BTreeMap<_, _> =
            records.iter().map(|(fleet, record)| (fleet.clone(), record.head)).collect();
        // The index is a hint, and this is where it is repaired.
        for (fleet, head) in &heads {
            let indexed = index.get(fleet).copied().flatten();
            if indexed != Some(*head) && self.announce(fleet, *head, indexed).await.is_err() {
                // An operator may look and not write; a writer looks again soon.
                tracing::debug!(%fleet, "the index is wrong and could not be repaired");
            }
        }
        let orders = self.orders(Operation::Inspect, &records).await?;
        Ok(Inspection { term, heads, orders })
    }

    pub(super) async fn term(&self) -> Result<Term, StoreError> {
        self.read_term(Operation::Adopt).await
    }

    pub(super) async fn adopt(&self, from: Term) -> Result<Term, StoreError> {
        // Above every epoch that was ever adopted, also where Redis was emptied since and knows of none.
        let epoch = from.epoch.saturating_add(1).max(unix_milliseconds() / 1_000);
        let to = Term { epoch, fence: 0 };
        let call =
            scripts::ADOPT.call().key(self.names.term()).arg(from.to_string()).arg(to.to_string());
        let reply = self.invoke(Operation::Adopt, call).await?;
        if word(&reply) != "ok" {
            return Err(StoreError::Refused(format!(
                "the term is {} by now, not {from}: a translator has begun another one. Check again",
                detail(&reply)
            )));
        }
        let fleets: Vec<_> = self.index(Operation::Adopt).await?.into_keys().collect();
        self.advance_terms(&fleets, to).await?;
        Ok(to)
    }

    /// Makes the term known to the slots of these fleets: where all is in one slot, there is nothing to do.
    pub(super) async fn advance_terms(
        &self,
        fleets: &[FleetName],
        term: Term,
    ) -> Result<(), StoreError> {
        if !self.is_cluster() {
            return Ok(());
        }
        let advanced = fleets.iter().map(|fleet| self.advance_term(fleet, term));
        try_join_all(advanced).await.map(|_| ())
    }

    async fn advance_term(&self, fleet: &FleetName, ours: Term) -> Result<(), StoreError> {
        let call = scripts::ADVANCE.call().key(self.names.term_of(fleet)).arg(ours.to_string());
        let reply = self.invoke(Operation::Claim, call).await?;
        match word(&reply) {
            "ok" => Ok(()),
            _ => Err(self.fenced(ours, term_in(detail(&reply))?)),
        }
    }

    pub(super) async fn read_term(&self, operation: Operation) -> Result<Term, StoreError> {
        let command = cmd("GET").arg(self.names.term()).take();
        let text: Option<Vec<u8>> = self.query(operation, &command).await?;
        text.map_or(Ok(Term::default()), |text| term_in(&String::from_utf8_lossy(&text)))
    }

    pub(super) async fn invoke(
        &self,
        operation: Operation,
        call: Call,
    ) -> Result<Reply, StoreError> {
        let run = |mut connection| async move { call.run(&mut connection).await };
        self.ask(operation, run).await
    }

    pub(super) fn fenced(&self, ours: Term, theirs: Term) -> StoreError {
        self.metrics.refused_write(RefusedWrite::Fenced);
        StoreError::Fenced { ours, theirs }
    }

    /// Deletes tombstones that are not needed any more: a fleet that is published again has the head of a later term,
    /// above them.
    async fn forget_tombstones(
        &self,
        records: &BTreeMap<FleetName, Arc<Record>>,
        term: Term,
    ) -> Vec<FleetName> {
        let old = |record: &&Arc<Record>| {
            !record.is_live()
                && Term::from(record.head) < term
                && record.time.elapsed().is_ok_and(|age| age > TOMBSTONES)
        };
        let mut forgotten = Vec::new();
        for record in records.values().filter(old) {
            let fleet = &record.fleet;
            let mut call = scripts::FORGET
                .call()
                .key(self.names.head(fleet))
                .key(self.names.history(fleet))
                .key(self.names.objects(fleet));
            if self.is_cluster() {
                call = call.key(self.names.term_of(fleet));
            }
            let call = call.arg(records::value(record, &self.signer()));
            let reply = self.invoke(Operation::Claim, call).await;
            if !reply.is_ok_and(|reply| word(&reply) == "ok") {
                continue;
            }
            if self.leave_index(fleet).await.is_ok() {
                forgotten.push(fleet.clone());
            }
        }
        forgotten
    }

    /// Nothing is lost if a writer enters it at this moment: its publication is announced.
    async fn leave_index(&self, fleet: &FleetName) -> Result<(), StoreError> {
        let command = cmd("HDEL").arg(self.names.heads()).arg(fleet.as_str()).take();
        self.query(Operation::Claim, &command).await
    }
}

/// `epoch.fence`, as scripts say it.
pub(super) fn term_in(text: &str) -> Result<Term, StoreError> {
    let numbers = text.split_once('.').and_then(|(epoch, fence)| {
        Some(Term { epoch: epoch.parse().ok()?, fence: fence.parse().ok()? })
    });
    numbers.ok_or_else(|| {
        let text: String = text.chars().take(100).collect();
        StoreError::Refused(format!(
            "Redis has {text:?} where the term of the translator is stored, which Heliograph did not write: delete the key that ends in {{index}}:term"
        ))
    })
}

/// The head in a script's reply; `None` if it is not one of ours.
pub(super) fn head_in(text: &str) -> Option<Head> {
    text.parse().ok()
}

fn unix_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

use super::Shared;
use super::metrics::{Operation, RefusedRecord};
use crate::{ACKS_EXPIRY, AckReport, Presence, StoreError, codec};
use bytes::Bytes;
use redis::{Cmd, cmd};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The times are of the replicas' clocks, which differ from this one by less.
const CLOCKS_DIFFER: Duration = Duration::from_secs(2 * ACKS_EXPIRY.as_secs());

impl Shared {
    pub(super) async fn send_report(&self, report: AckReport) -> Result<(), StoreError> {
        let replica = &report.replica;
        let expires = since_epoch() + ACKS_EXPIRY;
        let set = cmd("SET")
            .arg(self.names.report(replica))
            .arg(codec::acks(&report, &self.signer()).as_ref())
            .arg("PX")
            .arg(milliseconds(ACKS_EXPIRY))
            .take();
        let list =
            cmd("ZADD").arg(self.names.replicas()).arg(milliseconds(expires)).arg(replica).take();
        let (set, list) =
            (self.query::<()>(Operation::Report, &set), self.query::<()>(Operation::Report, &list));
        futures::future::try_join(set, list).await.map(|_| ())
    }

    pub(super) async fn read_reports(&self) -> Result<Vec<AckReport>, StoreError> {
        let list = cmd("ZRANGE")
            .arg(self.names.replicas())
            .arg(0)
            .arg(Presence::REPLICAS - 1)
            .arg("REV")
            .take();
        let name = |replica: &str| self.names.report(replica);
        let (mut reports, mut refused) = (Vec::new(), BTreeMap::new());
        let mut any_gone = false;
        let (signer, now) = (self.signer(), Instant::now());
        for (replica, value) in self.listed(Operation::Reports, &list, name).await? {
            let Some(value) = value else {
                any_gone = true;
                continue;
            };
            match codec::read_acks(&value, &signer) {
                Ok(report) if report.replica != replica => {
                    let words = "is one of another replica".to_owned();
                    refused.insert(replica, (RefusedRecord::Forged, words));
                }
                Ok(report) if self.freshness.lock().is_fresh(&report, now) => reports.push(report),
                Ok(_) => {
                    let words = "was put back: a later one came before it".to_owned();
                    refused.insert(replica, (RefusedRecord::Older, words));
                }
                Err(error) => {
                    refused.insert(replica, (RefusedRecord::of(&error), error.to_string()));
                }
            }
        }
        self.freshness.lock().forget(now);
        self.refuse_reports(refused);
        if any_gone {
            self.forget_replicas().await?;
        }
        Ok(reports)
    }

    /// Counts and logs what is refused, once for each replica for as long as it is so.
    fn refuse_reports(&self, refused: BTreeMap<String, (RefusedRecord, String)>) {
        let mut known = self.refused_reports.lock();
        known.retain(|replica| refused.contains_key(replica));
        for (replica, (reason, words)) in refused {
            if !known.contains(&replica) {
                self.metrics.refused_record(reason);
                tracing::warn!(replica, "a replica's report is rejected: it {words}");
                known.insert(replica);
            }
        }
    }

    /// The replicas that a command lists, each with its value under a name, if that is still there.
    pub(super) async fn listed(
        &self,
        operation: Operation,
        list: &Cmd,
        name: impl Fn(&str) -> String,
    ) -> Result<Vec<(String, Option<Bytes>)>, StoreError> {
        let replicas: Vec<Bytes> = self.query(operation, list).await?;
        let replicas = replicas.into_iter().filter_map(|it| String::from_utf8(it.into()).ok());
        let replicas: Vec<_> = replicas.collect();
        if replicas.is_empty() {
            return Ok(Vec::new());
        }
        let mut read = cmd("MGET");
        replicas.iter().for_each(|replica| {
            read.arg(name(replica));
        });
        let values: Vec<Option<Bytes>> = self.query(operation, &read).await?;
        Ok(replicas.into_iter().zip(values).collect())
    }

    /// Those that are gone for long, and not by name: one may come back meanwhile, and then its time is another.
    async fn forget_replicas(&self) -> Result<(), StoreError> {
        let now = since_epoch();
        let command = cmd("ZREMRANGEBYSCORE")
            .arg(self.names.replicas())
            .arg("-inf")
            .arg(milliseconds(now.saturating_sub(CLOCKS_DIFFER)))
            .take();
        self.query(Operation::Reports, &command).await
    }
}

pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

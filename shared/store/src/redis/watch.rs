use super::Shared;
use super::cache::CachedRecord;
use super::link::{ChannelListener, ListenerEvent};
use super::metrics::{Operation, RefusedRecord};
use super::records;
use crate::{Notice, Record, StoreError, Watch};
use bytes::Bytes;
use futures::future::BoxFuture;
use heliograph_shared::failure_log::OutageLog;
use heliograph_snapshot::{FleetName, Head};
use redis::cmd;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A reader's position in the store. It listens to the doorbell, and because messages get lost it compares anyway, every
/// second or two.
pub(super) struct RedisWatch {
    shared: Arc<Shared>,
    bell: ChannelListener,
    /// The query that is in flight to Redis, if there is one. It is kept here, and not in the future of `next`, so that a
    /// reader who gives up waiting does not take it back.
    query: Option<BoxFuture<'static, Result<QueryResult, StoreError>>>,
    /// What was last delivered of each fleet.
    delivered: BTreeMap<FleetName, Delivered>,
    /// The records of the fleets that are believed live.
    live: BTreeMap<FleetName, Arc<Record>>,
    /// Those of them that Redis has lost, or has without the order that holds or released them.
    lost: BTreeSet<FleetName>,
    /// Records to deliver.
    pending: VecDeque<Arc<Record>>,
    /// The fleets whose records are to be read.
    changed: BTreeSet<FleetName>,
    /// The change token at the last comparison of all fleets.
    change_token: Option<Bytes>,
    /// When to compare all, at the latest.
    due: Instant,
    compared: Option<Instant>,
    started: Instant,
    start: Start,
    outage: OutageLog,
    /// The records that were refused last, so that each is counted once.
    refused: BTreeMap<FleetName, Bytes>,
    cache_start: CacheStart,
    /// The cache is ahead of Redis, and what it has is delivered from there if it can be.
    is_behind: bool,
}

/// How far the reader is with what it has in its cache.
enum CacheStart {
    /// If Redis does not answer until then, it begins with that.
    Until(Instant),
    Reading(BoxFuture<'static, Vec<CachedRecord>>),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delivered {
    head: Head,
    /// The number of the last order of an operator that the record obeys.
    order: u64,
}

impl Delivered {
    /// Whether a record knows less of what operators ordered. A fleet that is deleted is so whatever was ordered.
    fn outranks(&self, record: &Record) -> bool {
        record.is_live() && record.pin.number < self.order
    }
}

enum QueryResult {
    /// The change token, and the index if the token changed.
    Compared(Option<Bytes>, Option<BTreeMap<FleetName, Option<Head>>>),
    /// The records of these fleets.
    Read(Vec<FleetName>, Vec<Option<Bytes>>),
}

/// How far the reader is with what was there when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Comparing,
    /// The records of all fleets are asked for.
    Reading,
    Read,
    Delivered,
}

/// Between two comparisons, in milliseconds.
const COMPARE_INTERVAL_MS: std::ops::Range<u64> = 1_000..2_000;

/// How long Redis may take to answer before a reader begins with its cache.
const REDIS_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

impl RedisWatch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let cache_start = if shared.cache.is_some() {
            CacheStart::Until(now + REDIS_ANSWER_TIMEOUT)
        } else {
            CacheStart::Over
        };
        Self {
            bell: shared.link.listen(shared.names.bell()),
            shared,
            query: None,
            delivered: BTreeMap::new(),
            live: BTreeMap::new(),
            lost: BTreeSet::new(),
            pending: VecDeque::new(),
            changed: BTreeSet::new(),
            change_token: None,
            due: now,
            compared: None,
            started: now,
            start: Start::Comparing,
            outage: OutageLog::default(),
            refused: BTreeMap::new(),
            cache_start,
            is_behind: false,
        }
    }

    /// The next notice that is ready now.
    fn next_notice(&mut self) -> Option<Notice> {
        if let Some(record) = self.pending.pop_front() {
            return Some(Notice::Fleet(record));
        }
        if self.start == Start::Read {
            // What Redis lacks is delivered, too.
            self.read_cache();
            if !matches!(self.cache_start, CacheStart::Reading(_)) {
                self.start = Start::Delivered;
                return Some(Notice::Synced);
            }
        }
        None
    }

    /// Asks Redis what there is a reason to ask, one thing at a time.
    fn ask(&mut self) {
        if self.query.is_some() {
            return;
        }
        let shared = self.shared.clone();
        // First, so that no flood of messages keeps it from finding what they did not report.
        if self.due <= Instant::now() {
            self.wait();
            let before = self.change_token.clone();
            self.query = Some(Box::pin(async move { shared.compare(before).await }));
        } else if !self.changed.is_empty() {
            let fleets: Vec<_> = std::mem::take(&mut self.changed).into_iter().collect();
            self.query = Some(Box::pin(async move {
                let values = shared.values(Operation::Compare, &fleets).await?;
                Ok(QueryResult::Read(fleets, values))
            }));
        }
    }

    /// While Redis is unreachable, one attempt each second or two is enough.
    fn wait(&mut self) {
        self.due = Instant::now() + Duration::from_millis(fastrand::u64(COMPARE_INTERVAL_MS));
    }

    fn handle_event(&mut self, event: ListenerEvent) {
        match event {
            ListenerEvent::Message(message) => match fleet_in(&message) {
                Some(fleet) => {
                    self.changed.insert(fleet);
                }
                None => self.due = Instant::now(),
            },
            // Something may have been missed before.
            ListenerEvent::Subscribed => self.due = Instant::now(),
        }
    }

    fn apply_result(&mut self, result: Result<QueryResult, StoreError>) {
        self.query = None;
        match result {
            Ok(QueryResult::Compared(change_token, index)) => {
                // Without the index nothing was compared: a comparison that was asked for meanwhile stays due.
                if let Some(index) = index {
                    self.compare_index(index);
                    self.change_token = change_token;
                }
                self.compared = Some(Instant::now());
                if self.changed.is_empty() {
                    self.report_success();
                }
                if self.start == Start::Comparing {
                    self.start = if self.changed.is_empty() { Start::Read } else { Start::Reading };
                }
            }
            Ok(QueryResult::Read(fleets, values)) => {
                self.read(&fleets, values);
                self.report_success();
                if self.start == Start::Reading {
                    self.start = Start::Read;
                }
            }
            Err(error) => {
                self.read_cache();
                self.report_failure(&error);
                // What was asked for is found by the next comparison.
                self.change_token = None;
                self.changed.clear();
                if self.start == Start::Reading {
                    self.start = Start::Comparing;
                }
                self.wait();
            }
        }
        let since = self.compared.unwrap_or(self.started).elapsed();
        self.shared.metrics.staleness(since);
        if let Some(cache) = &self.shared.cache {
            cache.update_serving();
        }
    }

    /// Reads what the cache has of the fleets that Redis did not deliver: that it lacks one does not mean that there is
    /// none. Once, at the start.
    fn read_cache(&mut self) {
        if let (CacheStart::Until(_), Some(cache)) = (&self.cache_start, self.shared.cache.clone())
        {
            let delivered = self.delivered.keys().cloned().collect();
            self.cache_start =
                CacheStart::Reading(Box::pin(async move { cache.records(delivered).await }));
        }
    }

    /// Whether this process had something newer before it started, or knew of a later order.
    fn is_behind_cache(&self, record: &Record) -> bool {
        let cache =
            self.shared.cache.as_ref().filter(|_| !matches!(self.cache_start, CacheStart::Over));
        cache.is_some_and(|cache| cache.is_ahead_of(record))
            && !self.delivered.contains_key(&record.fleet)
    }

    /// Records of the cache are passed on as if they came from Redis, and remembered as not confirmed.
    fn apply_cached(&mut self, records: Vec<CachedRecord>) {
        self.cache_start = CacheStart::Over;
        let Some(cache) = self.shared.cache.clone() else { return };
        let signer = self.shared.signer();
        let mut count = 0;
        for cached in records {
            let fleet = &cached.fleet;
            match cached.verified(&signer) {
                Ok(record) if !record.is_live() || self.delivered.contains_key(fleet) => {}
                Ok(record) => {
                    cache.mark_unconfirmed(fleet);
                    self.accept(record, &cached.value);
                    count += 1;
                }
                Err(error) => cache.reject(fleet, &error),
            }
        }
        if std::mem::take(&mut self.is_behind) || count > 0 {
            // What Redis has is refused now, or accepted because the cache could not be read; and what it lacks of these
            // fleets is found by a comparison with all of them, although nothing has changed there since the last one.
            (self.change_token, self.due) = (None, Instant::now());
        }
        if count == 0 {
            return;
        }
        cache.update_serving();
        let reason =
            if self.start == Start::Read { "does not have them" } else { "does not answer" };
        let age = cache.served().and_then(|served| served.age);
        let age = age.map_or_else(|| "unknown".to_owned(), |age| format!("{} s", age.as_secs()));
        tracing::warn!(
            fleets = count,
            age,
            "serving from the snapshot cache, because Redis {reason}; proxies that may have something newer are sent nothing"
        );
        if self.start != Start::Delivered {
            self.start = Start::Read;
        }
    }

    /// The index is a hint, right or wrong: the fleet's own record decides.
    fn compare_index(&mut self, index: BTreeMap<FleetName, Option<Head>>) {
        let unlisted = self.live.keys().filter(|fleet| !index.contains_key(*fleet));
        self.lost.extend(unlisted.cloned());
        let cache = self.shared.cache.as_ref().filter(|cache| cache.has_unconfirmed());
        for (fleet, head) in index {
            if self.delivered.get(&fleet).map(|delivered| delivered.head) != head
                || self.lost.contains(&fleet)
                || cache.is_some_and(|cache| cache.is_unconfirmed(&fleet))
            {
                self.changed.insert(fleet);
            }
        }
    }

    /// The link reports that Redis is unreachable. This reports that Redis is there and answers only errors.
    fn report_failure(&mut self, error: &StoreError) {
        if self.outage.failed(Instant::now(), self.shared.link.is_away()) {
            tracing::warn!("cannot read changes from Redis: {error}; retrying");
        }
    }

    fn report_success(&mut self) {
        if let Some(cache) = &self.shared.cache {
            cache.compared();
        }
        if self.outage.worked() {
            tracing::info!("changes can be read from Redis again");
        }
    }

    /// Accepts the records that are newer than what was delivered.
    fn read(&mut self, fleets: &[FleetName], values: Vec<Option<Bytes>>) {
        let signer = self.shared.signer();
        for (fleet, value) in fleets.iter().zip(values) {
            let Some(value) = value else {
                if self.live.contains_key(fleet) {
                    self.lost.insert(fleet.clone());
                }
                continue;
            };
            match records::read(fleet, &value, &signer) {
                Ok(record) if self.is_behind_cache(&record) => self.is_behind = true,
                Ok(record) => {
                    if let Some(cache) = &self.shared.cache
                        && let Some(delivered) = self.delivered.get(fleet)
                        && record.head >= delivered.head
                        && !delivered.outranks(&record)
                    {
                        cache.confirm(fleet, record.head, record.head > delivered.head);
                    }
                    self.accept(record, &value);
                }
                Err(error) => {
                    if self.refused.insert(fleet.clone(), value.clone()) != Some(value) {
                        self.shared.refuse(fleet, &error);
                    }
                }
            }
        }
    }

    fn accept(&mut self, record: Record, value: &Bytes) {
        let (fleet, head) = (record.fleet.clone(), record.head);
        match self.delivered.get(&fleet) {
            Some(delivered) if head == delivered.head => {
                self.lost.remove(&fleet);
                return;
            }
            Some(delivered) if head < delivered.head => return self.refuse_older(&fleet, head),
            Some(delivered) if delivered.outranks(&record) => {
                return self.refuse_unordered(&record);
            }
            _ => {}
        }
        self.refused.remove(&fleet);
        self.lost.remove(&fleet);
        let record = Arc::new(record);
        // A fleet that comes back under the name of one that was deleted has no order.
        let order = if record.is_live() { record.pin.number } else { 0 };
        if self.delivered.insert(fleet.clone(), Delivered { head, order }).is_some() {
            // Only the newest is delivered.
            self.pending.retain(|waiting| waiting.fleet != fleet);
        }
        if let Some(cache) = &self.shared.cache {
            if record.is_live() {
                cache.set_newest_record(&fleet, head, value)
            } else {
                cache.retire(&fleet)
            }
        }
        // A fleet that was never delivered need not be retired.
        let known = if record.is_live() {
            self.live.insert(fleet, record.clone());
            true
        } else {
            self.live.remove(&fleet).is_some()
        };
        if known {
            self.pending.push_back(record);
        }
    }

    /// A translator that does not know of an order must not undo what it ordered.
    fn refuse_unordered(&mut self, record: &Record) {
        let (fleet, head) = (&record.fleet, record.head);
        self.lost.insert(fleet.clone());
        let value = Bytes::from(head.to_string());
        if self.refused.insert(fleet.clone(), value.clone()) != Some(value) {
            self.shared.metrics.refused_record(RefusedRecord::Unordered);
            tracing::warn!(
                %fleet,
                "{head} is rejected: its translator does not know an operator's order for this fleet, for example after Redis lost its data. The \
                 translator is notified, and the order stays in force"
            );
        }
    }

    fn refuse_older(&mut self, fleet: &FleetName, head: Head) {
        // A translator that has begun since then may take it for what is there.
        self.lost.insert(fleet.clone());
        let value = Bytes::from(head.to_string());
        if self.refused.insert(fleet.clone(), value.clone()) != Some(value) {
            self.shared.metrics.refused_record(RefusedRecord::Older);
            let delivered =
                self.delivered.get(fleet).map(|delivered| delivered.head).unwrap_or_default();
            tracing::warn!(
                %fleet,
                "Redis went back to {head}, and {delivered} stays in use. The translator publishes again within seconds; if its epoch is lower, run `helio \
                 store adopt`"
            );
        }
    }
}

impl Watch for RedisWatch {
    fn remembered(&self) -> Vec<Arc<Record>> {
        self.lost.iter().filter_map(|fleet| self.live.get(fleet).cloned()).collect()
    }

    fn next(&mut self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.next_notice() {
                    return notice;
                }
                self.ask();
                let Self { query, bell, due, cache_start, .. } = self;
                let idle = query.is_none();
                let answer = async {
                    match query {
                        Some(query) => query.await,
                        None => std::future::pending().await,
                    }
                };
                let cached = async {
                    match cache_start {
                        CacheStart::Until(until) => {
                            sleep_until(*until).await;
                            None
                        }
                        CacheStart::Reading(reading) => Some(reading.await),
                        CacheStart::Over => std::future::pending().await,
                    }
                };
                tokio::select! {
                    result = answer => self.apply_result(result),
                    event = bell.next() => self.handle_event(event),
                    read = cached => match read {
                        Some(records) => self.apply_cached(records),
                        None => self.read_cache(),
                    },
                    () = sleep_until(*due), if idle => {}
                }
            }
        })
    }
}

impl Shared {
    /// The change token; and the index, if the token was another before, or is missing.
    async fn compare(&self, before: Option<Bytes>) -> Result<QueryResult, StoreError> {
        self.refresh_keys();
        let command = cmd("GET").arg(self.names.change_token()).take();
        let change_token: Option<Bytes> = self.query(Operation::Compare, &command).await?;
        if change_token.is_some() && change_token == before {
            return Ok(QueryResult::Compared(change_token, None));
        }
        let index = self.index(Operation::Compare).await?;
        Ok(QueryResult::Compared(change_token, Some(index)))
    }
}

/// The fleet that a message names.
fn fleet_in(message: &[u8]) -> Option<FleetName> {
    let (fleet, _) = std::str::from_utf8(message).ok()?.split_once(' ')?;
    fleet.parse().ok()
}

use crate::drive::Knowledge;
use crate::workload::{Schedule, Update, Workload};
use heliograph_checker::{Order, Proxy, Publishes, Response, Violation};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::core::v3::TypedExtensionConfig;
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::Listener;
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::Secret;
use heliograph_snapshot::{Head, ResourceType, Version};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A worker's log of publications: enough to check by itself whether a response is right, and since when it was due.
#[derive(Debug)]
pub(super) struct PublishLog {
    knowledge: Knowledge,
    /// The head of the first snapshots.
    base: Head,
    state: RwLock<LogState>,
    found: Mutex<Found>,
}

#[derive(Debug)]
struct LogState {
    workload: Workload,
    publishes: Publishes,
    /// Change `n` is at `n - 1`.
    updates: Vec<Update>,
    /// In the order of their changes.
    schedules: Vec<Schedule>,
    /// By fleet, the last change in it; 0 if there is none.
    last: Vec<u32>,
}

/// The violations that the checker found: all are counted, some are reported.
#[derive(Debug, Default)]
struct Found {
    counts: Tally,
    /// Those since they were last asked for.
    recent: Tally,
    texts: Vec<String>,
}

/// How many there are of each kind.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// Which changes have come, as far as what was received shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks([Mark; ResourceType::ALL.len()]);

/// Of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Mark {
    /// The newest change that was seen, and in how many resources.
    newest: u32,
    resources: usize,
    /// The newest that has come whole.
    whole: u32,
}

/// How many violations of each kind are reported.
const EXAMPLES: u64 = 5;

impl PublishLog {
    pub(super) fn new(mut workload: Workload, knowledge: Knowledge, base: Head) -> Self {
        workload.start_at(base);
        let mut publishes = Publishes::default();
        if knowledge != Knowledge::Nothing {
            // The first of each fleet: there is none that it could not be newer than.
            workload.snapshots().iter().for_each(|first| _ = publishes.publish(first));
        }
        let last = vec![0; workload.fleets().len()];
        let (updates, schedules) = (Vec::new(), Vec::new());
        let state = RwLock::new(LogState { workload, publishes, updates, schedules, last });
        Self { knowledge, base, state, found: Mutex::default() }
    }

    /// These will be published.
    pub(super) fn expect(&self, updates: &[Update]) {
        let mut state = self.state.write();
        let LogState { workload, publishes, updates: known, last, .. } = &mut *state;
        for update in updates {
            for fleet in workload.touched(*update).fleets {
                if let Some(last) = last.get_mut(fleet) {
                    *last = update.number;
                }
            }
            if self.knowledge != Knowledge::Nothing {
                // Numbers grow, so none can be older than the one before.
                workload.change(*update).iter().for_each(|next| _ = publishes.publish(next));
            }
            known.push(*update);
        }
    }

    pub(super) fn schedule(&self, schedule: Schedule) {
        self.state.write().schedules.push(schedule);
    }

    /// The last change that a client of each fleet has to have.
    pub(super) fn last(&self) -> Vec<u32> {
        self.read().last.clone()
    }

    /// How late each of these changes is now, for a client of this fleet. Others than those of its fleet are left out.
    pub(super) fn late(
        &self,
        fleet: usize,
        numbers: std::ops::RangeInclusive<u32>,
        now: SystemTime,
    ) -> Vec<(u32, Duration)> {
        let state = self.read();
        let late = |number: u32| {
            let update = state.update(number)?;
            let after = state.schedules.partition_point(|schedule| schedule.first <= number);
            let schedule = state.schedules.get(after.checked_sub(1)?)?;
            let concerns = state.workload.touched(*update).fleets.contains(&fleet);
            Some((number, schedule.late(number, now).filter(|_| concerns)?))
        };
        numbers.filter_map(late).collect()
    }

    /// The part of a nonce that decides about the order of a response. The rest differs for every client.
    pub(super) fn order_in<'a>(&self, nonce: &'a str) -> &'a str {
        match self.knowledge {
            Knowledge::Contents => "",
            Knowledge::Heads | Knowledge::Nothing => head_in(nonce).map_or("", |(text, _)| text),
        }
    }

    /// Where a response belongs, by its nonce.
    pub(super) fn order(&self, nonce: &str) -> Order {
        match (self.knowledge, head_in(nonce).map(|(_, head)| head)) {
            // A server may serve publications from before this run until it receives a newer one.
            (Knowledge::Heads, Some(head)) if head < self.base => Order::Observed(Some(head)),
            // A nonce without a head is of no snapshot at all.
            (Knowledge::Heads, head) => Order::Nonce(head.unwrap_or_default()),
            (Knowledge::Contents, _) => Order::PublishLog,
            (Knowledge::Nothing, head) => Order::Observed(head),
        }
    }

    /// The version in the publish log of a resource that was sent. Other servers decode resources and encode them again,
    /// with fields in another order.
    pub(super) fn version(&self, kind: ResourceType, body: &[u8]) -> Version {
        match self.knowledge {
            Knowledge::Contents => Version::of(&canonical(kind, body)),
            Knowledge::Heads | Knowledge::Nothing => Version::of(body),
        }
    }

    pub(super) fn check(&self, proxy: &mut Proxy, who: &Arc<str>, response: &Response) {
        let mut violations = Vec::new();
        proxy.receive(who, response, &self.read().publishes, &mut violations);
        self.record(violations);
    }

    /// The violations in the state of a proxy at the end.
    pub(super) fn end(&self, proxy: &Proxy, who: &Arc<str>) -> Vec<Violation> {
        let mut violations = Vec::new();
        proxy.end(who, &self.read().publishes, &mut violations);
        violations
    }

    pub(super) fn record(&self, violations: Vec<Violation>) {
        if violations.is_empty() {
            return;
        }
        let mut found = self.found.lock();
        for violation in violations {
            let kind = kind(&violation);
            *found.recent.entry(kind).or_default() += 1;
            let count = found.counts.entry(kind).or_default();
            *count += 1;
            if *count <= EXAMPLES {
                found.texts.push(violation.to_string());
            }
        }
    }

    /// How many there were since the last time, and examples.
    pub(super) fn found(&self) -> (Tally, Vec<String>) {
        let mut found = self.found.lock();
        (std::mem::take(&mut found.recent), std::mem::take(&mut found.texts))
    }

    /// Takes the marks of a response's resources, and returns the number of the change up to which a client of this
    /// fleet has all.
    pub(super) fn mark(
        &self,
        marks: &mut Marks,
        fleet: usize,
        had: u32,
        (kind, seen): (ResourceType, &[u32]),
    ) -> u32 {
        let state = self.read();
        let whole = |number| self.extent(&state, number, kind);
        // Others are left from an earlier run.
        let known = seen.iter().copied().filter(|number| *number as usize <= state.updates.len());
        if let Some(mark) = marks.0.get_mut(kind as usize) {
            mark.observe(&known.collect::<Vec<_>>(), whole);
        }
        let mut had = had;
        while let Some(update) = state.update(had.saturating_add(1)) {
            let touched = state.workload.touched(*update);
            let concerns = touched.fleets.contains(&fleet);
            let lacks = |kind: &ResourceType| {
                let whole = marks.0.get(*kind as usize).map_or(0, |mark| mark.whole);
                self.extent(&state, update.number, *kind) > 0 && whole < update.number
            };
            if concerns && update.kind.seen_in().iter().any(lacks) {
                break;
            }
            had = update.number;
        }
        had
    }

    /// In how many resources of a type a change can be seen.
    fn extent(&self, state: &LogState, number: u32, kind: ResourceType) -> usize {
        let Some(update) = state.update(number) else { return 0 };
        let touched = state.workload.touched(*update);
        let extent = match kind {
            ResourceType::Cluster => touched.clusters.len(),
            ResourceType::Endpoints => touched.endpoints.len(),
            ResourceType::Route => touched.tables.len(),
            ResourceType::ExtensionConfig | ResourceType::Listener | ResourceType::Secret => 0,
        };
        // Others may make fewer resources of it, or more.
        if self.knowledge == Knowledge::Nothing { extent.min(1) } else { extent }
    }

    fn read(&self) -> RwLockReadGuard<'_, LogState> {
        self.state.read()
    }
}

impl LogState {
    fn update(&self, number: u32) -> Option<&Update> {
        self.updates.get(number.checked_sub(1)? as usize)
    }
}

impl Mark {
    fn observe(&mut self, seen: &[u32], extent: impl Fn(u32) -> usize) {
        let Some(newest) = seen.iter().copied().max().filter(|newest| *newest >= self.newest)
        else {
            return;
        };
        let resources = seen.iter().filter(|number| **number == newest).count();
        self.resources = if newest == self.newest { self.resources + resources } else { resources };
        self.newest = newest;
        if self.resources >= extent(newest) {
            self.whole = newest;
        }
    }
}

/// Our nonces begin with a head.
fn head_in(nonce: &str) -> Option<(&str, Head)> {
    let (text, _) = nonce.rsplit_once('-')?;
    Some((text, text.parse().ok()?))
}

/// The body in our own encoding. A body of another type stays as it is, and so differs.
fn canonical(kind: ResourceType, body: &[u8]) -> Vec<u8> {
    fn again<M: Message + Default>(body: &[u8]) -> Vec<u8> {
        M::decode(body).map_or_else(|_| body.to_vec(), |message| message.encode_to_vec())
    }
    match kind {
        ResourceType::Secret => again::<Secret>(body),
        ResourceType::Cluster => again::<Cluster>(body),
        ResourceType::Endpoints => again::<ClusterLoadAssignment>(body),
        ResourceType::ExtensionConfig => again::<TypedExtensionConfig>(body),
        ResourceType::Listener => again::<Listener>(body),
        ResourceType::Route => again::<RouteConfiguration>(body),
    }
}

/// As it is counted.
fn kind(violation: &Violation) -> &'static str {
    match violation {
        Violation::TwoContents { .. } => "two contents for one head",
        Violation::WentBack { .. } => "went back",
        Violation::NeverPublished { .. } => "never published",
        Violation::Refused { .. } => "refused by the store",
        Violation::NotLive { .. } => "not live",
        Violation::Foreign { .. } => "of another snapshot",
        Violation::Half { .. } => "half a snapshot",
        Violation::Mixed { .. } => "of no snapshot",
        Violation::Dangling { .. } => "dangling reference",
        Violation::Broken { .. } => "removed while referred to",
        Violation::Resent { .. } => "resent after a rejection",
        Violation::Behind { .. } => "lost update",
        Violation::Kept { .. } => "kept fleet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Reach, Resources, UpdateKind};
    use ResourceType::{Endpoints, Route};

    fn log(knowledge: Knowledge, fleets: usize) -> PublishLog {
        let resources = Resources { clusters: 3, listeners: 1, routes: 3, ..Resources::default() };
        PublishLog::new(Workload::new(&resources, fleets), knowledge, Head::default())
    }

    fn update(number: u32, kind: UpdateKind, reach: Reach) -> Update {
        Update { number, kind, reach }
    }

    #[test]
    fn a_change_has_come_once_all_of_it_has() {
        let log = log(Knowledge::Heads, 1);
        let all = Reach::EveryFleet;
        log.expect(&[update(1, UpdateKind::Full, all), update(2, UpdateKind::Endpoint, all)]);
        let mut marks = Marks::default();
        let mut had = 0;
        let mut see = |kind, seen: &[u32]| {
            had = log.mark(&mut marks, 0, had, (kind, seen));
            had
        };
        assert_eq!(see(ResourceType::Cluster, &[1, 1]), 0, "one cluster is missing");
        assert_eq!(see(ResourceType::Cluster, &[1]), 0);
        assert_eq!(see(Endpoints, &[1, 2]), 0, "the routes are missing");
        assert_eq!(see(Route, &[1]), 2, "what skipped a change has it too");
        assert_eq!(log.last(), [2]);
    }

    #[test]
    fn changes_of_other_fleets_are_not_waited_for() {
        let log = log(Knowledge::Contents, 3);
        let updates: Vec<_> =
            (1..=4).map(|n| update(n, UpdateKind::Endpoint, Reach::OneFleet)).collect();
        log.expect(&updates);
        assert_eq!(log.last(), [3, 4, 2]);
        let mut marks = Marks::default();
        assert_eq!(log.mark(&mut marks, 1, 0, (Endpoints, &[])), 0);
        assert_eq!(log.mark(&mut marks, 1, 0, (Endpoints, &[1])), 3);
        assert_eq!(log.mark(&mut marks, 1, 3, (Endpoints, &[4])), 4);
        let start = SystemTime::UNIX_EPOCH;
        let (interval, kind) = (Duration::from_secs(1), UpdateKind::Endpoint);
        let schedule =
            Schedule { start, interval, first: 1, count: 4, kind, reach: Reach::OneFleet };
        log.schedule(schedule);
        let late = log.late(1, 1..=4, start + Duration::from_secs(5));
        assert_eq!(late, [(1, Duration::from_secs(5)), (4, Duration::from_secs(2))]);
    }

    #[test]
    fn what_is_left_from_an_earlier_run_is_no_change_of_this_one() {
        let resources = Resources { clusters: 3, ..Resources::default() };
        let base = Head { epoch: 0, fence: 9, sequence: 20 };
        let log = PublishLog::new(Workload::new(&resources, 1), Knowledge::Heads, base);
        let earlier = Head { sequence: 19, ..base };
        assert_eq!(log.order("0.9.19-1"), Order::Observed(Some(earlier)));
        assert_eq!(log.order("0.9.20-2"), Order::Nonce(base));
        assert_eq!(log.order("something"), Order::Nonce(Head::default()));
        assert_eq!(log.order_in("0.9.20-2"), "0.9.20");
        assert_eq!(log.order_in("1b4e28ba-2fa1-11d2"), "", "nothing that another client has too");
        let mut marks = Marks::default();
        assert_eq!(log.mark(&mut marks, 0, 0, (Endpoints, &[2, 5])), 0);
        log.expect(&[update(1, UpdateKind::Endpoint, Reach::EveryFleet)]);
        assert_eq!(log.mark(&mut marks, 0, 0, (Endpoints, &[0])), 0);
        assert_eq!(log.mark(&mut marks, 0, 0, (Endpoints, &[1])), 1);
    }

    #[test]
    fn what_is_found_is_counted_and_some_of_it_told() {
        let log = log(Knowledge::Heads, 1);
        let violation = |at: usize| Violation::Mixed {
            who: format!("client-{at}").into(),
            fleet: heliograph_snapshot::FleetName::new("a", "b"),
            kind: ResourceType::Cluster,
            at: None,
        };
        log.record((0..20).map(violation).collect());
        let (counts, texts) = log.found();
        assert_eq!((counts, texts.len()), ([("of no snapshot", 20)].into(), EXAMPLES as usize));
        assert!(texts[0].contains("client-0"));
        log.record(vec![violation(20)]);
        assert_eq!(log.found(), ([("of no snapshot", 1)].into(), vec![]));
    }
}

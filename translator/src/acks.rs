//! Reads the proxies' answers from the store, and has the page that shows them.

use crate::feedback::{Feedback, FleetFeedback, ReplicaFeedback};
use crate::report::Report;
use crate::term::Translator;
use axum::Json;
use axum::routing::{MethodRouter, get};
use heliograph_shared::admin::Pages;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use heliograph_store::{Dispute, FeedbackReader, FleetReport, Pinned, Record, RejectionReport};
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How often the reports of the replicas are read while nothing changes. A rejection is in the report of its replica within half
/// a second, and has to be in the status of its object within five.
const READ_EVERY: Duration = Duration::from_secs(2);

/// How often they are read after a change: until its proxies have answered, the routes of others wait with one that is rejected.
const READ_SOON: Duration = Duration::from_millis(250);

/// How long after a change its proxies may still be answering.
const ANSWERING: Duration = Duration::from_secs(10);

/// Reads the reports of the replicas, and passes on what follows from them.
pub struct AckReader {
    store: Arc<dyn FeedbackReader>,
    latest: watch::Sender<Latest>,
    /// The fleets that a replica cannot load, and the newest head that this is said of.
    damage: watch::Sender<BTreeMap<FleetName, Head>>,
    /// What replicas read of fleets that the store has lost since.
    remembered: watch::Sender<Vec<Arc<Record>>>,
    feedback: watch::Sender<Option<Arc<Feedback>>>,
    /// Changes whenever something was translated or published.
    report: watch::Receiver<Report>,
}

/// When to read the reports next.
struct Schedule {
    next: Instant,
    /// Until then proxies are expected to answer to a change.
    answering_until: Instant,
}

/// The latest reports of replicas.
#[derive(Clone, Debug, Default)]
struct Latest {
    feedback: Arc<Feedback>,
    /// Why there is nothing newer.
    problem: Option<String>,
}

/// The page about all fleets.
#[derive(Debug, Serialize)]
struct Page<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    fleets: BTreeMap<&'a FleetName, Fleet<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct Fleet<'a> {
    /// The newest; none if the fleet is no more, and proxies of it are still connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    /// Where an operator holds it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<Pin<'a>>,
    #[serde(flatten)]
    sum: Count,
    replicas: BTreeMap<&'a str, Count>,
    rejections: Vec<Rejection<'a>>,
    /// Of each resource that is rejected, how many connected proxies reject it and how many have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disputes: Vec<Disputed<'a>>,
}

#[derive(Debug, Serialize)]
struct Pin<'a> {
    head: String,
    /// In seconds since 1970.
    since: u64,
    by: &'a str,
    reason: &'a str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    connected: u64,
    /// How many have acknowledged all that they ask for of the newest head.
    acknowledged: u64,
}

#[derive(Debug, Serialize)]
struct Rejection<'a> {
    replica: &'a str,
    kind: ResourceType,
    resources: Vec<Rejected<'a>>,
    /// By how many proxies.
    count: u64,
    detail: &'a str,
}

#[derive(Debug, Serialize)]
struct Disputed<'a> {
    replica: &'a str,
    kind: ResourceType,
    name: &'a str,
    version: Version,
    rejected: u64,
    accepted: u64,
}

#[derive(Debug, Serialize)]
struct Rejected<'a> {
    name: &'a str,
    /// None: its removal was rejected.
    version: Option<Version>,
}

impl AckReader {
    pub fn new(store: Arc<dyn FeedbackReader>, translator: &Translator) -> Self {
        let (latest, feedback) = (watch::Sender::default(), translator.feedback());
        let (damage, remembered) = (translator.damage(), translator.remembered());
        Self { store, latest, damage, remembered, feedback, report: translator.report() }
    }

    /// Adds what the proxies say to the admin port.
    pub fn add_page(&self, pages: Pages, report: watch::Receiver<Report>) -> Pages {
        let purpose = "what proxies acknowledge and reject of what was published";
        pages.page("/acks", purpose, page(self.latest.subscribe(), report))
    }

    /// Reads the reports until it is stopped. While they cannot be read, the last ones stay.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut schedule = Schedule::new(Instant::now());
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep_until(schedule.next) => {}
                () = changed(&mut self.report) => {
                    schedule.changed(Instant::now());
                    continue;
                }
            }
            let read = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                read = self.store.read_reports() => read,
            };
            schedule.has_read(Instant::now());
            match read {
                Ok(reports) => self.pass_on(Feedback::of(reports)),
                // The writer of the store logs that it is unreachable.
                Err(error) => {
                    self.latest.send_modify(|latest| latest.problem = Some(error.to_string()));
                }
            }
        }
    }

    fn pass_on(&self, feedback: Feedback) {
        self.damage.send_replace(feedback.damaged.clone());
        self.remembered.send_if_modified(|known| {
            let is_news = *known != feedback.remembered;
            known.clone_from(&feedback.remembered);
            is_news
        });
        let feedback = Arc::new(feedback);
        self.feedback.send_if_modified(|known| {
            let before = known.replace(feedback.clone());
            before.is_none_or(|before| {
                feedback.has_other_votes(&before) || feedback.has_other_sums(&before)
            })
        });
        self.latest.send_replace(Latest { feedback, problem: None });
    }
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self { next: now, answering_until: now }
    }

    fn changed(&mut self, now: Instant) {
        self.answering_until = now + ANSWERING;
        self.next = self.next.min(now + READ_SOON);
    }

    fn has_read(&mut self, now: Instant) {
        self.next = now + if now < self.answering_until { READ_SOON } else { READ_EVERY };
    }
}

/// Waits for the next change. There is none any more once the translator has ended.
async fn changed(report: &mut watch::Receiver<Report>) {
    if report.changed().await.is_err() {
        std::future::pending().await
    }
}

fn page(latest: watch::Receiver<Latest>, report: watch::Receiver<Report>) -> MethodRouter {
    get(async move || {
        let (latest, report) = (latest.borrow().clone(), report.borrow().clone());
        Json(serde_json::json!(Page::new(&latest, &report.heads, &report.pins)))
    })
}

impl<'a> Page<'a> {
    fn new(
        latest: &'a Latest,
        heads: &'a BTreeMap<FleetName, Head>,
        pins: &'a BTreeMap<FleetName, Pinned>,
    ) -> Self {
        let mut fleets: BTreeMap<_, Fleet<'a>> = BTreeMap::new();
        for (name, head) in heads {
            fleets.entry(name).or_default().head = Some(head.to_string());
        }
        for (name, pinned) in pins {
            fleets.entry(name).or_default().pinned = Some(Pin::of(pinned));
        }
        for (name, feedback) in &latest.feedback.fleets {
            fleets.entry(name).or_default().add(feedback, heads.get(name));
        }
        Self { problem: latest.problem.as_deref(), fleets }
    }
}

impl<'a> Pin<'a> {
    fn of(pinned: &'a Pinned) -> Self {
        let Pinned { head, since, by, reason } = pinned;
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { head: head.to_string(), since, by, reason }
    }
}

impl<'a> Fleet<'a> {
    fn add(&mut self, feedback: &'a FleetFeedback, newest: Option<&Head>) {
        self.sum = Count::of(feedback.connected, &feedback.acknowledged, newest);
        for ReplicaFeedback { replica, report } in &feedback.replicas {
            let FleetReport { connected, acknowledged, rejections, disputes, voters: _, votes: _ } =
                report;
            self.replicas.insert(replica, Count::of(*connected, acknowledged, newest));
            self.rejections.extend(rejections.iter().map(|it| Rejection::new(replica, it)));
            self.disputes.extend(disputes.iter().map(|it| Disputed::new(replica, it)));
        }
    }
}

impl Count {
    fn of(connected: u64, acknowledged: &BTreeMap<Head, u64>, newest: Option<&Head>) -> Self {
        let acknowledged = newest.and_then(|head| acknowledged.get(head)).copied();
        Self { connected, acknowledged: acknowledged.unwrap_or_default() }
    }
}

impl<'a> Disputed<'a> {
    fn new(replica: &'a str, dispute: &'a Dispute) -> Self {
        let Dispute { kind, name, version, rejected, accepted, rejecting: _, accepting: _ } =
            dispute;
        let (kind, version) = (*kind, *version);
        Self { replica, kind, name, version, rejected: *rejected, accepted: *accepted }
    }
}

impl<'a> Rejection<'a> {
    fn new(replica: &'a str, report: &'a RejectionReport) -> Self {
        let RejectionReport { kind, detail, resources, count } = report;
        let resources =
            resources.iter().map(|(name, version)| Rejected { name, version: *version });
        Self { replica, kind: *kind, resources: resources.collect(), count: *count, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_store::{AckReport, Embedded, FeedbackSender};
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn what_a_replica_cannot_load_is_passed_on_until_it_can() {
        let fleet = FleetName::new("default", "edge");
        let store = Arc::new(Embedded::new());
        let (damage, mut damaged) = watch::channel(BTreeMap::new());
        let (latest, feedback) = (watch::Sender::default(), watch::Sender::default());
        let remembered = watch::Sender::default();
        let stop = CancellationToken::new();
        let (_changes, report) = watch::channel(Report::default());
        let reading = store.clone();
        let reader = AckReader { store: reading, latest, damage, remembered, feedback, report };
        let task = tokio::spawn(reader.run(stop.clone()));
        let head = Head { epoch: 0, fence: 7, sequence: 1 };
        for expected in [BTreeMap::from([(fleet, head)]), BTreeMap::new()] {
            let replica = "one".to_owned();
            let report = AckReport { replica, damaged: expected.clone(), ..AckReport::default() };
            store.send_report(report).await.unwrap();
            let told = damaged.wait_for(|damaged| *damaged == expected);
            tokio::time::timeout(10 * READ_EVERY, told).await.unwrap().unwrap();
        }
        stop.cancel();
        task.await.unwrap().unwrap();
    }

    #[test]
    fn reports_are_read_often_until_proxies_have_answered_to_a_change() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.next, start);
        schedule.has_read(start);
        assert_eq!(schedule.next, start + READ_EVERY);
        let change = start + Duration::from_millis(100);
        schedule.changed(change);
        assert_eq!(schedule.next, change + READ_SOON);
        schedule.changed(change + Duration::from_millis(300));
        assert_eq!(schedule.next, change + READ_SOON, "changes all the time put nothing off");
        schedule.has_read(change + READ_SOON);
        assert_eq!(schedule.next, change + 2 * READ_SOON);
        schedule.has_read(change + 2 * ANSWERING);
        assert_eq!(schedule.next, change + 2 * ANSWERING + READ_EVERY);
    }

    #[test]
    fn replicas_are_added_up_and_only_the_newest_head_counts() {
        let fleet = FleetName::new("default", "edge");
        let head = |sequence| Head { epoch: 0, fence: 7, sequence };
        let version = Version::of(b"bad");
        let dispute = |accepted| {
            let name = "table".into();
            Dispute::new(ResourceType::Route, name, version, 3 - accepted, accepted)
        };
        let report = |replica: &str, acknowledged: &[(u64, u64)], rejections| AckReport {
            replica: replica.to_owned(),
            fleets: BTreeMap::from([(
                fleet.clone(),
                FleetReport {
                    connected: 3,
                    acknowledged: acknowledged.iter().map(|(at, n)| (head(*at), *n)).collect(),
                    rejections,
                    disputes: vec![dispute(acknowledged.len() as u64)],
                    ..FleetReport::default()
                },
            )]),
            ..AckReport::default()
        };
        let rejection = RejectionReport {
            kind: ResourceType::Route,
            detail: "no such cluster".to_owned(),
            resources: vec![("table".into(), Some(version))],
            count: 1,
        };
        let reports = vec![
            report("one", &[(1, 1), (2, 2)], vec![]),
            report("two", &[(1, 3)], vec![rejection]),
        ];
        let latest = Latest { feedback: Arc::new(Feedback::of(reports)), problem: None };
        let heads = BTreeMap::from([(fleet.clone(), head(2))]);
        let pinned = Pinned {
            head: head(1),
            since: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            by: "ann".into(),
            reason: "checkout is broken".into(),
        };
        let pins = BTreeMap::from([(fleet.clone(), pinned)]);
        let expected = json!({"fleets": {"default/edge": {
            "head": "0.7.2",
            "pinned": {"head": "0.7.1", "since": 1_800_000_000, "by": "ann", "reason": "checkout is broken"},
            "connected": 6,
            "acknowledged": 2,
            "replicas": {
                "one": {"connected": 3, "acknowledged": 2},
                "two": {"connected": 3, "acknowledged": 0},
            },
            "rejections": [{
                "replica": "two",
                "kind": "route",
                "resources": [{"name": "table", "version": version}],
                "count": 1,
                "detail": "no such cluster",
            }],
            "disputes": [
                {"replica": "one", "kind": "route", "name": "table", "version": version, "rejected": 1, "accepted": 2},
                {"replica": "two", "kind": "route", "name": "table", "version": version, "rejected": 2, "accepted": 1},
            ],
        }}});
        assert_eq!(json!(Page::new(&latest, &heads, &pins)), expected);
    }
}

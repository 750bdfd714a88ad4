//! A server that lies to its proxies, seen from what they are sent: each lie is found by its name, and the truth passes.
//! The same is checked all at once and response by response.

use bytes::Bytes;
use heliograph_checker::{
    Content, Event, Order, Outcome, Proxy, Publishes, ResourceId, Response, Sent, Violation, check,
};
use heliograph_snapshot::ResourceType::{Cluster, Endpoints, Listener, Route};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    None,
    GoesBack,
    MixesTwo,
    RemovesReferenced,
    ResendsRejected,
    LosesUpdate,
}

/// What a server says of the order of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Head,
    Nothing,
    /// Its heads, of publications that are not in the log.
    UnloggedHead,
    UnloggedNothing,
}

/// One client of a server that was given five snapshots.
struct Run {
    says: Says,
    /// State of the world: clusters and listeners come as whole lists.
    whole: bool,
    snapshots: Vec<Snapshot>,
    events: Vec<Event>,
}

const WHO: &str = "envoy";

fn fleet() -> FleetName {
    FleetName::new("default", "gateway")
}

fn head(sequence: u64) -> Head {
    Head { epoch: 0, fence: 1, sequence }
}

/// Services a and b, with endpoints that change with each snapshot. From the fourth on, a is gone.
fn gateway(number: u64) -> Vec<(ResourceType, &'static str, String)> {
    let mut resources = vec![
        (Cluster, "b", "b".to_owned()),
        (Endpoints, "b", format!("b at {number}")),
        (Listener, "http", "table".to_owned()),
    ];
    if number < 4 {
        resources.push((Cluster, "a", "a".to_owned()));
        resources.push((Endpoints, "a", format!("a at {number}")));
    }
    resources.push((
        Route,
        "table",
        match number {
            1 | 2 => "to a and b".to_owned(),
            3 => "to a and b, and bad".to_owned(),
            _ => "to b".to_owned(),
        },
    ));
    resources
}

fn resource(name: &str, body: &str) -> Arc<Resource> {
    Arc::new(Resource::new(name, Bytes::from(body.to_owned())))
}

fn snapshot(number: u64) -> Snapshot {
    let resources = gateway(number).into_iter();
    let changes = resources.map(|(kind, name, body)| Change::Set(kind, resource(name, &body)));
    Snapshot::empty(fleet()).with(head(number), changes)
}

fn references(kind: ResourceType, resource: &Resource) -> Vec<ResourceId> {
    match kind {
        Cluster => vec![ResourceId::new(Endpoints, resource.name.clone())],
        Listener => vec![ResourceId::new(Route, "table")],
        Route if resource.body.starts_with(b"to a") => {
            ["a", "b"].map(|name| ResourceId::new(Cluster, name)).into()
        }
        Route => vec![ResourceId::new(Cluster, "b")],
        _ => Vec::new(),
    }
}

impl Run {
    fn new(says: Says, whole: bool) -> Self {
        let snapshots: Vec<_> = (1..=5).map(snapshot).collect();
        let mut events = Vec::new();
        if matches!(says, Says::Head | Says::Nothing) {
            for snapshot in &snapshots {
                let (fleet, head) = (fleet(), snapshot.head);
                let content = Some(Arc::new(Content::from(snapshot)));
                events.push(Event::Asked { fleet: fleet.clone(), head, content });
                let outcome = Outcome::Acknowledged;
                events.push(Event::Answered { fleet, head, outcome });
            }
        }
        events.push(Event::Connects { client: WHO.into(), fleet: fleet() });
        Self { says, whole, snapshots, events }
    }

    fn with(lie: Lie, says: Says, whole: bool) -> Vec<Violation> {
        let mut run = Self::new(says, whole);
        run.serve(lie);
        let found = check(&run.events);
        assert_eq!(run.taken_one_by_one(), found);
        found
    }

    fn serve(&mut self, lie: Lie) {
        self.send(1, Cluster, &["a", "b"]);
        self.send(1, Endpoints, &["a", "b"]);
        self.send(1, Listener, &["http"]);
        self.send(1, Route, &["table"]);
        self.send(2, Endpoints, &["a", "b"]);
        match lie {
            Lie::MixesTwo => self.send_mixture(),
            _ => self.send(3, Endpoints, &["a", "b"]),
        }
        if lie == Lie::GoesBack {
            self.send(2, Endpoints, &["a", "b"]);
            self.send(3, Endpoints, &["a", "b"]);
        }
        for _ in 0..if lie == Lie::ResendsRejected { 2 } else { 1 } {
            let rejected = self.response(3, Route, &["table"]);
            self.events.push(Event::Responded(Response { accepted: false, ..rejected }));
        }
        if lie == Lie::RemovesReferenced {
            self.remove(4);
            self.send(4, Route, &["table"]);
        } else {
            self.send(4, Route, &["table"]);
            self.remove(4);
        }
        if lie != Lie::LosesUpdate {
            self.send(5, Endpoints, &["b"]);
        }
    }

    fn send(&mut self, number: u64, kind: ResourceType, names: &[&str]) {
        let response = self.response(number, kind, names);
        self.events.push(Event::Responded(response));
    }

    /// The endpoints of a as they are in the third snapshot, and those of b as they are in the second.
    fn send_mixture(&mut self) {
        let mut response = self.response(3, Endpoints, &["a"]);
        response.resources.extend(self.response(2, Endpoints, &["b"]).resources);
        self.events.push(Event::Responded(response));
    }

    /// Cluster a is gone.
    fn remove(&mut self, number: u64) {
        let response = if self.whole {
            self.response(number, Cluster, &["b"])
        } else {
            let nothing = self.response(number, Cluster, &[]);
            Response { removed: vec!["a".into()], ..nothing }
        };
        self.events.push(Event::Responded(response));
    }

    fn response(&self, number: u64, kind: ResourceType, names: &[&str]) -> Response {
        let snapshot = &self.snapshots[number as usize - 1];
        let sent = |name: &&str| {
            let resource = snapshot.get(kind, name).unwrap();
            let references = references(kind, resource);
            Sent { name: resource.name.clone(), version: resource.version, references }
        };
        Response {
            client: WHO.into(),
            kind,
            order: match self.says {
                Says::Head => Order::Nonce(head(number)),
                Says::Nothing => Order::PublishLog,
                Says::UnloggedHead => Order::Observed(Some(head(number))),
                Says::UnloggedNothing => Order::Observed(None),
            },
            resources: names.iter().map(sent).collect(),
            removed: Vec::new(),
            whole: self.whole && matches!(kind, Cluster | Listener),
            accepted: true,
        }
    }

    /// As a crowd does it: a copy takes each response.
    fn taken_one_by_one(&self) -> Vec<Violation> {
        let mut publishes = Publishes::default();
        if matches!(self.says, Says::Head | Says::Nothing) {
            for snapshot in &self.snapshots {
                publishes.publish(snapshot).unwrap();
            }
        }
        let (mut proxy, mut violations) = (Proxy::new(fleet()), Vec::new());
        let who = WHO.into();
        for event in &self.events {
            if let Event::Responded(response) = event {
                let before = (proxy.clone(), digest(&proxy));
                proxy.receive(&who, response, &publishes, &mut violations);
                assert_eq!(digest(&before.0), before.1, "the copy is another");
            }
        }
        proxy.end(&who, &publishes, &mut violations);
        violations
    }
}

fn digest(proxy: &Proxy) -> u64 {
    let mut hasher = DefaultHasher::new();
    proxy.digest(&mut hasher);
    hasher.finish()
}

fn in_words(found: &[Violation]) -> Vec<String> {
    found.iter().map(Violation::to_string).collect()
}

/// Over both protocols.
fn found(lie: Lie, says: Says) -> Vec<String> {
    let [delta, whole] = [false, true].map(|whole| Run::with(lie, says, whole));
    assert_eq!(delta, whole, "{lie:?}, {says:?}");
    in_words(&delta)
}

const ALL: [Says; 4] = [Says::Head, Says::Nothing, Says::UnloggedHead, Says::UnloggedNothing];

#[test]
fn the_truth_passes() {
    for says in ALL {
        assert_eq!(found(Lie::None, says), [""; 0], "{says:?}");
    }
}

#[test]
fn going_back_a_version_is_found() {
    for says in [Says::Head, Says::Nothing, Says::UnloggedHead] {
        let wanted = ["default/gateway: envoy went back from 0.1.3 to 0.1.2 (endpoints)"];
        assert_eq!(found(Lie::GoesBack, says), wanted, "{says:?}");
    }
}

#[test]
fn a_mixture_of_two_snapshots_is_found() {
    let foreign = found(Lie::MixesTwo, Says::Head);
    assert_eq!(foreign.len(), 1);
    assert!(foreign[0].starts_with("default/gateway: envoy was given endpoints b at version"));
    let mixed = [
        "default/gateway: envoy was sent a response about endpoints resources that no snapshot has all of; it was at 0.1.2",
    ];
    assert_eq!(found(Lie::MixesTwo, Says::Nothing), mixed);
}

#[test]
fn a_removal_of_what_is_referred_to_is_found() {
    for says in [Says::Head, Says::Nothing, Says::UnloggedHead, Says::UnloggedNothing] {
        let found = found(Lie::RemovesReferenced, says);
        assert_eq!(found.len(), 1, "{says:?}: {found:?}");
        assert!(
            found[0].ends_with("took cluster a from envoy, whose route table still refers to it")
        );
    }
}

#[test]
fn what_is_sent_again_after_a_rejection_is_found() {
    for says in ALL {
        let found = found(Lie::ResendsRejected, says);
        assert_eq!(found.len(), 1, "{says:?}: {found:?}");
        assert!(found[0].starts_with("default/gateway: envoy was resent route table at version"));
        assert!(found[0].ends_with("which it had rejected on this stream"));
    }
}

#[test]
fn a_lost_update_is_found() {
    for says in [Says::Head, Says::Nothing] {
        let found = found(Lie::LosesUpdate, says);
        assert_eq!(found.len(), 1, "{says:?}: {found:?}");
        assert!(found[0].contains("at the end envoy is at"));
        assert!(found[0].ends_with("not at 0.1.5: endpoints b differs"));
    }
}

/// Who is not told which of two is bad may try one alone, and a new stream starts from the beginning.
#[test]
fn parts_of_what_was_rejected_may_be_sent_again_and_all_of_it_on_a_new_stream() {
    let resent = |retry: &[&str], reconnects: bool| {
        let mut run = Run::new(Says::Head, false);
        run.send(1, Cluster, &["a", "b"]);
        let rejected = run.response(1, Endpoints, &["a", "b"]);
        run.events.push(Event::Responded(Response { accepted: false, ..rejected }));
        if reconnects {
            run.events.push(Event::Reconnects { client: WHO.into() });
        }
        run.send(1, Endpoints, retry);
        let found = check(&run.events);
        found.iter().filter(|it| matches!(it, Violation::Resent { .. })).count()
    };
    assert_eq!(resent(&["a"], false), 0);
    assert_eq!(resent(&["b"], false), 0);
    assert_eq!(resent(&["a", "b"], false), 1);
    assert_eq!(resent(&["a", "b"], true), 0);
}

/// A cluster that changed needs its endpoints again, whatever was thought of them before.
#[test]
fn what_was_rejected_may_be_sent_again_for_a_new_referrer() {
    let mut run = Run::new(Says::Head, false);
    run.send(1, Cluster, &["a", "b"]);
    let rejected = run.response(1, Endpoints, &["a"]);
    run.events.push(Event::Responded(Response { accepted: false, ..rejected }));
    run.send(1, Cluster, &["a"]);
    run.send(1, Endpoints, &["a"]);
    assert!(!check(&run.events).iter().any(|it| matches!(it, Violation::Resent { .. })));
}

/// So that a crowd works out once what happens to all of them.
#[test]
fn proxies_that_came_different_ways_to_the_same_place_have_the_same_digest() {
    for says in [Says::Head, Says::Nothing] {
        let run = Run::new(says, false);
        let mut publishes = Publishes::default();
        run.snapshots.iter().for_each(|snapshot| publishes.publish(snapshot).unwrap());
        let arrived = |numbers: &[u64]| {
            let (mut proxy, mut violations) = (Proxy::new(fleet()), Vec::new());
            let first = numbers[0];
            let all = [(Cluster, &["a", "b"][..]), (Listener, &["http"]), (Route, &["table"])];
            for (kind, names) in all {
                let response = run.response(first, kind, names);
                proxy.receive(&WHO.into(), &response, &publishes, &mut violations);
            }
            for number in numbers {
                let response = run.response(*number, Endpoints, &["a", "b"]);
                proxy.receive(&WHO.into(), &response, &publishes, &mut violations);
            }
            assert_eq!(violations, []);
            digest(&proxy)
        };
        let digests = [arrived(&[1, 2]), arrived(&[2])];
        assert_eq!(digests[0], digests[1], "{says:?}");
        assert_ne!(arrived(&[1]), arrived(&[2]), "{says:?}");
    }
}

#[test]
fn a_log_only_grows_forward() {
    let mut publishes = Publishes::default();
    publishes.publish(&snapshot(2)).unwrap();
    for number in [1, 2] {
        let refused = publishes.publish(&snapshot(number)).unwrap_err();
        assert_eq!((refused.head, refused.last), (head(number), head(2)));
    }
    publishes.publish(&snapshot(3)).unwrap();
}

/// Neither many publishes nor many resources make a response dear. A search from the start, or a copy of what is held,
/// would take minutes here.
#[test]
fn a_long_history_of_much_is_checked_in_time() {
    const RESOURCES: usize = 5_000;
    const CHANGES: usize = 10_000;
    let started = Instant::now();
    let name = |at: usize| format!("app-{at}");
    let changes = (0..RESOURCES).flat_map(|at| {
        [Cluster, Endpoints].map(|kind| Change::Set(kind, resource(&name(at), &name(at))))
    });
    let mut snapshot = Snapshot::empty(fleet()).with(head(1), changes);
    let mut publishes = Publishes::default();
    publishes.publish(&snapshot).unwrap();
    let (mut proxy, mut violations) = (Proxy::new(fleet()), Vec::new());
    let who: Arc<str> = WHO.into();
    let answer = |kind, resources: Vec<&Arc<Resource>>| Response {
        client: WHO.into(),
        kind,
        order: Order::PublishLog,
        resources: resources
            .into_iter()
            .map(|resource| Sent {
                name: resource.name.clone(),
                version: resource.version,
                references: references(kind, resource),
            })
            .collect(),
        removed: Vec::new(),
        whole: false,
        accepted: true,
    };
    for kind in [Cluster, Endpoints] {
        let response = answer(kind, snapshot.tree(kind).iter().collect());
        proxy.receive(&who, &response, &publishes, &mut violations);
    }
    // As a crowd has it, whose other members have not come along yet.
    let mut behind = proxy.clone();
    for change in 0..CHANGES {
        let changed = resource(&name(change * 7 % RESOURCES), &format!("change {change}"));
        let sequence = change as u64 + 2;
        snapshot = snapshot.with(head(sequence), [Change::Set(Endpoints, changed.clone())]);
        publishes.publish(&snapshot).unwrap();
        behind = proxy.clone();
        proxy.receive(&who, &answer(Endpoints, vec![&changed]), &publishes, &mut violations);
        assert!(started.elapsed() < Duration::from_secs(60), "at {change}");
    }
    proxy.end(&who, &publishes, &mut violations);
    assert_eq!(violations, []);
    behind.end(&who, &publishes, &mut violations);
    assert!(matches!(violations[..], [Violation::Behind { .. }]));
}

use super::retry::RETRY_EVERY;
use super::*;
use crate::feedback::{Feedback, Votes};
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Document, Kind, ObjectName, parse};
use heliograph_snapshot::{Head, Version};
use heliograph_store::{AckReport, Dispute, FleetReport, RejectionReport, Voter, Voters};

const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: heliograph
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
";

/// What was accepted last, and what else was published.
struct Accepted(Option<Arc<Resource>>, Option<(Head, Arc<Resource>)>);

impl Versions for Accepted {
    fn last_good(&self, _: ResourceType, _: &str) -> Option<Arc<Resource>> {
        self.0.clone()
    }

    fn published_as(
        &self,
        _: ResourceType,
        _: &str,
        version: Version,
    ) -> Option<(Head, Arc<Resource>)> {
        self.1.clone().filter(|(_, resource)| resource.version == version)
    }
}

/// A fleet whose proxies reject every table that has one of some texts in it.
struct Fleet {
    world: World,
    isolation: Isolation,
    settled: u64,
    sequence: u64,
    accepted: Option<Arc<Resource>>,
    rejects: Vec<&'static str>,
    words: String,
    /// How many of them.
    proxies: u64,
    /// And how many others take everything.
    lenient: u64,
    /// How many have not answered.
    silent: u64,
    /// Something else is rejected all the time, so nothing is ever acknowledged.
    is_stuck: bool,
    /// A route that changes all the time.
    busy: Option<&'static str>,
    /// All that was ever left out, guilty or not.
    touched: BTreeSet<String>,
    now: Instant,
}

fn route(name: &str, path: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: shop, creationTimestamp: \"2026-01-01T00:00:00Z\"}}
spec:
  parentRefs: [{{name: web, namespace: infra}}]
  rules:
  - matches: [{{path: {{value: /{name}}}}}]
    filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: a, value: {path}}}]}}}}]
"
    )
}

fn name() -> FleetName {
    FleetName::new("infra", "web")
}

impl Fleet {
    fn new(rejects: &[&'static str], words: &str) -> Self {
        let mut fleet = Self {
            world: World::new(),
            isolation: Isolation::default(),
            settled: 0,
            sequence: 0,
            accepted: None,
            rejects: rejects.to_vec(),
            words: words.to_owned(),
            proxies: 3,
            lenient: 0,
            silent: 0,
            is_stuck: false,
            busy: None,
            touched: BTreeSet::new(),
            now: Instant::now(),
        };
        fleet.apply(GATEWAY);
        fleet
    }

    fn apply(&mut self, manifests: &str) {
        for document in parse(manifests) {
            match document {
                Document::Object(object) => self.world.apply(Event::Applied(object)),
                other => panic!("{other:?}"),
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.world.settle();
        self.settled += 1;
        self.sequence += 1;
    }

    fn table(&self) -> Arc<Resource> {
        let (_, table) = self
            .world
            .resources(&name())
            .find(|(kind, _)| *kind == ResourceType::Route)
            .expect("a table");
        table.clone()
    }

    fn is_rejected(&self, table: &Resource) -> bool {
        let has = |text: &&str| table.body.windows(text.len()).any(|it| it == text.as_bytes());
        self.rejects.iter().any(has)
    }

    /// What proxies say to what is published.
    fn feedback(&mut self) -> FleetFeedback {
        let table = self.table();
        let connected = self.proxies + self.lenient + self.silent;
        let votes = Votes { connected, ..Votes::default() };
        let mut feedback = FleetFeedback { votes, ..FleetFeedback::default() };
        if self.is_rejected(&table) {
            let subject: (ResourceType, Arc<str>, Version) =
                (ResourceType::Route, table.name.clone(), table.version);
            let rejection = Rejection {
                words: self.words.as_str().into(),
                rejected: self.proxies,
                accepted: self.lenient,
                is_counted: true,
            };
            feedback.rejections.insert(subject, rejection);
        } else {
            if !self.is_stuck {
                feedback.votes.confirmed = Some(self.head());
            }
            self.accepted = Some(table);
        }
        feedback
    }

    fn head(&self) -> Head {
        Head { epoch: 0, fence: 1, sequence: self.sequence }
    }

    /// Goes on until nothing changes any more. Returns how many publications that took.
    fn isolate(&mut self) -> usize {
        let mut publications = 0;
        let mut quiet = 0;
        while quiet < 8 {
            let feedback = self.feedback();
            let stored_head = Some(StoredHead { head: self.head(), revision: 0 });
            let fleet = name();
            let answers = FleetAnswers {
                fleet: &fleet,
                feedback: &feedback,
                stored_head,
                revision: 0,
                settled: self.settled,
                now: self.now,
            };
            let versions = Accepted(self.accepted.clone(), None);
            let changes = self.isolation.decide(&answers, &self.world, &versions);
            match changes.is_empty() {
                true => quiet += 1,
                false => (publications, quiet) = (publications + 1, 0),
            }
            for (object, left_out) in changes {
                self.touched.extend(left_out.is_some().then(|| object.name.name.to_string()));
                self.world.leave_out(&fleet, &object, left_out);
            }
            if let Some(busy) = self.busy {
                self.apply(&route(busy, &format!("fine-{}", self.settled)));
            }
            self.settle();
            self.now += Duration::from_secs(2);
            assert!(publications < 64, "it never ends");
        }
        publications
    }

    fn left_out(&self) -> Vec<String> {
        let fleet = name();
        let all = self.world.left_out(&fleet);
        all.map(|(object, it)| {
            let how = match (it.is_dropped, it.has_outlines) {
                (false, _) => "",
                (true, true) => " outlined",
                (true, false) => " dropped",
            };
            let suspect = if it.is_suspect { " suspect" } else { "" };
            format!("{}{how}{suspect}", object.name.name)
        })
        .collect()
    }
}

#[test]
fn what_words_quote_is_left_out_at_once_and_served_again_when_it_is_fixed() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    fleet.apply(&route("bad", "evil"));
    assert_eq!(fleet.isolate(), 2, "once to leave it out, once to store that it is certain");
    assert_eq!(fleet.left_out(), ["bad"]);
    // Others come and go.
    fleet.apply(&route("later", "fine"));
    assert_eq!(fleet.isolate(), 0);
    assert!(!fleet.is_rejected(&fleet.table()));
    fleet.apply(&route("bad", "fixed"));
    assert_eq!(fleet.isolate(), 0);
    assert_eq!(fleet.left_out(), [""; 0]);
}

#[test]
fn where_words_tell_nothing_the_cause_is_found_among_those_that_changed() {
    let mut fleet = Fleet::new(&["evil", "wicked"], "something is wrong");
    for number in 0..30 {
        fleet.apply(&route(&format!("before-{number}"), "fine"));
    }
    fleet.isolate();
    for number in 0..20 {
        fleet.apply(&route(&format!("new-{number}"), "fine"));
    }
    fleet.apply(&route("new-3", "evil"));
    fleet.apply(&route("new-17", "wicked"));
    let publications = fleet.isolate();
    assert_eq!(fleet.left_out(), ["new-17", "new-3"]);
    assert!(publications < 20, "{publications}");
}

#[test]
fn a_match_that_is_rejected_itself_is_dropped() {
    let mut fleet = Fleet::new(&["/evil"], "something is wrong");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    fleet.apply(&route("evil", "fine"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["evil dropped"]);
}

#[test]
fn of_an_expression_that_is_rejected_an_outline_stays() {
    let mut fleet = Fleet::new(&["[evil]"], "something is wrong");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    let expression = "{type: RegularExpression, value: '/bad/[evil]+'}";
    fleet.apply(&route("bad", "fine").replace("{value: /bad}", expression));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad outlined"]);
    // It is not enough for these proxies any more.
    fleet.rejects = vec!["/bad/"];
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad dropped"]);
}

#[test]
fn words_that_accuse_somebody_else_only_take_longer() {
    let mut fleet = Fleet::new(&["evil"], "httproute/shop/innocent/0/0 is wrong");
    fleet.apply(&route("innocent", "fine"));
    fleet.apply(&route("bad", "evil"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad"], "although nothing was ever accepted");
}

#[test]
fn what_most_proxies_accept_is_not_left_out() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    fleet.lenient = 3;
    fleet.apply(&route("bad", "evil"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), [""; 0]);
}

#[test]
fn what_is_rejected_whatever_is_left_out_is_tried_once() {
    let mut fleet = Fleet::new(&["http/80"], "the name of the table is wrong");
    fleet.apply(&route("one", "fine"));
    fleet.apply(&route("two", "fine"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), [""; 0], "all is as it was");
    assert_eq!(fleet.isolate(), 0);
    // Something else may be the cause.
    fleet.apply(&route("two", "other"));
    assert!(fleet.isolate() > 0);
    assert_eq!(fleet.left_out(), [""; 0]);
}

#[test]
fn a_second_mistake_in_a_route_is_left_out_as_well() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    let two = route("bad", "evil") + "  - matches: [{path: {value: /wicked/path}}]\n";
    fleet.apply(&two);
    fleet.isolate();
    fleet.rejects = vec!["/wicked/path"];
    fleet.words = "path '/wicked/path' is not allowed".to_owned();
    fleet.isolate();
    let fleet_name = name();
    let key = ObjectName::new("shop", "bad").of(Kind::HTTPRoute);
    let (_, left_out) = fleet.world.left_out(&fleet_name).find(|it| *it.0 == key).unwrap();
    let rules: Vec<_> = left_out.rules.iter().map(|it| (it.index, it.dropped.clone())).collect();
    assert_eq!(rules, [(0, vec![]), (1, vec![0])]);
}

#[test]
fn what_is_accepted_while_something_else_is_rejected_is_found_out_by_silence() {
    let mut fleet = Fleet::new(&["evil"], "something is wrong");
    fleet.apply(&route("innocent", "fine"));
    fleet.apply(&route("bad", "evil"));
    fleet.apply(&route("young", "fine"));
    fleet.is_stuck = true;
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad"]);
}

#[test]
fn who_rejects_first_does_not_decide_for_those_who_have_yet_to_answer() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    (fleet.proxies, fleet.silent) = (1, 5);
    fleet.apply(&route("bad", "evil"));
    let feedback = fleet.feedback();
    let name = name();
    let stored_head = Some(StoredHead { head: fleet.head(), revision: 0 });
    let mut at = |now: Instant, feedback: &FleetFeedback| {
        let settled = fleet.settled;
        let answers =
            FleetAnswers { fleet: &name, feedback, stored_head, revision: 0, settled, now };
        fleet.isolation.decide(&answers, &fleet.world, &Accepted(None, None)).len()
    };
    assert_eq!(at(fleet.now, &feedback), 0);
    let mut accepted = feedback.clone();
    accepted.rejections.values_mut().for_each(|rejection| rejection.accepted = 5);
    let later = fleet.now + Duration::from_secs(3);
    assert_eq!(at(later, &accepted), 0, "they accept it");
    assert_eq!(at(later + STANDING, &feedback), 0, "it counts from the beginning");
    assert_eq!(at(later + 2 * STANDING, &feedback), 1, "they have nothing to say");
}

/// Three proxies reject what is rejected and say nothing to all else; a fourth has everything, on forty streams.
fn feedback_of_one_with_many_streams(fleet: &Fleet) -> FleetFeedback {
    let (table, fourth) = (fleet.table(), Voters { count: 1, only: Some(Voter(4)) });
    let (kind, name, version) = (ResourceType::Route, table.name.clone(), table.version);
    let mut report = FleetReport {
        connected: 43,
        voters: Voters { count: 4, only: None },
        acknowledged: [(fleet.head(), 40)].into(),
        votes: [(fleet.head(), fourth)].into(),
        ..FleetReport::default()
    };
    if fleet.is_rejected(&table) {
        let resources = vec![(name.clone(), Some(version))];
        let detail = fleet.words.clone();
        report.rejections.push(RejectionReport { kind, detail, resources, count: 3 });
        report.disputes.push(Dispute {
            rejecting: [1, 2, 3].map(Voter).into(),
            accepting: vec![Voter(4)],
            ..Dispute::new(kind, name, version, 3, 1)
        });
    }
    let fleets = [(self::name(), report)].into();
    let feedback = Feedback::of(vec![AckReport { fleets, ..AckReport::default() }]);
    (*feedback.fleets[&self::name()]).clone()
}

#[test]
fn a_proxy_has_one_vote_however_many_streams_it_has() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    fleet.apply(&route("bad", "evil"));
    let name = name();
    let decide = |fleet: &mut Fleet| {
        let feedback = feedback_of_one_with_many_streams(fleet);
        let stored_head = Some(StoredHead { head: fleet.head(), revision: 0 });
        let (settled, now) = (fleet.settled, fleet.now);
        let answers = FleetAnswers {
            fleet: &name,
            feedback: &feedback,
            stored_head,
            revision: 0,
            settled,
            now,
        };
        let versions = Accepted(fleet.accepted.clone(), None);
        fleet.isolation.decide(&answers, &fleet.world, &versions)
    };
    let changes = decide(&mut fleet);
    assert_eq!(changes.len(), 1, "most of the four reject it");
    for (object, left_out) in changes {
        fleet.world.leave_out(&name, &object, left_out);
    }
    fleet.settle();
    assert!(!fleet.is_rejected(&fleet.table()));
    assert_eq!(decide(&mut fleet), [], "it is published");
    fleet.now += CONFIRMING;
    assert_eq!(decide(&mut fleet), [], "one of four does not accept it for the others");
    assert_eq!(fleet.left_out(), ["bad suspect"]);
}

#[test]
fn a_namespace_with_one_bad_route_after_the_other_has_all_of_its_suspects_left_out() {
    let mut fleet = Fleet::new(&["evil"], "something is wrong");
    fleet.apply(&route("good", "fine").replace("namespace: shop", "namespace: other"));
    fleet.isolate();
    for number in 0..40 {
        fleet.apply(&route(&format!("bad-{number}"), "evil"));
    }
    let publications = fleet.isolate();
    assert!(!fleet.is_rejected(&fleet.table()));
    assert!(publications < 60, "{publications}");
    assert!(fleet.left_out().iter().all(|it| it.starts_with("bad")), "{:?}", fleet.left_out());
}

/// Routes of two namespaces change at once, and the words of proxies mean both or none of them.
#[test]
fn a_namespace_that_offended_before_is_tried_alone() {
    // Of the same age, the last by name are tried first otherwise.
    let good = |path: &str| route("good", path).replace("namespace: shop", "namespace: zone");
    for words in ["something is wrong", "header value 'evil' is not allowed"] {
        let mut fleet = Fleet::new(&["evil/"], words);
        fleet.apply(&good("fine"));
        fleet.isolate();
        fleet.apply(&route("bad", "evil/0"));
        fleet.isolate();
        assert_eq!(fleet.left_out(), ["bad"], "{words}");
        fleet.touched.clear();
        for number in 1..6 {
            // What was left out is fixed, or even gone: it is remembered for a while.
            fleet.apply(&route("bad", "fixed"));
            fleet.isolate();
            assert_eq!(fleet.left_out(), [""; 0], "{words}");
            fleet.apply(&route("bad", &format!("evil/{number}")));
            fleet.apply(&good(&format!("evil-{number}")));
            fleet.isolate();
            assert_eq!(fleet.left_out(), ["bad"], "{words}");
        }
        assert_eq!(fleet.touched, BTreeSet::from(["bad".to_owned()]), "{words}");
        let edit = parse(&good("last")).into_iter().next();
        let Some(Document::Object(edit)) = edit else { panic!("{edit:?}") };
        let admitted = fleet.isolation.delay.admit(vec![Event::Applied(edit)], fleet.now);
        assert_eq!(admitted.len(), 1, "its changes do not wait: {words}");
    }
}

#[test]
fn who_offended_before_and_is_innocent_now_is_not_held_guilty() {
    let other = |path: &str| route("new", path).replace("namespace: shop", "namespace: other");
    let mut fleet = Fleet::new(&["evil"], "something is wrong");
    fleet.apply(&other("fine"));
    fleet.apply(&route("bad", "evil"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad"]);
    fleet.apply(&route("bad", "fixed"));
    fleet.isolate();
    fleet.apply(&route("bad", "fixed-again"));
    fleet.apply(&other("evil"));
    let publications = fleet.isolate();
    assert_eq!(fleet.left_out(), ["new"]);
    assert!(publications < 12, "{publications}");
    // Both: it is not enough to leave one of them out.
    fleet.apply(&route("bad", "evil-at-last"));
    fleet.apply(&other("evil-again"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["new", "bad"]);
}

#[test]
fn offences_are_forgotten() {
    let mut fleet = Fleet::new(&["evil"], "something is wrong");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    fleet.apply(&route("bad", "evil"));
    fleet.isolate();
    fleet.apply(&route("bad", "fixed"));
    fleet.isolate();
    let offending = |now: Instant| fleet.isolation.delay.offending(now).collect::<Vec<_>>();
    assert_eq!(offending(fleet.now), ["shop"]);
    assert_eq!(offending(fleet.now + Duration::from_secs(120)), [""; 0]);
}

#[test]
fn a_search_ends_although_other_suspects_change_all_the_time() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    fleet.apply(&route("busy", "fine"));
    fleet.isolate();
    fleet.busy = Some("busy");
    fleet.apply(&route("busy", "other"));
    fleet.apply(&route("bad", "evil"));
    assert_eq!(fleet.isolate(), 2, "once to leave it out, once to store that it is certain");
    assert_eq!(fleet.left_out(), ["bad"]);
}

#[test]
fn a_route_that_changes_faster_than_proxies_answer_has_to_wait() {
    let mut fleet = Fleet::new(&["evil"], "header value 'evil' is not allowed");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    for number in 0..3 {
        fleet.apply(&route("bad", &format!("evil-{number}")));
        let (feedback, rejected) = (fleet.feedback(), (fleet.head(), fleet.table()));
        fleet.apply(&route("bad", &format!("evil-{number}-again")));
        let name = name();
        let stored_head = Some(StoredHead { head: fleet.head(), revision: 0 });
        let (settled, now) = (fleet.settled, fleet.now);
        let answers = FleetAnswers {
            fleet: &name,
            feedback: &feedback,
            stored_head,
            revision: 0,
            settled,
            now,
        };
        let versions = Accepted(fleet.accepted.clone(), Some(rejected));
        let changes = fleet.isolation.decide(&answers, &fleet.world, &versions);
        assert_eq!(changes, [], "what it is now has yet to be answered");
        let again = fleet.isolation.decide(&answers, &fleet.world, &versions);
        assert_eq!(again, [], "and counts once");
        let edit = parse(&route("bad", "evil-at-last")).into_iter().next();
        let Some(Document::Object(edit)) = edit else { panic!("{edit:?}") };
        let admitted = fleet.isolation.delay.admit(vec![Event::Applied(edit)], fleet.now);
        assert_eq!(admitted.is_empty(), number > 0, "after {number} others");
    }
    assert_eq!(fleet.isolation.delay.due(), Some(fleet.now + Duration::from_secs(4)));
}

#[test]
fn what_is_left_out_is_tried_again_now_and_then_one_object_at_a_time() {
    let mut fleet = Fleet::new(&["evil", "wicked"], "header value 'evil' is not allowed");
    fleet.apply(&route("good", "fine"));
    fleet.isolate();
    fleet.apply(&route("bad", "evil"));
    fleet.isolate();
    fleet.words = "header value 'wicked' is not allowed".to_owned();
    fleet.apply(&route("worse", "wicked"));
    fleet.isolate();
    assert_eq!(fleet.left_out(), ["bad", "worse"]);
    // The same proxies reject it again.
    fleet.words = "header value 'evil' is not allowed".to_owned();
    fleet.now += RETRY_EVERY;
    assert_eq!(fleet.isolate(), 3, "once to try it, once to leave it out, once to store that");
    assert_eq!(fleet.left_out(), ["bad", "worse"]);
    // Others do not.
    fleet.rejects.clear();
    fleet.now += RETRY_EVERY;
    assert_eq!(fleet.isolate(), 1);
    assert_eq!(fleet.left_out(), ["bad"], "it is the turn of the other");
    fleet.now += RETRY_EVERY;
    fleet.isolate();
    assert_eq!(fleet.left_out(), [""; 0]);
}

//! Histories that are written down here, with one thing wrong in each.

use heliograph_checker::{
    Content, Event, Order, Outcome, ResourceId, Response, Sent, Violation, check,
};
use heliograph_snapshot::ResourceType::{Cluster, Endpoints, Listener, Route};
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::sync::Arc;

const CLIENT: &str = "envoy";
const READER: &str = "reader";

type Resources<'a> = &'a [(ResourceType, &'a str, u32)];

/// A gateway whose only route leads to `to`, whose endpoints are at a revision.
fn gateway(to: &'static str, revision: u32) -> Vec<(ResourceType, &'static str, u32)> {
    let table = if to == "a" { 1 } else { 2 };
    vec![
        (Cluster, to, 1),
        (Endpoints, to, revision),
        (Listener, "http", 1),
        (Route, "table", table),
    ]
}

/// As the resources of a gateway refer to each other.
fn references(kind: ResourceType, name: &str, revision: u32) -> Vec<ResourceId> {
    match (kind, revision) {
        (Cluster, _) => vec![ResourceId::new(Endpoints, name)],
        (Listener, _) => vec![ResourceId::new(Route, "table")],
        (Route, 1) => vec![ResourceId::new(Cluster, "a")],
        (Route, _) => vec![ResourceId::new(Cluster, "b")],
        _ => Vec::new(),
    }
}

fn fleet() -> FleetName {
    FleetName::new("default", "gateway")
}

fn head(sequence: u64) -> Head {
    Head { epoch: 0, fence: 1, sequence }
}

fn version(revision: u32) -> Version {
    Version::of(&revision.to_be_bytes())
}

fn content(resources: Resources<'_>) -> Option<Arc<Content>> {
    let entry = |(kind, name, revision): &(ResourceType, &str, u32)| {
        (ResourceId::new(*kind, *name), version(*revision))
    };
    Some(Arc::new(Content(resources.iter().map(entry).collect())))
}

fn asked(sequence: u64, resources: Resources<'_>) -> Event {
    Event::Asked { fleet: fleet(), head: head(sequence), content: content(resources) }
}

fn answered(sequence: u64, outcome: Outcome) -> Event {
    Event::Answered { fleet: fleet(), head: head(sequence), outcome }
}

fn published(sequence: u64, resources: Resources<'_>) -> [Event; 2] {
    [asked(sequence, resources), answered(sequence, Outcome::Acknowledged)]
}

fn connects() -> Event {
    Event::Connects { client: CLIENT.into(), fleet: fleet() }
}

fn reads() -> Event {
    Event::Reads { reader: READER.into() }
}

fn read(sequence: u64, resources: Resources<'_>) -> Event {
    let content = content(resources);
    Event::Read { reader: READER.into(), fleet: fleet(), head: head(sequence), content }
}

/// Of one type, as delta has it.
fn response(order: Order, resources: Resources<'_>) -> Response {
    let sent = |(kind, name, revision): &(ResourceType, &str, u32)| Sent {
        name: (*name).into(),
        version: version(*revision),
        references: references(*kind, name, *revision),
    };
    Response {
        client: CLIENT.into(),
        kind: resources[0].0,
        order,
        resources: resources.iter().map(sent).collect(),
        removed: Vec::new(),
        whole: false,
        accepted: true,
    }
}

fn sent(sequence: u64, resources: Resources<'_>) -> Event {
    Event::Responded(response(Order::Nonce(head(sequence)), resources))
}

fn listed(sequence: u64, resources: Resources<'_>) -> Event {
    let response = response(Order::Nonce(head(sequence)), resources);
    Event::Responded(Response { whole: true, ..response })
}

fn removed(sequence: u64, kind: ResourceType, name: &str) -> Event {
    Event::Responded(Response {
        client: CLIENT.into(),
        kind,
        order: Order::Nonce(head(sequence)),
        resources: Vec::new(),
        removed: vec![name.into()],
        whole: false,
        accepted: true,
    })
}

/// All of a snapshot, type by type.
fn all_sent(sequence: u64, resources: Resources<'_>) -> Vec<Event> {
    resources.iter().map(|resource| sent(sequence, &[*resource])).collect()
}

fn in_words(events: impl IntoIterator<Item = Event>) -> Vec<String> {
    let events: Vec<_> = events.into_iter().collect();
    check(&events).iter().map(Violation::to_string).collect()
}

/// From gateway a to gateway b, in the order of make before break.
fn honest() -> Vec<Event> {
    let (a, b) = (gateway("a", 1), gateway("b", 1));
    let mut events = vec![connects(), reads()];
    events.extend(published(1, &a));
    events.push(read(1, &a));
    events.extend(all_sent(1, &a));
    events.extend(published(2, &b));
    events.push(read(2, &b));
    events.extend([
        sent(2, &[(Cluster, "b", 1)]),
        sent(2, &[(Endpoints, "b", 1)]),
        sent(2, &[(Route, "table", 2)]),
        removed(2, Cluster, "a"),
    ]);
    events
}

#[test]
fn an_honest_history_has_nothing_wrong() {
    assert_eq!(in_words(honest()), [""; 0]);
    assert_eq!(in_words([]), [""; 0]);
}

#[test]
fn whole_lists_keep_what_awaits_its_removal_and_what_was_rejected() {
    let (a, b) = (gateway("a", 1), gateway("b", 1));
    let mut events = vec![connects()];
    events.extend(published(1, &a));
    events.extend(all_sent(1, &a));
    events.extend(published(2, &b));
    events.extend([
        listed(2, &[(Cluster, "a", 1), (Cluster, "b", 1)]),
        sent(2, &[(Endpoints, "b", 1)]),
        sent(2, &[(Route, "table", 2)]),
        listed(2, &[(Cluster, "b", 1)]),
    ]);
    // The third changes a cluster, and the proxy does not take it.
    let mut c = b.clone();
    c[0].2 = 7;
    events.extend(published(3, &c));
    let rejected = response(Order::Nonce(head(3)), &[(Cluster, "b", 7)]);
    events.push(Event::Responded(Response { whole: true, accepted: false, ..rejected }));
    assert_eq!(in_words(events), [""; 0]);
}

#[test]
fn what_a_cluster_still_needs_outlives_its_snapshot() {
    let (a, b) = (gateway("a", 1), gateway("b", 1));
    let honest = |endpoints| {
        let mut events = vec![connects()];
        events.extend(published(1, &a));
        events.push(sent(1, &a[..1]));
        events.extend(published(2, &b));
        // The cluster of the first is there, and waits for its endpoints.
        events.push(sent(2, &[(Endpoints, "a", endpoints)]));
        events.extend(all_sent(2, &b));
        events.push(removed(2, Cluster, "a"));
        in_words(events)
    };
    assert_eq!(honest(1), [""; 0]);
    assert_eq!(honest(7).len(), 1, "no snapshot had these");
}

/// In state of the world a server does not know what a proxy holds from another stream.
#[test]
fn the_first_list_of_a_stream_may_leave_out_what_is_still_in_use() {
    let (a, b) = (gateway("a", 1), gateway("b", 1));
    let history = |again: Option<Event>| {
        let mut events = vec![connects()];
        events.extend(published(1, &a));
        events.extend(all_sent(1, &a));
        events.extend(published(2, &b));
        events.extend(again);
        events.push(listed(2, &b[..1]));
        events.extend([sent(2, &b[1..2]), sent(2, &b[3..])]);
        in_words(events)
    };
    assert_eq!(history(Some(Event::Reconnects { client: CLIENT.into() })), [""; 0]);
    assert_eq!(history(None).len(), 1);
}

#[test]
fn a_lost_answer_may_be_either() {
    let (a, b) = (gateway("a", 1), gateway("a", 2));
    for seen in [&a, &b] {
        let sequence = if seen == &a { 1 } else { 2 };
        let mut events = vec![reads(), connects()];
        events.extend(published(1, &a));
        events.extend([asked(2, &b), answered(2, Outcome::Unknown), read(sequence, seen)]);
        events.extend(all_sent(sequence, seen));
        assert_eq!(in_words(events), [""; 0]);
    }
}

#[test]
fn going_back_is_found() {
    let mut events = honest();
    events.push(read(1, &gateway("a", 1)));
    assert_eq!(
        in_words(events),
        [
            "default/gateway: reader went back from 0.1.2 to 0.1.1 (snapshots)",
            "default/gateway: at the end reader is at 0.1.1, not at 0.1.2",
        ]
    );
    let mut events = honest();
    events.push(sent(1, &[(Listener, "http", 1)]));
    assert_eq!(in_words(events), [""; 0], "listeners were last sent at this head");
    let mut events = honest();
    events.push(sent(1, &[(Endpoints, "a", 1)]));
    assert_eq!(
        in_words(events),
        ["default/gateway: envoy went back from 0.1.2 to 0.1.1 (endpoints)"]
    );
}

#[test]
fn a_head_that_nobody_published_is_found() {
    let mut events = honest();
    events.push(sent(9, &[(Listener, "http", 1)]));
    assert_eq!(
        in_words(events),
        ["default/gateway: envoy was given 0.1.9, which no writer published"]
    );
}

#[test]
fn a_head_that_was_refused_is_found() {
    let mut events = honest();
    events.extend([asked(3, &gateway("a", 3)), answered(3, Outcome::Refused)]);
    events.push(read(3, &gateway("a", 3)));
    let refused = "default/gateway: reader was given 0.1.3, which the store had refused";
    assert_eq!(in_words(events.clone()), [refused]);
    // It was asked for twice, and the first answer was lost.
    events.push(asked(3, &gateway("a", 3)));
    assert_eq!(in_words(events), [""; 0]);
}

#[test]
fn a_mixture_of_two_snapshots_is_found() {
    let (a, b) = (gateway("a", 1), gateway("a", 2));
    let mut events = vec![connects(), reads()];
    events.extend(published(1, &a));
    events.extend(all_sent(1, &a));
    events.extend(published(2, &b));
    events.push(sent(2, &[(Endpoints, "a", 1)]));
    let mut mixture = b.clone();
    mixture[1].2 = 1;
    events.push(read(2, &mixture));
    let found = in_words(events);
    assert!(
        found[0].starts_with("default/gateway: envoy was given endpoints a at version"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("default/gateway: reader was given endpoints a at version"),
        "{found:?}"
    );
    assert_eq!(
        found[2..],
        ["default/gateway: at the end envoy is at 0.1.2, not at 0.1.2: endpoints a differs"]
    );
}

#[test]
fn half_a_snapshot_is_found() {
    let a = gateway("a", 1);
    let mut events = vec![connects(), reads()];
    events.extend(published(1, &[&a[..], &[(Cluster, "z", 1)]].concat()));
    events.push(read(1, &a));
    events.push(listed(1, &[(Cluster, "a", 1)]));
    events.push(removed(1, Listener, "http"));
    assert_eq!(
        in_words(events)[..3],
        [
            "default/gateway: reader was not given cluster z, which the snapshot at 0.1.1 has",
            "default/gateway: envoy was not given cluster z, which the snapshot at 0.1.1 has",
            "default/gateway: envoy was not given listener http, which the snapshot at 0.1.1 has",
        ]
    );
}

#[test]
fn a_reference_to_what_was_not_sent_is_found() {
    let a = gateway("a", 1);
    let mut events = vec![connects()];
    events.extend(published(1, &a));
    // Routes before their cluster.
    events.extend([sent(1, &a[2..3]), sent(1, &a[3..]), sent(1, &a[..1]), sent(1, &a[1..2])]);
    assert_eq!(
        in_words(events),
        [
            "default/gateway: envoy was sent route table of 0.1.1, which refers to cluster a, and it does not have that"
        ]
    );
    // A snapshot without the routes that its listener names.
    let mut events = vec![connects()];
    events.extend(published(1, &a[..3]));
    events.extend(all_sent(1, &a[..3]));
    assert_eq!(
        in_words(events),
        [
            "default/gateway: envoy was sent listener http of 0.1.1, which refers to route table, and it does not have that"
        ]
    );
}

#[test]
fn a_removal_of_what_is_referred_to_is_found() {
    let (a, b) = (gateway("a", 1), gateway("b", 1));
    let mut events = vec![connects()];
    events.extend(published(1, &a));
    events.extend(all_sent(1, &a));
    events.extend(published(2, &b));
    events.extend([
        sent(2, &[(Cluster, "b", 1)]),
        sent(2, &[(Endpoints, "b", 1)]),
        removed(2, Cluster, "a"),
        sent(2, &[(Route, "table", 2)]),
    ]);
    assert_eq!(
        in_words(events),
        ["default/gateway: 0.1.2 took cluster a from envoy, whose route table still refers to it"]
    );
}

#[test]
fn an_acknowledged_publish_that_nobody_sees_is_found() {
    let mut events = honest();
    events.extend(published(3, &gateway("b", 2)));
    let behind = [
        "default/gateway: at the end reader is at 0.1.2, not at 0.1.3",
        "default/gateway: at the end envoy is at 0.1.2, not at 0.1.3: endpoints b differs",
    ];
    assert_eq!(in_words(events.clone()), behind);
    assert!(check(&events).iter().all(Violation::may_pass));
    events.extend([CLIENT, READER].map(|who| Event::Leaves { who: who.into() }));
    assert_eq!(in_words(events), [""; 0]);
}

#[test]
fn a_retired_fleet_is_told_to_readers_and_kept_by_proxies() {
    let retirement =
        |sequence| Event::Asked { fleet: fleet(), head: head(sequence), content: None };
    let mut events = honest();
    events.extend([retirement(3), answered(3, Outcome::Acknowledged)]);
    assert_eq!(
        in_words(events.clone()),
        ["default/gateway: at the end reader is at 0.1.2, not at 0.1.3"]
    );
    let (fleet, head) = (fleet(), head(3));
    events.push(Event::Read { reader: READER.into(), fleet, head, content: None });
    assert_eq!(in_words(events.clone()), [""; 0]);
    // It is retired again, because the store had lost that.
    events.extend([retirement(4), answered(4, Outcome::Acknowledged)]);
    assert_eq!(in_words(events), [""; 0]);
}

/// A store that loses its data also loses records that were never read.
#[test]
fn a_fleet_that_is_no_more_is_owed_to_nobody_and_kept_by_no_reader() {
    let wanted = |is_wanted| Event::Wanted { fleet: fleet(), is_wanted };
    let mut events = vec![reads()];
    events.extend(published(1, &gateway("a", 1)));
    events.push(read(1, &gateway("a", 1)));
    let (of, at) = (fleet(), head(2));
    events.push(Event::Asked { fleet: of.clone(), head: at, content: None });
    events.push(answered(2, Outcome::Acknowledged));
    events.push(Event::Read { reader: READER.into(), fleet: of, head: at, content: None });
    events.extend(published(3, &gateway("a", 2)));
    let behind = ["default/gateway: at the end reader is at 0.1.2, not at 0.1.3"];
    assert_eq!(in_words(events.clone()), behind);
    events.push(wanted(false));
    assert_eq!(in_words(events.clone()), [""; 0]);
    events.push(wanted(true));
    assert_eq!(in_words(events.clone()), behind);
    events.extend([read(3, &gateway("a", 2)), wanted(false)]);
    let kept = "default/gateway: at the end reader still has 0.1.3, and the fleet is no more";
    assert_eq!(in_words(events.clone()), [kept]);
    assert!(check(&events).iter().all(Violation::may_pass));
}

#[test]
fn two_contents_for_one_head_are_found() {
    let mut events = honest();
    events.push(asked(2, &gateway("b", 7)));
    assert_eq!(
        in_words(events),
        ["default/gateway: two writers' contents for one head, 0.1.2: they differ in endpoints b"]
    );
}

#[test]
fn servers_without_heads_are_ordered_by_what_was_published() {
    let gateways = [1, 2, 3].map(|revision| gateway("a", revision));
    let mut events = vec![connects()];
    for (sequence, resources) in (1..).zip(&gateways) {
        events.extend(published(sequence, resources));
    }
    let say = |resource| Event::Responded(response(Order::PublishLog, &[resource]));
    let a = &gateways[0];
    events.extend([say(a[0]), say(a[1]), say(a[2]), say(a[3])]);
    let mut honest = events.clone();
    honest.push(say((Endpoints, "a", 3)));
    assert_eq!(in_words(honest.clone()), [""; 0]);
    honest.extend([say((Endpoints, "a", 2)), say((Endpoints, "a", 3))]);
    assert_eq!(
        in_words(honest),
        ["default/gateway: envoy went back from 0.1.3 to 0.1.2 (endpoints)"]
    );
    events.extend([say((Endpoints, "a", 9)), say((Endpoints, "a", 3))]);
    assert_eq!(
        in_words(events),
        [
            "default/gateway: envoy was sent a response about endpoints resources that no snapshot has all of; it was at 0.1.1"
        ]
    );
}

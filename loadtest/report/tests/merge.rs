//! Figures that were recorded apart and merged are the same as if all had been recorded in one place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_report::{Figures, ReceivedResponse, RequestKind};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

/// More kinds than a tally keeps.
const KINDS: [&str; 40] = [
    "k00", "k01", "k02", "k03", "k04", "k05", "k06", "k07", "k08", "k09", "k10", "k11", "k12",
    "k13", "k14", "k15", "k16", "k17", "k18", "k19", "k20", "k21", "k22", "k23", "k24", "k25",
    "k26", "k27", "k28", "k29", "k30", "k31", "k32", "k33", "k34", "k35", "k36", "k37", "k38",
    "other",
];

#[derive(Clone, Debug)]
enum Event {
    Opened(u64, Duration),
    Closed(u64),
    Failed(u64, &'static str),
    FirstState(u64, Duration),
    Received(u64, ReceivedResponse),
    Sent(u64, u64, RequestKind),
    Receipt(Duration),
    Answered(u32, Duration),
    Violation(&'static str),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_is_recording_in_one_place(parts in vec(vec(event(), 0..60), 1..5)) {
        let together = recorded(&parts.concat());
        let mut merged = Figures::default();
        for part in &parts {
            merged.merge(&recorded(part));
        }
        prop_assert_eq!(merged, together);
    }

    #[test]
    fn merging_is_associative_and_commutative(
        a in vec(event(), 0..80), b in vec(event(), 0..80), c in vec(event(), 0..80),
    ) {
        let [a, b, c] = [a, b, c].map(|events| recorded(&events));
        let left = merged(&merged(&a, &b), &c);
        prop_assert_eq!(&left, &merged(&a, &merged(&b, &c)));
        prop_assert_eq!(&left, &merged(&c, &merged(&b, &a)));
    }

    #[test]
    fn figures_read_back_as_they_were(events in vec(event(), 0..120)) {
        let figures = recorded(&events);
        let text = serde_json::to_string(&figures).unwrap();
        prop_assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }

    #[test]
    fn what_came_since_is_what_was_recorded_since(
        before in vec(event(), 0..80), after in vec(event(), 0..80),
    ) {
        let earlier = recorded(&before);
        let both = recorded(&[before, after.clone()].concat());
        let since = both.since(&earlier);
        let expected = recorded(&after);
        prop_assert_eq!(since.counters, expected.counters);
        prop_assert_eq!(since.connect, expected.connect);
        prop_assert_eq!(since.first_state, expected.first_state);
        prop_assert_eq!(since.receipt, expected.receipt);
        prop_assert_eq!(since.errors.total(), expected.errors.total());
        prop_assert_eq!(since.violations.total(), expected.violations.total());
        let known = |change| earlier.pushes.get(change).is_some();
        let new: Vec<_> = both.pushes.iter().filter(|(change, _)| !known(*change)).collect();
        prop_assert_eq!(since.pushes.iter().collect::<Vec<_>>(), new);
    }
}

#[test]
fn the_last_client_of_a_change_may_be_in_any_worker() {
    let mut one = Figures::default();
    one.answered(7, Duration::from_millis(5));
    one.answered(7, Duration::from_millis(2));
    let mut other = Figures::default();
    other.answered(7, Duration::from_millis(9));
    one.merge(&other);
    let push = one.pushes.get(7).unwrap();
    assert_eq!((push.clients, push.last), (3, Duration::from_millis(9)));
    assert_eq!(one.pushes.latencies().count(), 1, "one change has one last client");
}

#[test]
fn long_runs_stay_small() {
    let mut figures = Figures::default();
    for second in 0..100_000 {
        figures.closed(second);
        figures.answered(u32::try_from(second).unwrap(), Duration::from_millis(1));
    }
    assert_eq!(figures.series.step(), 32);
    assert_eq!(figures.series.points().map(|(_, point)| point.closed).sum::<u64>(), 100_000);
    assert_eq!(figures.pushes.len(), 10_000);
    assert!(figures.pushes.get(99_999).is_some() && figures.pushes.get(0).is_none());

    let mut late = figures.clone();
    late.answered(3, Duration::from_secs(1));
    assert_eq!(late.pushes, figures.pushes, "what was dropped does not come back");
}

#[test]
fn kinds_beyond_the_bound_are_counted_together() {
    let mut figures = Figures::default();
    for kind in KINDS.iter().rev() {
        figures.violation(kind);
    }
    assert_eq!(figures.violations.iter().count(), 33);
    assert_eq!(figures.violations.iter().last(), Some(("other", 8)));
    assert_eq!(figures.violations.total(), 40);
}

#[test]
fn streams_follow_from_what_was_opened_and_closed() {
    let mut figures = Figures::default();
    for second in [10, 10, 12] {
        figures.opened(second, Duration::from_millis(1));
    }
    figures.closed(14);
    assert_eq!(figures.streams(), 2);
    assert_eq!(figures.series.streams().collect::<Vec<_>>(), [(10, 2), (12, 3), (14, 2)]);
}

#[test]
fn latencies_are_exact_to_three_digits_and_end_at_an_hour() {
    let mut figures = Figures::default();
    for millis in 1..=1000 {
        figures.receipt(Duration::from_millis(millis));
    }
    let near = |found: Duration, millis: u64| {
        let found = found.as_secs_f64() * 1000.0;
        assert!((found / millis as f64 - 1.0).abs() < 0.001, "{found} ms, not {millis}");
    };
    let summary = figures.receipt.summary();
    near(summary.p50, 500);
    near(summary.p99, 990);
    near(summary.max, 1000);
    figures.receipt(Duration::from_secs(100_000));
    near(figures.receipt.max(), 3_600_000);
    figures.receipt(Duration::MAX);
    assert_eq!(figures.receipt.count(), 1002);
}

fn event() -> impl Strategy<Value = Event> {
    // Far enough apart that a series takes longer steps, and changes that several clients answer.
    let second = 0..20_000_u64;
    let latency = (0..5_000_000_000_u64).prop_map(Duration::from_micros);
    let kind = proptest::sample::select(KINDS.as_slice());
    let answer =
        proptest::sample::select(vec![RequestKind::Ack, RequestKind::Nack, RequestKind::Ask]);
    let response = (0..1_000_000_u64, 0..1000_u64, 0..10_u64);
    let response = response.prop_map(|(bytes, resources, resent)| ReceivedResponse {
        bytes,
        resources,
        resent,
    });
    prop_oneof![
        (second.clone(), latency.clone()).prop_map(|(second, took)| Event::Opened(second, took)),
        second.clone().prop_map(Event::Closed),
        (second.clone(), kind.clone()).prop_map(|(second, kind)| Event::Failed(second, kind)),
        (second.clone(), latency.clone())
            .prop_map(|(second, took)| Event::FirstState(second, took)),
        (second.clone(), response).prop_map(|(second, response)| Event::Received(second, response)),
        (second, 0..1000_u64, answer)
            .prop_map(|(second, bytes, answer)| Event::Sent(second, bytes, answer)),
        latency.clone().prop_map(Event::Receipt),
        (0..20_u32, latency).prop_map(|(change, late)| Event::Answered(change, late)),
        kind.prop_map(Event::Violation),
    ]
}

fn recorded(events: &[Event]) -> Figures {
    let mut figures = Figures::default();
    for event in events {
        match *event {
            Event::Opened(second, took) => figures.opened(second, took),
            Event::Closed(second) => figures.closed(second),
            Event::Failed(second, kind) => figures.failed(second, kind),
            Event::FirstState(second, took) => figures.first_state(second, took),
            Event::Received(second, response) => figures.received(second, response),
            Event::Sent(second, bytes, answer) => figures.sent(second, bytes, answer),
            Event::Receipt(late) => figures.receipt(late),
            Event::Answered(change, late) => figures.answered(change, late),
            Event::Violation(kind) => figures.violation(kind),
        }
    }
    figures
}

fn merged(one: &Figures, other: &Figures) -> Figures {
    let mut merged = one.clone();
    merged.merge(other);
    merged
}

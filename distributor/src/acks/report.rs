//! The answers of this replica's clients, as a bounded value for the store.

use super::RejectionSummary;
use crate::feed::{Fleet, Fleets};
use heliograph_snapshot::{Address, FleetName, Head, Section};
use heliograph_store::{AckReport, FleetReport, PinState, Pinned, Record, RejectionReport, State};
use std::collections::BTreeMap;
use std::sync::Arc;

/// About how large a report may be. Every replica writes one, and the translator reads them all at once.
const BYTES_LIMIT: usize = 1 << 20;
/// How much of that records may take that the store has lost.
const REMEMBERED_LIMIT: usize = BYTES_LIMIT / 2;
/// How much of a rejection is reported: bytes of the client's error text, and resources.
const WHOLE: (usize, usize) = (RejectionReport::DETAIL, RejectionReport::RESOURCES);
/// The same for a fleet that takes more than its share: the first that fits.
const CUTS: [(usize, usize); 2] = [(256, 8), (64, 1)];

/// Fleets of which there is nothing to say are left out.
pub(super) fn of(replica: &str, fleets: &Fleets) -> AckReport {
    let loaded = fleets.all();
    let reports = loaded.iter().map(|(name, fleet)| (name.clone(), of_fleet(fleet)));
    let mut said: BTreeMap<_, _> =
        reports.filter(|(_, report)| *report != FleetReport::default()).collect();
    // Once these are repaired, the others are reported.
    let damaged: BTreeMap<_, _> = fleets.damaged().into_iter().take(AckReport::DAMAGED).collect();
    let remembered = fitting(fleets.remembered(), REMEMBERED_LIMIT);
    let others = damaged.keys().map(|name| name.as_str().len() + size_of::<Head>());
    let others = others.chain(remembered.iter().map(|record| record_size(record)));
    fit(&mut said, BYTES_LIMIT.saturating_sub(others.sum()));
    AckReport {
        replica: replica.to_owned(),
        // Who sends it knows when.
        start: 0,
        sequence: 0,
        fleets: said,
        damaged,
        remembered,
    }
}

fn of_fleet(fleet: &Fleet) -> FleetReport {
    let views = fleet.current();
    let on_record = views.as_ref().map(|views| views.quarantined()).unwrap_or_default();
    let all = views.as_ref().map(|views| views.all()).unwrap_or_default();
    let sums = fleet.acks.sums();
    let newest = sums.acknowledged.iter().rev().take(FleetReport::HEADS);
    let disputes = sums.votes.disputes(on_record);
    let rejections = sums.rejections.unanswered(&all, &disputes);
    let rejections: Vec<_> = rejections.map(of_rejection).collect();
    let older = rejections.len().saturating_sub(FleetReport::REJECTIONS);
    FleetReport {
        connected: sums.connected as u64,
        acknowledged: newest.map(|(head, count)| (*head, *count as u64)).collect(),
        rejections: rejections.into_iter().skip(older).collect(),
        disputes,
        voters: sums.votes.connected(),
        votes: sums.votes.acknowledged(),
    }
}

fn of_rejection(rejection: &RejectionSummary) -> RejectionReport {
    let RejectionSummary { kind, detail, resources, attributed: _, count } = rejection;
    let mut report = RejectionReport {
        kind: *kind,
        detail: detail.clone(),
        resources: resources.clone(),
        count: *count,
    };
    cut(&mut report, WHOLE);
    report
}

/// As many as a report may have, in so many bytes.
fn fitting(mut records: Vec<Arc<Record>>, limit: usize) -> Vec<Arc<Record>> {
    let mut bytes = 0;
    records.retain(|record| {
        let with = bytes + record_size(record);
        let fits = with <= limit;
        if fits {
            bytes = with;
        }
        fits
    });
    records.truncate(AckReport::REMEMBERED);
    records
}

/// Shares the bytes out: a fleet that needs less than its share leaves the rest to the others, so that only those with the
/// most to say are cut.
fn fit(fleets: &mut BTreeMap<FleetName, FleetReport>, limit: usize) {
    let mut smallest_first: Vec<_> = fleets.iter_mut().collect();
    smallest_first.sort_by_cached_key(|(name, report)| size(name, report));
    let (mut bytes, mut left) = (limit, smallest_first.len());
    for (name, report) in smallest_first {
        shrink(name, report, bytes / left);
        bytes = bytes.saturating_sub(size(name, report));
        left -= 1;
    }
}

/// First the words go, then the oldest rejections, then the oldest heads, then who takes part in disputes, then disputes.
/// How many are connected and the newest head stay.
fn shrink(name: &FleetName, report: &mut FleetReport, limit: usize) {
    for cuts in CUTS {
        if size(name, report) <= limit {
            return;
        }
        report.rejections.iter_mut().for_each(|rejection| cut(rejection, cuts));
    }
    while size(name, report) > limit && !report.rejections.is_empty() {
        report.rejections.remove(0);
    }
    while size(name, report) > limit && report.acknowledged.len() > 1 {
        report.acknowledged.pop_first();
    }
    while size(name, report) > limit && report.votes.len() > 1 {
        report.votes.pop_first();
    }
    for number in (0..report.disputes.len()).rev() {
        if size(name, report) <= limit {
            return;
        }
        let dispute = &mut report.disputes[number];
        (dispute.rejecting, dispute.accepting) = (Vec::new(), Vec::new());
    }
    while size(name, report) > limit && report.disputes.pop().is_some() {}
}

fn cut(rejection: &mut RejectionReport, (detail, resources): (usize, usize)) {
    let end = rejection.detail.floor_char_boundary(detail);
    rejection.detail.truncate(end);
    rejection.resources.truncate(resources);
}

/// About the bytes that this takes in the store.
fn size(name: &FleetName, report: &FleetReport) -> usize {
    let FleetReport { connected, acknowledged, rejections, disputes, voters, votes } = report;
    let head = size_of::<Head>() + size_of::<u64>();
    let vote = size_of::<Head>() + size_of_val(voters);
    let rejections = rejections.iter().map(|rejection| {
        let RejectionReport { kind: _, detail, resources, count } = rejection;
        let names = resources.iter().map(|(name, version)| name.len() + size_of_val(version));
        detail.len() + names.sum::<usize>() + size_of_val(count)
    });
    let rejections: usize = rejections.sum();
    let disputes = disputes.iter().map(|it| {
        let voters = size_of_val(&it.rejecting[..]) + size_of_val(&it.accepting[..]);
        size_of_val(it) + it.name.len() + voters
    });
    let disputes: usize = disputes.sum();
    let named = name.as_str().len() + size_of_val(connected) + size_of_val(voters);
    named + acknowledged.len() * head + votes.len() * vote + rejections + disputes
}

/// The same of a record.
fn record_size(record: &Record) -> usize {
    let Record { fleet, head, state, time, cause, pin, bytes, .. } = record;
    let Record { partly_sealed, has_unknown_types, .. } = record;
    let PinState { number, pinned } = pin;
    let roots = match state {
        State::Live(roots) => roots.len() * (size_of::<Section>() + size_of::<Address>()),
        State::Retired => 0,
    };
    let pinned = pinned.as_ref().map_or(0, |pinned| {
        let Pinned { head, since, by, reason } = pinned;
        size_of_val(head) + size_of_val(since) + by.len() + reason.len()
    });
    let numbers = size_of_val(head) + size_of_val(time) + size_of_val(number) + size_of_val(bytes);
    let texts = fleet.as_str().len() + cause.len();
    let sealed = partly_sealed.len() * size_of::<Section>();
    texts + numbers + size_of_val(has_unknown_types) + roots + sealed + pinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::{ResourceType, Version};
    use heliograph_store::{Dispute, PinOrder, Voter};
    use std::time::SystemTime;

    fn name(number: usize) -> FleetName {
        FleetName::new("default", &format!("fleet-{number}"))
    }

    fn head(sequence: u64) -> Head {
        Head { epoch: 0, fence: 1, sequence }
    }

    fn report(rejections: usize) -> FleetReport {
        let rejection = |number: usize| RejectionReport {
            kind: ResourceType::Route,
            detail: format!("{number}: {}", "ä".repeat(500)),
            resources: vec![("x".repeat(100).into(), Some(Version::of(b"bad"))); 16],
            count: 1,
        };
        FleetReport {
            connected: 10,
            acknowledged: (0..16).map(|sequence| (head(sequence), 1)).collect(),
            rejections: (0..rejections).map(rejection).collect(),
            ..FleetReport::default()
        }
    }

    fn total(fleets: &BTreeMap<FleetName, FleetReport>) -> usize {
        fleets.iter().map(|(name, report)| size(name, report)).sum()
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut fleets: BTreeMap<_, _> = (0..10).map(|n| (name(n), report(16))).collect();
        let before = fleets.clone();
        assert!(total(&fleets) < BYTES_LIMIT);
        fit(&mut fleets, BYTES_LIMIT);
        assert_eq!(fleets, before);
    }

    #[test]
    fn only_the_largest_are_cut() {
        let mut fleets: BTreeMap<_, _> = (0..10).map(|n| (name(n), report(1))).collect();
        fleets.insert(name(10), report(16));
        let limit = total(&fleets) - 1;
        fit(&mut fleets, limit);
        assert!(total(&fleets) <= limit);
        for small in 0..10 {
            assert_eq!(fleets[&name(small)], report(1));
        }
        let cut = &fleets[&name(10)];
        assert_eq!(cut.rejections.len(), 16, "words go before rejections");
        assert!(cut.rejections[0].detail.starts_with("0: ä"));
        assert!(cut.rejections[0].detail.len() <= CUTS[0].0);
        assert_eq!(cut.rejections[0].resources.len(), CUTS[0].1);
    }

    #[test]
    fn many_fleets_that_reject_everything_fit() {
        let mut fleets: BTreeMap<_, _> = (0..2_000).map(|n| (name(n), report(16))).collect();
        assert!(total(&fleets) > 20 * BYTES_LIMIT);
        fit(&mut fleets, BYTES_LIMIT);
        assert!(total(&fleets) <= BYTES_LIMIT, "{}", total(&fleets));
        for report in fleets.values() {
            assert_eq!(report.connected, 10);
            assert!(report.acknowledged.contains_key(&head(15)), "the newest stays");
        }
    }

    #[test]
    fn without_room_the_newest_head_stays() {
        let mut fleets: BTreeMap<_, _> = [(name(0), report(16))].into();
        fit(&mut fleets, 1);
        let expected =
            FleetReport { acknowledged: [(head(15), 1)].into(), rejections: vec![], ..report(0) };
        assert_eq!(fleets[&name(0)], expected);
    }

    #[test]
    fn who_takes_part_in_disputes_goes_before_the_disputes() {
        let voters: Vec<_> = (0..Dispute::VOTERS as u64).map(Voter).collect();
        let dispute = |number: u64| Dispute {
            rejected: 64,
            rejecting: voters.clone(),
            ..Dispute::new(
                ResourceType::Route,
                format!("{number}").into(),
                Version::of(b"bad"),
                0,
                9,
            )
        };
        let whole = FleetReport { disputes: (0..16).map(dispute).collect(), ..report(0) };
        let mut cut = whole.clone();
        shrink(&name(0), &mut cut, size(&name(0), &whole) - 16 * size_of::<(Head, u64)>());
        assert_eq!(cut.disputes.len(), 16);
        assert_eq!(cut.disputes[0], whole.disputes[0]);
        assert_eq!(cut.disputes[15], Dispute { rejecting: vec![], ..dispute(15) });
        shrink(&name(0), &mut cut, 2_000);
        assert!(cut.disputes.iter().all(|it| it.rejecting.is_empty() && it.rejected == 64));
        assert!(size(&name(0), &cut) <= 2_000);
    }

    #[test]
    fn records_that_the_store_has_lost_fit() {
        let text: Arc<str> = "x".repeat(PinOrder::TEXT).into();
        let pinned = Pinned {
            head: head(1),
            since: SystemTime::UNIX_EPOCH,
            by: text.clone(),
            reason: text.clone(),
        };
        let record = |number: usize| {
            Arc::new(Record {
                fleet: name(number),
                head: head(2),
                state: State::Live(Section::all().map(|it| (it, Address([0; 32]))).collect()),
                time: SystemTime::UNIX_EPOCH,
                cause: "a rollback".into(),
                pin: PinState { number: 1, pinned: Some(pinned.clone()) },
                bytes: 0,
                partly_sealed: std::collections::BTreeSet::new(),
                has_unknown_types: false,
            })
        };
        let lost: Vec<_> = (0..AckReport::REMEMBERED + 1).map(record).collect();
        let size = |records: &[Arc<Record>]| -> usize {
            records.iter().map(|record| record_size(record)).sum()
        };
        assert!(size(&lost) > 2 * BYTES_LIMIT);
        let told = fitting(lost.clone(), REMEMBERED_LIMIT);
        assert!(size(&told) <= REMEMBERED_LIMIT);
        assert!(size(&told) + record_size(&lost[0]) * 2 > REMEMBERED_LIMIT, "as many as fit");
        assert_eq!(told, lost[..told.len()]);
        assert_eq!(fitting(lost, usize::MAX).len(), AckReport::REMEMBERED);
    }
}

//! Decides whether a replica has more streams than its share, and how many it ends.

use heliograph_store::Presence;
use std::collections::BTreeMap;
use std::time::Duration;

/// The other replicas, as they were at the last comparison.
#[derive(Debug, Default)]
pub(crate) struct OtherReplicas {
    /// The number of each one's last beat.
    beats: BTreeMap<String, u64>,
}

/// By how much of the mean a replica may be above it. Connections are spread by chance, and below this nothing is won.
const TOLERANCE: f64 = 0.1;
/// And by how many streams at least.
const LEAST_TOLERANCE: f64 = 10.0;

impl OtherReplicas {
    /// The streams of those that count: that sent a heartbeat since the last comparison, and stay. One that is new counts from
    /// the second comparison on, when clients can reach it; one that died counts no more, before its word has expired.
    pub(crate) fn update(&mut self, own: &str, present: Vec<Presence>) -> Vec<u64> {
        let before = std::mem::take(&mut self.beats);
        let mut streams = Vec::new();
        for other in present.into_iter().filter(|other| other.replica != own) {
            let beaten = before.get(&other.replica).is_some_and(|beat| *beat != other.beat);
            if beaten && !other.leaving {
                streams.push(other.streams);
            }
            self.beats.insert(other.replica, other.beat);
        }
        streams
    }
}

/// How many streams to end in this time: those above the mean and some tolerance, and no more than `per_second` allows.
pub(crate) fn shed(own: u64, others: &[u64], time: Duration, per_second: u32) -> usize {
    if others.is_empty() {
        return 0;
    }
    let all = others.iter().fold(own, |sum, streams| sum.saturating_add(*streams)) as f64;
    let mean = all / (others.len() as f64 + 1.0);
    let share = mean + (mean * TOLERANCE).max(LEAST_TOLERANCE);
    let excess = (own as f64 - share).max(0.0);
    // Towards zero, so that the last one above its share may stay.
    excess.min(f64::from(per_second) * time.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn presence(replica: &str, beat: u64, streams: u64) -> Presence {
        Presence { replica: replica.into(), beat, streams, leaving: false }
    }

    #[test]
    fn only_the_excess_goes() {
        assert_eq!(shed(1000, &[0], SECOND, 10_000), 450, "550 is the mean and a tenth");
        assert_eq!(shed(550, &[450], SECOND, 10_000), 0);
        assert_eq!(shed(0, &[1000], SECOND, 10_000), 0);
        assert_eq!(shed(1000, &[], SECOND, 10_000), 0, "there is nobody to take them");
    }

    #[test]
    fn a_few_streams_are_not_worth_it() {
        assert_eq!(shed(3, &[0, 0], SECOND, 50), 0);
        assert_eq!(shed(21, &[0], SECOND, 50), 0);
        assert_eq!(shed(22, &[0], SECOND, 50), 1);
    }

    #[test]
    fn never_more_than_the_rate_allows() {
        assert_eq!(shed(15_000, &[0], SECOND, 50), 50);
        assert_eq!(shed(15_000, &[0], 4 * SECOND, 50), 200);
        assert_eq!(shed(15_000, &[0], SECOND, 0), 0);
    }

    #[test]
    fn replicas_that_shed_by_turns_come_to_rest() {
        let mut streams = [9_000_u64, 4_000, 0, 0];
        let mut moved = 0;
        for _ in 0..10_000 {
            let before = streams;
            for own in 0..4 {
                let others: Vec<_> =
                    (0..4).filter(|other| *other != own).map(|other| before[other]).collect();
                let count = shed(before[own], &others, SECOND, 50) as u64;
                // They come back to each of the four, also to this one.
                streams[own] -= count;
                (1..=count).for_each(|n| streams[(own + n as usize) % 4] += 1);
                moved += count;
            }
        }
        assert!(streams.iter().all(|count| *count <= 3_576), "{streams:?}");
        // Half of those that move come to one that has too many, the one they left among them.
        assert!(moved <= 12_500, "{moved} streams were moved for 6250 too many");
    }

    #[test]
    fn a_replica_counts_once_it_has_been_seen_to_live() {
        let mut others = OtherReplicas::default();
        let own = presence("own", 1, 70);
        assert_eq!(others.update("own", vec![own.clone(), presence("new", 1, 0)]), [0_u64; 0]);
        assert_eq!(others.update("own", vec![own.clone(), presence("new", 3, 5)]), [5]);
        assert_eq!(others.update("own", vec![own.clone(), presence("new", 3, 5)]), [0_u64; 0]);
        assert_eq!(others.update("own", vec![own.clone()]), [0_u64; 0]);
        assert_eq!(others.update("own", vec![own, presence("new", 4, 5)]), [0_u64; 0]);
    }

    #[test]
    fn a_replica_that_leaves_does_not_count() {
        let mut others = OtherReplicas::default();
        others.update("own", vec![presence("other", 1, 500)]);
        let leaving = Presence { leaving: true, ..presence("other", 2, 400) };
        assert_eq!(others.update("own", vec![leaving]), [0_u64; 0]);
    }
}

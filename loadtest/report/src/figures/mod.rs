//! Measurements of a run's clients, as numbers that can be added up.

mod latencies;
mod pushes;
mod series;
mod tally;

pub use latencies::{Latencies, LatencySummary};
pub use pushes::{Push, Pushes};
pub use series::{Point, Series};
pub(crate) use tally::OTHER;
pub use tally::Tally;

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// The measurements of clients. The methods record one event each; `second` is the Unix time in seconds at which it
/// happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub counters: Counters,
    /// From the first attempt to connect until the connection could carry a stream.
    pub connect: Latencies,
    /// From the same moment until the client had everything that a proxy needs to serve.
    pub first_state: Latencies,
    /// From when a change was due until a client received it, for every client and change.
    pub receipt: Latencies,
    /// From when a change was due until its last client answered, for every change.
    pub pushes: Pushes,
    pub errors: Tally,
    pub violations: Tally,
    /// Absent from the figures of a phase: see [`Figures::since`].
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    pub opened: u64,
    pub closed: u64,
    /// Attempts to connect that led to no stream.
    pub failed: u64,
    pub first_states: u64,
    pub responses: u64,
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub resources: u64,
    /// Resources received that were equal to what the client held.
    pub resent: u64,
    pub acks: u64,
    pub nacks: u64,
}

/// A response, as far as figures go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedResponse {
    pub bytes: u64,
    pub resources: u64,
    pub resent: u64,
}

/// The kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Ack,
    Nack,
    /// Not an answer: the first request of a type, or one for more names.
    Ask,
}

impl Figures {
    /// A client's stream is up; `took` is from the first attempt on.
    pub fn opened(&mut self, second: u64, took: Duration) {
        self.counters.opened += 1;
        self.connect.record(took);
        self.at(second, |point| point.opened += 1);
    }

    pub fn closed(&mut self, second: u64) {
        self.counters.closed += 1;
        self.at(second, |point| point.closed += 1);
    }

    /// An attempt that led to no stream, which is an error too. The kinds are few and fixed: they become labels of
    /// metrics.
    pub fn failed(&mut self, second: u64, kind: &'static str) {
        self.counters.failed += 1;
        self.error(second, kind);
    }

    pub fn first_state(&mut self, second: u64, took: Duration) {
        self.counters.first_states += 1;
        self.first_state.record(took);
        self.at(second, |point| point.first_states += 1);
    }

    pub fn received(&mut self, second: u64, response: ReceivedResponse) {
        let ReceivedResponse { bytes, resources, resent } = response;
        self.counters.responses += 1;
        self.counters.bytes_in += bytes;
        self.counters.resources += resources;
        self.counters.resent += resent;
        self.at(second, |point| {
            point.responses += 1;
            point.bytes_in += bytes;
        });
    }

    pub fn sent(&mut self, second: u64, bytes: u64, kind: RequestKind) {
        self.counters.requests += 1;
        self.counters.bytes_out += bytes;
        match kind {
            RequestKind::Ack => self.counters.acks += 1,
            RequestKind::Nack => self.counters.nacks += 1,
            RequestKind::Ask => {}
        }
        self.at(second, |point| {
            point.requests += 1;
            point.bytes_out += bytes;
        });
    }

    /// A client received a change, `late` after it was due.
    pub fn receipt(&mut self, late: Duration) {
        self.receipt.record(late);
    }

    /// A client answered a change, `late` after it was due.
    pub fn answered(&mut self, change: u32, late: Duration) {
        self.pushes.answered(change, late);
    }

    pub fn error(&mut self, second: u64, kind: &'static str) {
        self.errors.add(kind);
        self.at(second, |point| point.errors += 1);
    }

    pub fn violation(&mut self, kind: &'static str) {
        self.violations.add(kind);
    }

    /// The same as if what `other` recorded had been recorded here.
    pub fn merge(&mut self, other: &Self) {
        let Self { counters, connect, first_state, receipt, pushes, errors, violations, series } =
            other;
        self.counters.each(counters, u64::saturating_add);
        self.connect.merge(connect);
        self.first_state.merge(first_state);
        self.receipt.merge(receipt);
        self.pushes.merge(pushes);
        self.errors.merge(errors);
        self.violations.merge(violations);
        self.series.merge(series);
    }

    /// The figures that were recorded after `earlier`, which is an earlier state of these. The series stays with the
    /// whole: it has its own times.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.counters.each(&earlier.counters, u64::saturating_sub);
        since.connect.subtract(&earlier.connect);
        since.first_state.subtract(&earlier.first_state);
        since.receipt.subtract(&earlier.receipt);
        since.pushes.subtract(&earlier.pushes);
        since.errors.subtract(&earlier.errors);
        since.violations.subtract(&earlier.violations);
        since.series = Series::default();
        since
    }

    /// How many streams are up now.
    pub fn streams(&self) -> u64 {
        self.counters.opened.saturating_sub(self.counters.closed)
    }

    /// All latencies, each with its name for people.
    pub fn latencies(&self) -> [(&'static str, Cow<'_, Latencies>); 4] {
        [
            ("connect", Cow::Borrowed(&self.connect)),
            ("first full state", Cow::Borrowed(&self.first_state)),
            ("push receipt", Cow::Borrowed(&self.receipt)),
            ("push to last client", Cow::Owned(self.pushes.latencies())),
        ]
    }

    fn at(&mut self, second: u64, record: impl FnOnce(&mut Point)) {
        record(self.series.at(second));
    }
}

impl Counters {
    /// Every counter with its name, in the order in which people read them.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        let Self {
            opened,
            closed,
            failed,
            first_states,
            responses,
            requests,
            bytes_in,
            bytes_out,
            resources,
            resent,
            acks,
            nacks,
        } = *self;
        [
            ("opened", opened),
            ("closed", closed),
            ("failed", failed),
            ("first_states", first_states),
            ("responses", responses),
            ("requests", requests),
            ("bytes_in", bytes_in),
            ("bytes_out", bytes_out),
            ("resources", resources),
            ("resent", resent),
            ("acks", acks),
            ("nacks", nacks),
        ]
    }

    fn each(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let mine = [
            &mut self.opened,
            &mut self.closed,
            &mut self.failed,
            &mut self.first_states,
            &mut self.responses,
            &mut self.requests,
            &mut self.bytes_in,
            &mut self.bytes_out,
            &mut self.resources,
            &mut self.resent,
            &mut self.acks,
            &mut self.nacks,
        ];
        for (mine, (_, theirs)) in mine.into_iter().zip(other.named()) {
            *mine = with(*mine, theirs);
        }
    }
}

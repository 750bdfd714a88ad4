use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of each second of a run. A run that is longer than a series has points for is recorded in steps of two
/// seconds, then of four, and so on.
///
/// Every part of a point is a sum, so that series of several workers add up. The number of streams is therefore not
/// in it: it follows from what was opened and closed up to that moment ([`Series::streams`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Series {
    /// Seconds a point, a power of two.
    step: u64,
    /// By Unix time divided by the step.
    points: BTreeMap<u64, Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub opened: u64,
    pub closed: u64,
    pub first_states: u64,
    pub responses: u64,
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub errors: u64,
}

/// Rows of numbers instead of objects: an hour has 3,600 points. The second comes first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    step: u64,
    columns: Vec<String>,
    points: Vec<[u64; 9]>,
}

const LONGEST: u64 = 4_096;
const COLUMNS: [&str; 9] = [
    "second",
    "opened",
    "closed",
    "first_states",
    "responses",
    "requests",
    "bytes_in",
    "bytes_out",
    "errors",
];

impl Series {
    /// Seconds that a point stands for.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// By the Unix time at which a point begins; seconds without any event are not there.
    pub fn points(&self) -> impl Iterator<Item = (u64, &Point)> {
        self.points.iter().map(|(key, point)| (key * self.step, point))
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// How many streams were up at the end of each point.
    pub fn streams(&self) -> impl Iterator<Item = (u64, u64)> {
        self.points().scan((0_u64, 0_u64), |(opened, closed), (second, point)| {
            *opened = opened.saturating_add(point.opened);
            *closed = closed.saturating_add(point.closed);
            Some((second, opened.saturating_sub(*closed)))
        })
    }

    pub(super) fn at(&mut self, second: u64) -> &mut Point {
        self.reach(second);
        self.points.entry(second / self.step).or_default()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        while self.step < other.step {
            self.coarsen();
        }
        for (second, point) in other.points() {
            self.at(second).add(point);
        }
    }

    /// Takes steps that are long enough for this second and all that are there.
    fn reach(&mut self, second: u64) {
        let first = self.points.first_key_value().map(|(key, _)| key * self.step);
        let last = self.points.last_key_value().map(|(key, _)| key * self.step);
        let (Some(first), Some(last)) = (first, last) else { return };
        let (first, last) = (first.min(second), last.max(second));
        while last / self.step - first / self.step >= LONGEST {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.step *= 2;
        let fine = std::mem::take(&mut self.points);
        for (key, point) in fine {
            self.points.entry(key / 2).or_default().add(&point);
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { step: 1, points: BTreeMap::new() }
    }
}

impl Point {
    fn add(&mut self, other: &Self) {
        let (mine, theirs) = (self.row(0), other.row(0));
        let sums = std::array::from_fn(|column| mine[column].saturating_add(theirs[column]));
        (_, *self) = Self::from_row(sums);
    }

    /// In the order of [`COLUMNS`].
    fn row(&self, second: u64) -> [u64; 9] {
        let Self { opened, closed, first_states, responses, requests, bytes_in, bytes_out, errors } =
            *self;
        [second, opened, closed, first_states, responses, requests, bytes_in, bytes_out, errors]
    }

    fn from_row(row: [u64; 9]) -> (u64, Self) {
        let [
            second,
            opened,
            closed,
            first_states,
            responses,
            requests,
            bytes_in,
            bytes_out,
            errors,
        ] = row;
        let point =
            Self { opened, closed, first_states, responses, requests, bytes_in, bytes_out, errors };
        (second, point)
    }
}

impl From<Series> for Stored {
    fn from(series: Series) -> Self {
        Self {
            step: series.step,
            columns: COLUMNS.map(str::to_owned).to_vec(),
            points: series.points().map(|(second, point)| point.row(second)).collect(),
        }
    }
}

impl TryFrom<Stored> for Series {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        if !stored.step.is_power_of_two() {
            return Err(format!("a series with steps of {} seconds", stored.step));
        }
        if stored.columns != COLUMNS {
            return Err(format!("a series with the columns {:?}", stored.columns));
        }
        let mut series = Self { step: stored.step, points: BTreeMap::new() };
        for row in stored.points {
            let (second, point) = Point::from_row(row);
            series.at(second).add(&point);
        }
        Ok(series)
    }
}

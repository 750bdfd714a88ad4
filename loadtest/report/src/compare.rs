//! Two reports, side by side.

use crate::report::columns;
use crate::units::{bytes, count, micros};
use crate::{Latencies, Report};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A figure that says whether a server is better or worse.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    pub name: &'static str,
    pub worse: Worse,
    unit: Unit,
    of: fn(&Report) -> Option<f64>,
}

/// The direction in which a figure gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    More,
    Less,
}

/// By which factor a figure may get worse: one for all, and others for some.
///
/// Written as `1.1` or `1.1,receipt-p99=1.5,errors=1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    all: f64,
    some: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    #[error("`{0}` is no bound: write a factor of at least 1, as 1.1 for ten percent worse")]
    Factor(String),
    #[error("`{name}` is not compared; these are: {}", known.join(", "))]
    Unknown { name: String, known: Vec<&'static str> },
}

/// The changes of figures from one report to the other.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub rows: Vec<ComparisonRow>,
    /// Why the two may not be comparable at all.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct ComparisonRow {
    pub measure: Measure,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStatus {
    Within,
    Regressed,
    /// It was measured before and is not any more, so it may have become worse.
    Missing,
    /// There is nothing to compare it with.
    New,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Count,
    Micros,
    Bytes,
}

/// The measures that are compared, in the order of the output.
const MEASURES: [Measure; 21] = [
    measure("streams", Worse::Less, Unit::Count, |r| Some(r.most_streams() as f64)),
    measure("failed", Worse::More, Unit::Count, |r| Some(r.figures.counters.failed as f64)),
    measure("errors", Worse::More, Unit::Count, |r| Some(r.figures.errors.total() as f64)),
    measure("violations", Worse::More, Unit::Count, |r| Some(r.figures.violations.total() as f64)),
    measure("connect-p50", Worse::More, Unit::Micros, |r| at(&r.figures.connect, 0.5)),
    measure("connect-p99", Worse::More, Unit::Micros, |r| at(&r.figures.connect, 0.99)),
    measure("first-state-p50", Worse::More, Unit::Micros, |r| at(&r.figures.first_state, 0.5)),
    measure("first-state-p99", Worse::More, Unit::Micros, |r| at(&r.figures.first_state, 0.99)),
    measure("first-state-max", Worse::More, Unit::Micros, |r| at(&r.figures.first_state, 1.0)),
    measure("receipt-p50", Worse::More, Unit::Micros, |r| at(&r.figures.receipt, 0.5)),
    measure("receipt-p99", Worse::More, Unit::Micros, |r| at(&r.figures.receipt, 0.99)),
    measure("receipt-max", Worse::More, Unit::Micros, |r| at(&r.figures.receipt, 1.0)),
    measure("last-client-p50", Worse::More, Unit::Micros, |r| {
        at(&r.figures.pushes.latencies(), 0.5)
    }),
    measure("last-client-max", Worse::More, Unit::Micros, |r| {
        at(&r.figures.pushes.latencies(), 1.0)
    }),
    measure("responses", Worse::More, Unit::Count, |r| Some(r.figures.counters.responses as f64)),
    measure("received", Worse::More, Unit::Bytes, |r| Some(r.figures.counters.bytes_in as f64)),
    measure("resent", Worse::More, Unit::Count, |r| Some(r.figures.counters.resent as f64)),
    measure("cpu", Worse::More, Unit::Micros, |r| Some(r.cpu()?.as_secs_f64() * 1e6)),
    measure("peak-memory", Worse::More, Unit::Bytes, |r| Some(r.peak_memory()? as f64)),
    measure("cpu-per-stream", Worse::More, Unit::Micros, |r| Some(r.per_stream?.cpu_us)),
    measure("memory-per-stream", Worse::More, Unit::Bytes, |r| Some(r.per_stream?.bytes)),
];

/// From `before` to `after`.
pub fn compare(before: &Report, after: &Report, bounds: &Bounds) -> Comparison {
    let row = |measure: Measure| ComparisonRow {
        measure,
        before: (measure.of)(before),
        after: (measure.of)(after),
        bound: bounds.of(measure.name),
    };
    let rows = MEASURES.into_iter().map(row);
    Comparison {
        rows: rows.filter(|row| row.before.is_some() || row.after.is_some()).collect(),
        notes: notes(before, after),
    }
}

impl Measure {
    /// All that are compared.
    pub fn all() -> &'static [Self] {
        &MEASURES
    }
}

impl Bounds {
    pub fn new(all: f64) -> Result<Self, BoundsError> {
        Ok(Self { all: factor(all)?, some: BTreeMap::new() })
    }

    pub fn with(mut self, name: &str, bound: f64) -> Result<Self, BoundsError> {
        if !MEASURES.iter().any(|measure| measure.name == name) {
            let known = MEASURES.iter().map(|measure| measure.name).collect();
            return Err(BoundsError::Unknown { name: name.to_owned(), known });
        }
        self.some.insert(name.to_owned(), factor(bound)?);
        Ok(self)
    }

    fn of(&self, name: &str) -> f64 {
        self.some.get(name).copied().unwrap_or(self.all)
    }
}

impl FromStr for Bounds {
    type Err = BoundsError;

    fn from_str(text: &str) -> Result<Self, BoundsError> {
        let number =
            |text: &str| text.trim().parse().map_err(|_| BoundsError::Factor(text.to_owned()));
        let mut parts = text.split(',');
        let mut bounds = Self::new(number(parts.next().unwrap_or_default())?)?;
        for part in parts {
            let (name, bound) =
                part.split_once('=').ok_or_else(|| BoundsError::Factor(part.to_owned()))?;
            bounds = bounds.with(name.trim(), number(bound)?)?;
        }
        Ok(bounds)
    }
}

impl Comparison {
    pub fn regressed(&self) -> bool {
        self.rows
            .iter()
            .any(|row| matches!(row.status(), RowStatus::Regressed | RowStatus::Missing))
    }
}

impl ComparisonRow {
    /// After, divided by before: one if both are zero, infinite if only the latter is.
    pub fn ratio(&self) -> Option<f64> {
        let (before, after) = (self.before?, self.after?);
        Some(if before == after { 1.0 } else { after / before })
    }

    pub fn status(&self) -> RowStatus {
        match (self.before, self.after) {
            (Some(_), None) => RowStatus::Missing,
            (None, _) => RowStatus::New,
            // Products, not ratios: a slope can be zero or below.
            (Some(before), Some(after)) => {
                let (better, worse) = match self.measure.worse {
                    Worse::More => (before, after),
                    Worse::Less => (after, before),
                };
                let within = worse <= better || worse <= better * self.bound;
                if within { RowStatus::Within } else { RowStatus::Regressed }
            }
        }
    }

    fn cells(&self) -> Vec<String> {
        let none = || "-".to_owned();
        let shown = |value: f64| self.measure.unit.show(value);
        let status = match self.status() {
            RowStatus::Within => String::new(),
            RowStatus::Regressed => format!("worse than {}", self.bound),
            RowStatus::Missing => "not measured any more".to_owned(),
            RowStatus::New => "new".to_owned(),
        };
        vec![
            self.measure.name.to_owned(),
            self.before.map_or_else(none, shown),
            self.after.map_or_else(none, shown),
            self.ratio().map_or_else(none, |ratio| format!("{ratio:.2}")),
            status,
        ]
    }
}

/// A table, the notes, and the result in the last line.
impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["", "before", "after", "ratio", ""].map(str::to_owned).to_vec();
        let rows: Vec<_> =
            [heads].into_iter().chain(self.rows.iter().map(ComparisonRow::cells)).collect();
        out.write_str(&columns(&rows, 1))?;
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        let bad = self
            .rows
            .iter()
            .filter(|row| matches!(row.status(), RowStatus::Regressed | RowStatus::Missing));
        let bad: Vec<_> = bad.map(|row| row.measure.name).collect();
        match bad.as_slice() {
            [] => writeln!(out, "no regression"),
            names => writeln!(out, "regressed: {}", names.join(", ")),
        }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Count => count(value as u64),
            Self::Micros => micros(value),
            Self::Bytes => bytes(value),
        }
    }
}

const fn measure(
    name: &'static str,
    worse: Worse,
    unit: Unit,
    of: fn(&Report) -> Option<f64>,
) -> Measure {
    Measure { name, worse, unit, of }
}

fn at(latencies: &Latencies, share: f64) -> Option<f64> {
    (!latencies.is_empty()).then(|| latencies.quantile(share).as_secs_f64() * 1e6)
}

fn factor(bound: f64) -> Result<f64, BoundsError> {
    let valid = bound.is_finite() && bound >= 1.0;
    valid.then_some(bound).ok_or_else(|| BoundsError::Factor(bound.to_string()))
}

fn notes(before: &Report, after: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let (one, other) = (&before.scenario, &after.scenario);
    if one.name != other.name {
        notes.push(format!("two scenarios: {} and {}", one.name, other.name));
    } else if one.text != other.text {
        notes.push(format!("the scenario {} was changed in between", one.name));
    }
    if before.machine != after.machine {
        notes.push("the runs were on two machines, or one that was changed".to_owned());
    }
    notes
}

//! Maps values to positions in a chart, and chooses the few values that get a label.

use crate::units::{bytes, count, micros};

/// An axis over the values from `low` to `high`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) kind: Kind,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    Bytes,
    /// Cores in use.
    Cores,
    /// Seconds since the start.
    Seconds,
    /// Logarithmic: connecting takes milliseconds where the last client of a push may wait for seconds.
    Micros,
    /// Nines: 0 is 0 %, 1 is 90 %, 2 is 99 %. It gives the slowest few the room that they deserve.
    Nines,
}

impl Axis {
    /// One on which all values have a position. Linear ones begin at zero.
    pub(super) fn over(kind: Kind, values: impl Iterator<Item = f64>) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (least, most) = finite.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        let (low, high) = match kind {
            Kind::Micros => {
                let low = 10_f64.powf(least.clamp(1.0, 1e12).log10().floor());
                (low, 10_f64.powf(most.clamp(1.0, 1e12).log10().ceil()).max(low * 10.0))
            }
            Kind::Seconds | Kind::Nines => (0.0, most.max(1.0)),
            Kind::Count | Kind::Bytes | Kind::Cores => {
                let step = step(kind, most);
                (0.0, (most / step).ceil().max(1.0) * step)
            }
        };
        Self { kind, low, high }
    }

    /// From 0 to 1.
    pub(super) fn position(&self, value: f64) -> f64 {
        let position = match self.kind {
            Kind::Micros => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
            _ => (value - self.low) / (self.high - self.low),
        };
        position.clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let step = match self.kind {
            Kind::Nines => 1.0,
            kind => step(kind, self.high),
        };
        let values: Vec<f64> = match self.kind {
            Kind::Micros => {
                let decades = (self.high / self.low).log10().round() as i32;
                (0..=decades).map(|decade| self.low * 10_f64.powi(decade)).collect()
            }
            // Not by adding up, which drifts.
            _ => (0..=20).map(|n| f64::from(n) * step).take_while(|v| *v <= self.high).collect(),
        };
        values.into_iter().map(|value| (value, self.label(value))).collect()
    }

    fn label(&self, value: f64) -> String {
        match self.kind {
            Kind::Count => count(value.round() as u64),
            Kind::Bytes => bytes(value),
            // Three times 0.2 is not 0.6.
            Kind::Cores => format!("{}", (value * 100.0).round() / 100.0),
            Kind::Seconds => format!("{value} s"),
            Kind::Micros => micros(value),
            Kind::Nines => match value as usize {
                0 => "0 %".to_owned(),
                1 => "90 %".to_owned(),
                2 => "99 %".to_owned(),
                nines => format!("99.{} %", "9".repeat(nines - 2)),
            },
        }
    }
}

/// A round one that gives about five steps up to `most`.
fn step(kind: Kind, most: f64) -> f64 {
    // Round is round in the unit that it will be shown in.
    let mut unit = 1.0;
    while kind == Kind::Bytes && most >= unit * 1000.0 {
        unit *= 1024.0;
    }
    let rough = (most / unit / 5.0).max(if kind == Kind::Cores { 0.01 } else { 1.0 });
    let decade = 10_f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 5.0].into_iter().map(|n| n * decade).find(|step| *step >= rough * 0.999);
    unit * round.unwrap_or(decade * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(kind: Kind, values: &[f64]) -> Vec<String> {
        Axis::over(kind, values.iter().copied())
            .ticks()
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn labels_are_few_and_round() {
        assert_eq!(
            labels(Kind::Count, &[9_400.0]),
            ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]
        );
        assert_eq!(labels(Kind::Count, &[3.0]), ["0", "1", "2", "3"]);
        assert_eq!(labels(Kind::Bytes, &[18e6]), ["0 B", "5 MiB", "10 MiB", "15 MiB", "20 MiB"]);
        assert_eq!(labels(Kind::Cores, &[0.9]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(Kind::Seconds, &[42.0]), ["0 s", "10 s", "20 s", "30 s", "40 s"]);
        assert_eq!(labels(Kind::Micros, &[250.0, 12_000.0]), ["100 µs", "1 ms", "10 ms", "100 ms"]);
        assert_eq!(labels(Kind::Nines, &[3.2]), ["0 %", "90 %", "99 %", "99.9 %"]);
    }

    #[test]
    fn every_value_has_a_place_on_the_paper() {
        for kind in
            [Kind::Count, Kind::Bytes, Kind::Cores, Kind::Seconds, Kind::Micros, Kind::Nines]
        {
            for values in [&[][..], &[0.0], &[1.0], &[0.004, 77.0], &[5e3, 3.6e9], &[1e18]] {
                let axis = Axis::over(kind, values.iter().copied());
                let ticks = axis.ticks();
                assert!((1..=21).contains(&ticks.len()), "{kind:?} {values:?}: {ticks:?}");
                let ticks = ticks.into_iter().map(|(value, _)| value);
                for value in ticks.chain(values.iter().copied()).chain([f64::MAX, -1.0]) {
                    let position = axis.position(value);
                    assert!(
                        (0.0..=1.0).contains(&position),
                        "{kind:?} {values:?}: {value} at {position}"
                    );
                }
            }
        }
    }
}

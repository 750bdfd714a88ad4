use super::Sample;
use serde::{Deserialize, Serialize};

/// The line through points that leaves the smallest squares of errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: f64,
    pub at_zero: f64,
}

/// The cost of one more stream for a server: the slope over samples at different numbers of streams, which does not
/// contain the server's cost without streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerStream {
    pub bytes: f64,
    pub cpu_us: f64,
}

/// None without two points at different places.
pub fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let common: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = common / spread;
    slope.is_finite().then_some(Line { slope, at_zero: mean_y - slope * mean_x })
}

impl PerStream {
    /// Choose the samples with care: of moments when all streams had been served that there were, and between which
    /// nothing happened but that there were more.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let slope = |used: fn(&Sample) -> u64| {
            let points: Vec<_> =
                samples.iter().map(|sample| (sample.streams as f64, used(sample) as f64)).collect();
            least_squares(&points).map(|line| line.slope)
        };
        Some(Self { bytes: slope(Sample::memory)?, cpu_us: slope(|sample| sample.cpu_us)? })
    }
}

//! Which charts a report has.

use super::axis::{Axis, Kind};
use super::chart::{Chart, Line};
use crate::{Latencies, Point, Report, Sample};

/// Places and values.
type Points = Vec<(f64, f64)>;

/// Steps of the curve of percentiles, for each nine.
const STEPS: u32 = 20;
/// 99.999 %.
const NINES: u32 = 5;

pub(super) fn of(report: &Report) -> Vec<Chart> {
    let all = [
        percentiles(report),
        over_time(report, "Streams", Kind::Count, vec![streams(report)]),
        over_time(report, "Responses per second", Kind::Count, vec![responses(report)]),
        over_time(report, "Server CPU, in cores", Kind::Cores, per_server(report, cores)),
        over_time(report, "Server memory", Kind::Bytes, per_server(report, memory)),
    ];
    all.into_iter().filter(|chart| !chart.lines.is_empty()).collect()
}

fn percentiles(report: &Report) -> Chart {
    let latencies = report.figures.latencies();
    let measured = latencies.iter().filter(|(_, latencies)| !latencies.is_empty());
    let lines: Vec<_> = measured
        .map(|(name, latencies)| Line { name: (*name).to_owned(), points: curve(latencies) })
        .collect();
    let axis = |kind, of: fn(&(f64, f64)) -> f64| {
        Axis::over(kind, lines.iter().flat_map(|line| &line.points).map(of))
    };
    Chart {
        title: "Latency by percentile",
        x: axis(Kind::Nines, |(x, _)| *x),
        y: axis(Kind::Micros, |(_, y)| *y),
        lines,
        marks: Vec::new(),
    }
}

/// Up to as many nines as the number of latencies can tell apart; the last point is the longest of all.
fn curve(latencies: &Latencies) -> Points {
    let end = (latencies.count() as f64).log10().clamp(0.0, f64::from(NINES));
    let inner = (0..STEPS * NINES).map(|n| f64::from(n) / f64::from(STEPS));
    let inner = inner.take_while(|x| *x < end);
    let mut points: Vec<_> = inner.map(|x| (x, micros(latencies, 1.0 - 10_f64.powf(-x)))).collect();
    points.push((end, micros(latencies, 1.0)));
    points
}

fn over_time(report: &Report, title: &'static str, kind: Kind, lines: Vec<Line>) -> Chart {
    let lines: Vec<_> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::over(Kind::Seconds, points().map(|(x, _)| *x).chain([end(report)]));
    let y = Axis::over(kind, points().map(|(_, y)| *y));
    let phases = report.phases.iter();
    let marks = phases.map(|phase| (since_start(report, phase.started_ms), phase.name.clone()));
    Chart { title, x, y, marks: marks.collect(), lines }
}

/// Level over the seconds that a series has no points for, since nothing happened in them.
fn streams(report: &Report) -> Line {
    let series = &report.figures.series;
    let mut points: Points = Vec::new();
    let mut before = 0.0;
    for (second, streams) in series.streams() {
        points.push((at(report, second), before));
        before = streams as f64;
        points.push((at(report, second.saturating_add(series.step())), before));
    }
    if let Some((last, _)) = points.last().copied() {
        points.push((end(report).max(last), before));
    }
    Line { name: "streams".to_owned(), points }
}

fn responses(report: &Report) -> Line {
    let series = &report.figures.series;
    let step = series.step();
    let rate = |point: &Point| point.responses as f64 / step as f64;
    let mut points: Points = Vec::new();
    let mut next = None;
    for (second, point) in series.points() {
        // Seconds without any are zero; both ends of such a gap are enough.
        if let Some(next) = next.filter(|next| *next < second) {
            points.push((at(report, next), 0.0));
            points.push((at(report, second.saturating_sub(step)), 0.0));
        }
        points.push((at(report, second), rate(point)));
        next = Some(second.saturating_add(step));
    }
    if let Some(next) = next {
        points.push((at(report, next), 0.0));
        points.push((end(report).max(at(report, next)), 0.0));
    }
    Line { name: "responses".to_owned(), points }
}

fn per_server(report: &Report, of: fn(&Report, &[Sample]) -> Points) -> Vec<Line> {
    let servers = report.servers.iter();
    servers
        .map(|server| Line { name: server.name.clone(), points: of(report, server.samples()) })
        .collect()
}

fn cores(report: &Report, samples: &[Sample]) -> Points {
    let pairs = samples.windows(2).filter_map(|pair| {
        let [before, after] = pair else { return None };
        let apart = after.at_ms.checked_sub(before.at_ms).filter(|apart| *apart > 0)?;
        let used = after.cpu_us.saturating_sub(before.cpu_us);
        Some((since_start(report, after.at_ms), used as f64 / 1000.0 / apart as f64))
    });
    pairs.collect()
}

fn memory(report: &Report, samples: &[Sample]) -> Points {
    let points =
        samples.iter().map(|sample| (since_start(report, sample.at_ms), sample.memory() as f64));
    points.collect()
}

fn micros(latencies: &Latencies, share: f64) -> f64 {
    latencies.quantile(share).as_secs_f64() * 1e6
}

/// When the last phase ended.
fn end(report: &Report) -> f64 {
    let ends = report.phases.iter().map(|phase| since_start(report, phase.ended_ms));
    ends.fold(0.0, f64::max)
}

/// A Unix time in seconds, in seconds since the start.
fn at(report: &Report, second: u64) -> f64 {
    since_start(report, second.saturating_mul(1000))
}

/// The same from milliseconds.
fn since_start(report: &Report, at_ms: u64) -> f64 {
    at_ms.saturating_sub(report.started_ms) as f64 / 1000.0
}

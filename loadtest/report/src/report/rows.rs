//! The figures of a report as rows of text, for terminals and for the page.

use super::{Phase, Report, used};
use crate::units::{bytes, count, duration, micros};
use crate::{Figures, LatencySummary};
use std::time::Duration;

/// A row for each phase and one for the whole run: the same columns in a terminal and on the page.
pub(crate) fn phase_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = [
        "phase",
        "time",
        "streams",
        "opened",
        "failed",
        "responses",
        "requests",
        "received",
        "sent",
        "resent",
        "nacks",
        "errors",
        "cpu",
        "cpu/stream",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let samples = report.samples();
    for phase in &report.phases {
        let cpu = phase.cpu(&samples);
        rows.push(phase_row(&phase.name, phase.took(), phase.streams, &phase.figures, cpu));
    }
    let took = report.phases.iter().map(Phase::took).sum();
    rows.push(phase_row("all", took, report.most_streams(), &report.figures, report.cpu()));
    rows
}

pub(crate) fn latency_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = ["latency", "phase", "count", "p50", "p90", "p99", "p99.9", "max"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let phases: Vec<_> = report
        .phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.figures.latencies()))
        .collect();
    for (kind, (name, all)) in report.figures.latencies().into_iter().enumerate() {
        let parts = phases.iter().map(|(phase, latencies)| (*phase, latencies[kind].1.as_ref()));
        let mut parts: Vec<_> = parts.filter(|(_, latencies)| !latencies.is_empty()).collect();
        // What one phase alone measured is already the whole.
        let alone = parts.iter().any(|(_, latencies)| latencies.count() == all.count());
        if !alone && !all.is_empty() {
            parts.push(("all", all.as_ref()));
        }
        for (phase, latencies) in parts {
            let LatencySummary { count: number, p50, p90, p99, p999, max } = latencies.summary();
            let mut row = vec![name.to_owned(), phase.to_owned(), count(number)];
            row.extend([p50, p90, p99, p999, max].map(duration));
            rows.push(row);
        }
    }
    rows
}

pub(crate) fn server_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = ["server", "cpu", "memory", "peak", "open files"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for server in &report.servers {
        if let Some(last) = server.samples().last() {
            rows.push(vec![
                server.name.clone(),
                used(server.samples(), 0, u64::MAX).map_or("-".to_owned(), duration),
                bytes(last.memory() as f64),
                bytes(last.peak_rss as f64),
                last.open_files.map_or("-".to_owned(), count),
            ]);
        }
    }
    rows
}

/// Of how much of their cores they used, only the worst counts: it is then that latencies are theirs.
pub(crate) fn client_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = ["", "cpu", "memory", "peak", "busiest"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let clients = &report.clients;
    if let Some(last) = clients.used.samples().last() {
        let percent = |share: f64| format!("{:.0} % of a core", share * 100.0);
        rows.push(vec![
            match clients.processes {
                1 => "clients (1 process)".to_owned(),
                processes => format!("clients ({} processes)", count(processes)),
            },
            used(clients.used.samples(), 0, u64::MAX).map_or("-".to_owned(), duration),
            bytes(last.memory() as f64),
            bytes(last.peak_rss as f64),
            clients.busiest().map_or("-".to_owned(), percent),
        ]);
    }
    rows
}

pub(crate) fn about_rows(report: &Report) -> Vec<[String; 2]> {
    let machine = &report.machine;
    let versions = report.versions.iter().map(|(name, version)| format!("{name} {version}"));
    let rows = [
        ("started", started(report.started_ms)),
        (
            "machine",
            format!(
                "{}, {} cores, {}, Linux {}",
                machine.cpu,
                machine.cores,
                bytes(machine.memory as f64),
                machine.kernel
            ),
        ),
        ("versions", versions.collect::<Vec<_>>().join(", ")),
        ("command", report.command.join(" ")),
    ];
    let told = rows.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(name, value)| [name.to_owned(), value]).collect()
}

pub(crate) fn per_stream(report: &Report) -> Option<String> {
    let cost = report.per_stream?;
    Some(format!("one more stream: {} and {} of CPU", bytes(cost.bytes), micros(cost.cpu_us)))
}

fn phase_row(
    name: &str,
    took: Duration,
    streams: u64,
    figures: &Figures,
    cpu: Option<Duration>,
) -> Vec<String> {
    let counters = &figures.counters;
    let none = || "-".to_owned();
    let share = cpu.filter(|_| streams > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / streams as f64);
    vec![
        name.to_owned(),
        duration(took),
        count(streams),
        count(counters.opened),
        count(counters.failed),
        count(counters.responses),
        count(counters.requests),
        bytes(counters.bytes_in as f64),
        bytes(counters.bytes_out as f64),
        count(counters.resent),
        count(counters.nacks),
        count(figures.errors.total()),
        cpu.map_or_else(none, duration),
        share.map_or_else(none, micros),
    ]
}

fn started(ms: u64) -> String {
    let moment = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    moment.map_or_else(String::new, |moment| moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

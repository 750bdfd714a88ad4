use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge, Opts};
use std::fs;

/// The kernel's figures of this process, under the names that are usual among programs with Prometheus metrics. They are
/// read at each scrape.
pub(super) struct Footprint {
    cpu: Counter,
    memory: IntGauge,
    open_files: IntGauge,
    most_files: IntGauge,
    started: Gauge,
}

/// The kernel's unit of times, on every machine that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// The kernel's figures of a process, as far as they can be read.
#[derive(Debug, Default, PartialEq)]
struct ProcessStats {
    cpu_seconds: Option<f64>,
    memory_bytes: Option<i64>,
    most_files: Option<i64>,
    started: Option<f64>,
}

impl Footprint {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGauge::with_opts(Opts::new(name, help));
        Ok(Self {
            cpu: Counter::new("process_cpu_seconds_total", "CPU time that this process has used.")?,
            memory: gauge("process_resident_memory_bytes", "Resident memory of this process.")?,
            open_files: gauge(
                "process_open_fds",
                "Files and connections that this process has open.",
            )?,
            most_files: gauge(
                "process_max_fds",
                "Files and connections that this process may have open.",
            )?,
            started: Gauge::new("process_start_time_seconds", "When this process was started.")?,
        })
    }

    fn metrics(&self) -> [&dyn Collector; 5] {
        [&self.cpu, &self.memory, &self.open_files, &self.most_files, &self.started]
    }

    fn read(&self) {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let stats = ProcessStats::read(
            &text("self/stat"),
            &text("self/status"),
            &text("self/limits"),
            &text("stat"),
        );
        // Two who ask at once may both add: what is then too much, the next one does not add.
        let more = stats.cpu_seconds.unwrap_or_default() - self.cpu.get();
        self.cpu.inc_by(more.max(0.0));
        stats.memory_bytes.into_iter().for_each(|bytes| self.memory.set(bytes));
        stats.most_files.into_iter().for_each(|count| self.most_files.set(count));
        stats.started.into_iter().for_each(|at| self.started.set(at));
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The look itself is one of them.
            let count = open.count().saturating_sub(1);
            self.open_files.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

impl Collector for Footprint {
    fn desc(&self) -> Vec<&Desc> {
        self.metrics().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.metrics().into_iter().flat_map(Collector::collect).collect()
    }
}

impl ProcessStats {
    /// From the kernel's files of these names.
    fn read(stat: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The second field is the program's name in parentheses, and may itself have spaces and parentheses; user time is
        // the 14th, system time the 15th, and the start after the machine's the 22nd.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
        let ticks = |field: usize| fields.clone()?.nth(field - 3)?.parse::<f64>().ok();
        let seconds = |field| ticks(field).map(|ticks| ticks / TICKS_PER_SECOND);
        let cpu = seconds(14).zip(seconds(15)).map(|(user, system)| user + system);
        let kilobytes = line(status, "VmRSS:").and_then(|value| value.parse::<i64>().ok());
        let booted = line(machine, "btime").and_then(|value| value.parse::<f64>().ok());
        Self {
            cpu_seconds: cpu,
            memory_bytes: kilobytes.map(|count| count.saturating_mul(1024)),
            // `unlimited` is no number.
            most_files: line(limits, "Max open files").and_then(|value| value.parse().ok()),
            started: booted.zip(seconds(22)).map(|(booted, after)| booted + after),
        }
    }
}

/// The first word behind the name.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 3 0 1200 1 2";
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let limits = "Max processes             100   100   processes\n\
                      Max open files            1024                 20000                files\n";
        let stats = ProcessStats::read(stat, status, limits, "cpu 1 2 3\nbtime 1000\n");
        let expected = ProcessStats {
            cpu_seconds: Some(3.0),
            memory_bytes: Some(1 << 20),
            most_files: Some(1024),
            started: Some(1012.0),
        };
        assert_eq!(stats, expected);
        assert_eq!(ProcessStats::read("42 (short) S 1", "", "", ""), ProcessStats::default());
    }

    #[test]
    fn this_process_is_measured() {
        let process = Footprint::new().unwrap();
        let families = process.collect();
        assert_eq!(families.len(), process.desc().len());
        assert!(process.memory.get() > 1 << 20);
        assert!(
            process.open_files.get() > 2 && process.open_files.get() <= process.most_files.get()
        );
        assert!(process.started.get() > 1e9);
    }
}

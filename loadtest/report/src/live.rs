//! The state of a run, in one line.

use crate::units::{bytes, count, duration};
use crate::{Figures, Sample};
use std::io::{self, Write};
use std::time::Duration;

/// A run at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStatus {
    /// Since the start of the run.
    pub elapsed: Duration,
    pub phase: String,
    /// How many streams there shall be.
    pub wanted: u64,
    pub streams: u64,
    pub responses_per_second: f64,
    /// Of the push receipts of this phase: half of them, 99 %, all. None before the first.
    pub receipt: Option<[Duration; 3]>,
    pub failed: u64,
    pub errors: u64,
    pub violations: u64,
    /// Cores that the servers use, and their memory.
    pub servers: Option<(f64, u64)>,
}

/// Writes lines: on a terminal over each other, else one every few seconds.
#[derive(Debug)]
pub struct ProgressLine<W> {
    out: W,
    terminal: bool,
    last: Option<Duration>,
}

/// The interval between two lines without a terminal, as in the log of a build.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub fn line(live: &LiveStatus) -> String {
    let mut parts = vec![
        format!("{}s {}", live.elapsed.as_secs(), live.phase),
        format!("{}/{} streams", count(live.streams), count(live.wanted)),
        format!("{} responses/s", count(live.responses_per_second.round() as u64)),
    ];
    if let Some([p50, p99, max]) = live.receipt {
        let [p50, p99, max] = [p50, p99, max].map(duration);
        parts.push(format!("receipt p50 {p50}, p99 {p99}, max {max}"));
    }
    // What is wrong is shown only once it is there.
    let wrong = [(live.failed, "failed"), (live.errors, "errors"), (live.violations, "VIOLATIONS")];
    let wrong = wrong.into_iter().filter(|(number, _)| *number > 0);
    parts.extend(wrong.map(|(number, name)| format!("{} {name}", count(number))));
    if let Some((cores, memory)) = live.servers {
        parts.push(format!("server {:.0}% cpu, {}", cores * 100.0, bytes(memory as f64)));
    }
    parts.join(" | ")
}

impl LiveStatus {
    /// `before` and `now` are states of the figures, `apart` from each other in time, and `begun` is the one at the
    /// begin of the phase. The caller adds the phase and the wanted numbers.
    pub fn between(before: &Figures, now: &Figures, begun: &Figures, apart: Duration) -> Self {
        let responses = now.counters.responses.saturating_sub(before.counters.responses);
        let mut receipt = now.receipt.clone();
        receipt.subtract(&begun.receipt);
        let receipt = (!receipt.is_empty())
            .then(|| [receipt.quantile(0.5), receipt.quantile(0.99), receipt.max()]);
        Self {
            streams: now.streams(),
            responses_per_second: rate(responses as f64, apart),
            receipt,
            failed: now.counters.failed,
            errors: now.errors.total(),
            violations: now.violations.total(),
            ..Self::default()
        }
    }

    /// Two samples of all servers together.
    pub fn with_servers(mut self, before: &Sample, now: &Sample) -> Self {
        let apart = Duration::from_millis(now.at_ms.saturating_sub(before.at_ms));
        let used = Duration::from_micros(now.cpu_us.saturating_sub(before.cpu_us));
        self.servers = Some((rate(used.as_secs_f64(), apart), now.memory()));
        self
    }
}

impl<W: Write> ProgressLine<W> {
    pub fn new(out: W, terminal: bool) -> Self {
        Self { out, terminal, last: None }
    }

    pub fn show(&mut self, live: &LiveStatus) -> io::Result<()> {
        let line = line(live);
        if self.terminal {
            // To the begin of the line, cut off instead of wrapped where the terminal ends, and clear what is left of
            // the line before.
            write!(self.out, "\r\x1b[?7l{line}\x1b[K\x1b[?7h")?;
        } else if self.last.is_none_or(|last| live.elapsed >= last + LINE_INTERVAL) {
            writeln!(self.out, "{line}")?;
        } else {
            return Ok(());
        }
        self.last = Some(live.elapsed);
        self.out.flush()
    }

    /// Leaves the last line and goes to the next one.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.terminal && self.last.take().is_some() {
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}

fn rate(amount: f64, apart: Duration) -> f64 {
    if apart.is_zero() { 0.0 } else { amount / apart.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReceivedResponse, RequestKind};

    #[test]
    fn a_line_says_what_is_going_on_and_what_is_wrong_only_if_it_is() {
        let ms = Duration::from_millis;
        let mut live = LiveStatus {
            elapsed: ms(12_900),
            phase: "endpoint change".to_owned(),
            wanted: 15_000,
            streams: 14_998,
            responses_per_second: 1234.4,
            receipt: Some([ms(1), ms(20), ms(300)]),
            servers: Some((0.456, 210 << 20)),
            ..LiveStatus::default()
        };
        assert_eq!(
            line(&live),
            "12s endpoint change | 14,998/15,000 streams | 1,234 responses/s | receipt p50 1 ms, \
             p99 20 ms, max 300 ms | server 46% cpu, 210 MiB"
        );
        live = LiveStatus {
            failed: 2,
            errors: 3,
            violations: 1,
            receipt: None,
            servers: None,
            ..live
        };
        assert_eq!(
            line(&live),
            "12s endpoint change | 14,998/15,000 streams | 1,234 responses/s | 2 failed | \
             3 errors | 1 VIOLATIONS"
        );
    }

    #[test]
    fn a_rate_is_of_the_time_between_and_latencies_are_of_the_phase() {
        let mut begun = Figures::default();
        begun.receipt(Duration::from_secs(9));
        let mut now = begun.clone();
        now.opened(1, Duration::ZERO);
        now.received(1, ReceivedResponse::default());
        now.sent(1, 10, RequestKind::Ack);
        now.receipt(Duration::from_millis(1));
        let live = LiveStatus::between(&begun, &now, &begun, Duration::from_millis(500));
        assert_eq!((live.streams, live.responses_per_second), (1, 2.0));
        let [_, _, max] = live.receipt.unwrap();
        assert!(max < Duration::from_millis(2), "{max:?}");
        assert_eq!(LiveStatus::between(&now, &now, &now, Duration::ZERO).responses_per_second, 0.0);

        let sample = |at_ms, cpu_us| Sample { at_ms, cpu_us, rss: 5, ..Sample::default() };
        let live = live.with_servers(&sample(1_000, 0), &sample(3_000, 500_000));
        assert_eq!(live.servers, Some((0.25, 5)));
    }

    #[test]
    fn a_terminal_gets_one_line_and_a_log_one_every_five_seconds() {
        let shown = |terminal| {
            let mut progress = ProgressLine::new(Vec::new(), terminal);
            for second in 0..=11 {
                let elapsed = Duration::from_secs(second);
                progress.show(&LiveStatus { elapsed, ..LiveStatus::default() }).unwrap();
            }
            progress.finish().unwrap();
            String::from_utf8(progress.out).unwrap()
        };
        let log = shown(false);
        let begins: Vec<_> = log.lines().map(|line| line.split('s').next().unwrap()).collect();
        assert_eq!(begins, ["0", "5", "10"]);
        let terminal = shown(true);
        assert_eq!(terminal.matches('\r').count(), 12);
        assert_eq!(terminal.matches('\n').count(), 1);
        assert!(terminal.ends_with('\n'));
    }
}

use super::peak::Peak;
use super::{Amount, Bench, BenchError, Contender, Figure, Results};
use crate::population::{Conduct, Group, NodeSize};
use crate::run::{Changes, Finished, Run, RunOptions, RunPlan};
use crate::scenario::{Balance, Protocols, Share, Span};
use crate::servers::Target;
use crate::workload::{Resources, UpdateKind};
use heliograph_report::{Sample, Scenario};
use std::time::{Duration, Instant};

/// Some figures that belong to one stretch of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// Many streams, 1,000 clusters: rows 1, 3, 4 and 11.
    Many,
    /// Fewer streams, 5,000 clusters: rows 1 and 3.
    Large,
    /// One snapshot for each client, which few streams show: rows 1 and 3.
    PerClient,
    /// Nothing to serve: row 2.
    Empty,
    EmptyTls,
    EmptyRealNode,
    /// Megabytes to all, some of whom do not read: row 5.
    Full,
    /// State of the world, and all come back: row 11.
    ReconnectWhole,
    /// One after the other until the memory is used up: row 12.
    Survival,
}

/// A server, its clients, and where it is measured.
struct ExperimentRun {
    run: Run,
    streams: usize,
    /// Of what was measured while the clients were too busy to be believed.
    doubts: Vec<String>,
}

/// Long enough for the slowest peer; nothing waits for it but one that hangs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// A server that used less than this part of a core for so long has nothing left to do.
const QUIET: f64 = 0.1;
const QUIET_FOR: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Clients that use more of their core than this are measured too.
const BUSY: f64 = 0.8;
const CHANGES: u32 = 3;
/// Clients that connect together.
const AT_ONCE: usize = 250;
/// As a cgroup of this size would allow.
const ALLOWED: u64 = 2 << 30;
/// A process may have 20,000 open files, and needs some for itself.
const MOST_STREAMS: usize = 19_000;

impl Experiment {
    pub(super) const ALL: [Self; 9] = [
        Self::Many,
        Self::Large,
        Self::PerClient,
        Self::Empty,
        Self::EmptyTls,
        Self::EmptyRealNode,
        Self::Full,
        Self::ReconnectWhole,
        Self::Survival,
    ];

    pub(super) fn is_for(self, rows: &[u8]) -> bool {
        let own: &[u8] = match self {
            Self::Many => &[1, 3, 4, 11],
            Self::Large | Self::PerClient => &[1, 3],
            Self::Empty | Self::EmptyTls | Self::EmptyRealNode => &[2],
            Self::Full => &[5],
            Self::ReconnectWhole => &[11],
            Self::Survival => &[12],
        };
        rows.is_empty() || rows.iter().any(|row| own.contains(row))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Many => "10,000 streams, 1,000 clusters and endpoints",
            Self::Large => "1,000 streams, 5,000 clusters and endpoints",
            Self::PerClient => "300 streams, 1,000 clusters and endpoints",
            Self::Empty => "nothing to serve, a bare node",
            Self::EmptyTls => "nothing to serve, a bare node, TLS",
            Self::EmptyRealNode => "nothing to serve, the node of a real Envoy",
            Self::Full => "1 MB to 2,000 streams in state of the world, 5 % do not read",
            Self::ReconnectWhole => "1,000 streams come back in state of the world",
            Self::Survival => "clients until 2 GiB, 6,000 clusters and endpoints",
        }
    }

    pub(super) fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Many | Self::Large | Self::Full | Self::Survival => {
                &[Contender::Ours, Contender::Before, Contender::Snapshot, Contender::Linear]
            }
            Self::PerClient => &[Contender::PerClient],
            Self::Empty | Self::EmptyTls | Self::EmptyRealNode | Self::ReconnectWhole => {
                &[Contender::Ours, Contender::Before, Contender::Snapshot]
            }
        }
    }

    pub(super) async fn measure(
        self,
        bench: &Bench,
        contender: Contender,
        results: &mut Results,
    ) -> Result<Vec<(Figure, f64)>, BenchError> {
        let mut started = self.set_up(bench, contender).await?;
        let found = match self {
            Self::Many => started.many().await,
            Self::Large => started.memory_and_change(Amount::FiveThousand, 5).await,
            Self::PerClient => started.memory_and_change(Amount::Thousand, 3).await,
            Self::Empty => started.empty(Figure::Empty).await,
            Self::EmptyTls => started.empty(Figure::EmptyTls).await,
            Self::EmptyRealNode => started.empty(Figure::EmptyRealNode).await,
            Self::Full => started.full().await,
            Self::ReconnectWhole => started.come_back_whole().await,
            Self::Survival => started.survive(bench.brief).await,
        };
        let prefix = format!("{}, {}", self.name(), contender.name());
        for doubt in started.doubts {
            results.add_note(format!("{prefix}: {doubt}"));
        }
        let Finished { report, .. } = started.run.finish().await;
        results.add_versions(contender, report.versions);
        for (kind, count) in report.figures.errors.iter() {
            results.add_note(format!("{prefix}: {count} errors of the kind {kind}"));
        }
        // A server that breaks the protocol is not fast.
        for (kind, count) in report.figures.violations.iter() {
            results.add_note(format!("{prefix}: the checker found {count} of {kind}"));
        }
        found
    }

    async fn set_up(
        self,
        bench: &Bench,
        contender: Contender,
    ) -> Result<ExperimentRun, BenchError> {
        let (streams, clusters) = match self {
            Self::Many => (10_000, 1_000),
            Self::Large => (1_000, 5_000),
            Self::PerClient => (300, 1_000),
            Self::Empty | Self::EmptyTls | Self::EmptyRealNode => (5_000, 0),
            Self::Full => (2_000, 2_000),
            Self::ReconnectWhole => (1_000, 1_000),
            Self::Survival => (MOST_STREAMS, 6_000),
        };
        let (streams, clusters) =
            if bench.brief { (streams / 10, clusters / 10) } else { (streams, clusters) };
        let mut resources = Resources { clusters, ..Resources::default() };
        let mut group = Group::default();
        let mut population = Vec::new();
        let mut protocols = Protocols::Delta;
        match self {
            Self::EmptyRealNode => group.node = NodeSize::Real,
            Self::ReconnectWhole => protocols = Protocols::Sotw,
            Self::Full => {
                (resources.cluster_bytes, protocols) = (500, Protocols::Sotw);
                let conduct = Conduct::StopsReading(Span(Duration::from_secs(20)));
                population.push(Group { share: Share::percent(5), conduct, ..Group::default() });
                group.share = Share::percent(95);
            }
            _ => {}
        }
        population.push(group);
        let scenario = Scenario {
            name: "bench".to_owned(),
            about: self.name().to_owned(),
            text: String::new(),
        };
        let (programs, cpu) = (bench.programs_of(contender), bench.server_cpu);
        let tls = self == Self::EmptyTls;
        let target =
            Target::launch(contender.launch(), 1, programs, cpu, tls, Balance::default()).await?;
        // Some more, for those who come during a push.
        let plan = RunPlan {
            protocols,
            population,
            processes: if self == Self::Survival { 2 } else { 1 },
            // Some are in their process before them: what is worked out once for all is not the newcomers' to wait for.
            newcomers: (self == Self::Many).then_some(streams - streams / 100),
            ..RunPlan::new(scenario, streams + newcomers(streams), resources)
        };
        let mut options = RunOptions::new(bench.programs.clone());
        (options.clients_cpu, options.stop) = (bench.clients_cpu, bench.stop.clone());
        Ok(ExperimentRun {
            run: Run::start(plan, target, options).await?,
            streams,
            doubts: Vec::new(),
        })
    }
}

impl ExperimentRun {
    async fn many(&mut self) -> Result<Vec<(Figure, f64)>, BenchError> {
        let mut found = self.memory_and_change(Amount::Thousand, 10).await?;
        found.extend(self.newcomers().await?);
        found.extend(self.come_back().await?);
        Ok(found)
    }

    /// The slope of memory from a `first` part of the streams to all, and what a change costs.
    async fn memory_and_change(
        &mut self,
        amount: Amount,
        first: usize,
    ) -> Result<Vec<(Figure, f64)>, BenchError> {
        let few = self.streams / first;
        self.connect(few).await?;
        let (before, collected_before) = self.memory().await?;
        self.connect(self.streams).await?;
        let (after, collected_after) = self.memory().await?;
        let (cpu, last) = self.change().await?;
        let more = (self.streams - few) as f64;
        let mut found = vec![
            (Figure::Memory(amount), (after - before) / more),
            (Figure::MemoryCollected(amount), (collected_after - collected_before) / more),
            (Figure::ChangeCpu(amount), cpu),
        ];
        if amount == Amount::Thousand && self.streams > 300 {
            found.push((Figure::LastAck, last));
        }
        Ok(found)
    }

    /// Microseconds of CPU a stream and change, and seconds until the last client has acknowledged.
    async fn change(&mut self) -> Result<(f64, f64), BenchError> {
        let (mut cpu, mut last) = (0.0, 0.0);
        for _ in 0..CHANGES {
            let before = self.sample().await?;
            let begun = self.run.figures().await?;
            self.run.change(Changes::one(UpdateKind::Endpoint)).await?;
            self.run.settle(SETTLE_TIMEOUT).await?;
            self.doubt("a change", before.at_ms).await?;
            self.until_quiet().await?;
            let after = self.sample().await?;
            cpu += (after.cpu_us - before.cpu_us) as f64;
            let pushes = self.run.figures().await?.since(&begun).pushes;
            last += pushes.latencies().max().as_secs_f64();
        }
        Ok((cpu / f64::from(CHANGES) / self.streams as f64, last / f64::from(CHANGES)))
    }

    /// Clients that connect while a change goes to all others.
    async fn newcomers(&mut self) -> Result<Vec<(Figure, f64)>, BenchError> {
        let begun = self.run.figures().await?;
        let coming = newcomers(self.streams);
        self.run.begin_to_connect(self.streams + coming, Some(coming as f64)).await?;
        self.run.change(Changes::one(UpdateKind::Endpoint)).await?;
        self.run.settle(SETTLE_TIMEOUT).await?;
        self.until_quiet().await?;
        let waited = self.run.figures().await?.since(&begun).first_state;
        Ok(vec![
            (Figure::NewcomerMedian, waited.quantile(0.5).as_secs_f64()),
            (Figure::NewcomerLate, waited.quantile(0.99).as_secs_f64()),
        ])
    }

    async fn come_back(&mut self) -> Result<Vec<(Figure, f64)>, BenchError> {
        let before = self.sample().await?;
        let begun = self.run.figures().await?;
        let started = Instant::now();
        self.run.reconnect(Share::ALL, Duration::ZERO).await?;
        // A server that has nothing to say to them says nothing: only its rest tells that it has looked.
        let took = self.until_quiet().await?.duration_since(started).as_secs_f64();
        let after = self.sample().await?;
        let figures = self.run.figures().await?.since(&begun);
        let streams = (self.streams + newcomers(self.streams)) as f64;
        Ok(vec![
            (Figure::ReconnectCpu, (after.cpu_us - before.cpu_us) as f64 / streams),
            (Figure::ReconnectTime, took),
            (Figure::ReconnectMemory, after.memory() as f64 / before.memory() as f64),
            (Figure::ReconnectResent, figures.counters.resent as f64 / streams),
        ])
    }

    async fn come_back_whole(&mut self) -> Result<Vec<(Figure, f64)>, BenchError> {
        self.connect(self.streams).await?;
        let begun = self.run.figures().await?;
        self.run.reconnect(Share::ALL, Duration::ZERO).await?;
        self.until_quiet().await?;
        let figures = self.run.figures().await?.since(&begun);
        let bytes = figures.counters.bytes_in as f64 / self.streams as f64;
        Ok(vec![(Figure::ReconnectBytes, bytes)])
    }

    async fn empty(&mut self, figure: Figure) -> Result<Vec<(Figure, f64)>, BenchError> {
        let few = self.streams / 5;
        self.connect(few).await?;
        let (before, collected_before) = self.memory().await?;
        self.connect(self.streams).await?;
        let (after, collected_after) = self.memory().await?;
        // Of the two, what makes the peer look best; ours collects nothing, so for it they are the same.
        let growth = (after - before).min(collected_after - collected_before);
        Ok(vec![(figure, growth / (self.streams - few) as f64)])
    }

    async fn full(&mut self) -> Result<Vec<(Figure, f64)>, BenchError> {
        self.connect(self.streams).await?;
        // Those who will not read have stopped by then.
        self.run.idle(Duration::from_secs(20)).await?;
        let untold = || BenchError::NoSample("the peak of memory");
        let peak = Peak::from_now(self.run.target()).ok_or_else(untold)?;
        let before = self.sample().await?;
        self.run.change(Changes::one(UpdateKind::Clusters)).await?;
        self.run.settle(SETTLE_TIMEOUT).await?;
        self.doubt("the push", before.at_ms).await?;
        self.until_quiet().await?;
        let after = self.sample().await?;
        let growth = peak.growth().ok_or_else(untold)? as f64;
        let cpu = (after.cpu_us - before.cpu_us) as f64 / self.streams as f64;
        Ok(vec![(Figure::FullCpu, cpu), (Figure::FullGrowth, growth)])
    }

    /// In steps, the next when all have everything: what the server has used is seen between them.
    async fn survive(&mut self, brief: bool) -> Result<Vec<(Figure, f64)>, BenchError> {
        let allowed = if brief { ALLOWED / 10 } else { ALLOWED };
        let mut survivors = 0;
        while survivors < self.streams {
            // Small at first, and then as large as fits many times into what is left.
            let used = self.sample().await?.memory();
            let fits = (survivors as u64 * allowed.saturating_sub(used) / used.max(1)) as usize;
            let step = (fits / 4).clamp(25, 1_000).min(self.streams - survivors);
            self.connect(survivors + step).await?;
            // The memory in use now stays in use: all clients have everything, and nothing changes.
            if self.sample().await?.memory() > allowed {
                break;
            }
            survivors += step;
        }
        if survivors == self.streams {
            self.doubts.push(format!("{survivors} is all there were: there was room for more"));
        }
        Ok(vec![(Figure::Survivors, survivors as f64)])
    }

    /// Some at a time, the next when these have everything: a server that is asked for more than it can do is not what
    /// this measures.
    async fn connect(&mut self, streams: usize) -> Result<(), BenchError> {
        while self.run.clients() < streams {
            let clients = streams.min(self.run.clients() + AT_ONCE);
            self.run.connect(clients, None).await?;
            self.run.settle(SETTLE_TIMEOUT).await?;
        }
        self.until_quiet().await?;
        Ok(())
    }

    /// As it is, and after a forced collection.
    async fn memory(&mut self) -> Result<(f64, f64), BenchError> {
        let as_is = self.sample().await?.memory() as f64;
        self.run.target().collect().await?;
        Ok((as_is, self.sample().await?.memory() as f64))
    }

    /// Waits until the server has nothing left to do. When it was last busy.
    async fn until_quiet(&mut self) -> Result<Instant, BenchError> {
        let begun = Instant::now();
        let mut busy = begun;
        let mut before = self.sample().await?;
        while busy.elapsed() < QUIET_FOR {
            self.run.idle(POLL_INTERVAL).await?;
            let now = self.sample().await?;
            let used = now.cpu_us.saturating_sub(before.cpu_us) as f64;
            if used > QUIET * now.at_ms.saturating_sub(before.at_ms) as f64 * 1e3 {
                busy = Instant::now();
            }
            if begun.elapsed() > SETTLE_TIMEOUT {
                return Err(BenchError::Busy(SETTLE_TIMEOUT));
            }
            before = now;
        }
        Ok(busy)
    }

    async fn sample(&mut self) -> Result<Sample, BenchError> {
        self.run.sample().await?.ok_or(BenchError::NoSample("what the servers use"))
    }

    /// Notes it if the clients were what was slow since a moment. All of them are on one core.
    async fn doubt(&mut self, what: &str, since_ms: u64) -> Result<(), BenchError> {
        self.sample().await?;
        let clients = self.run.clients_used();
        let during = clients.samples().iter().filter(|sample| sample.at_ms >= since_ms);
        let mut during = during.copied();
        if let (Some(first), Some(last)) = (during.next(), during.next_back()) {
            let used = last.cpu_us.saturating_sub(first.cpu_us) as f64;
            let share = used / (last.at_ms.saturating_sub(first.at_ms).max(1) as f64 * 1e3);
            if share > BUSY {
                let share = share * 100.0;
                self.doubts.push(format!("during {what} the clients used {share:.0} % of their core, so times are partly theirs"));
            }
        }
        Ok(())
    }
}

/// How many come during a push to so many.
fn newcomers(streams: usize) -> usize {
    (streams / 100).max(10)
}

//! A small report in which every part has something.

use heliograph_report::{
    Clients, Figures, Machine, PerStream, Phase, ReceivedResponse, Report, RequestKind, Sample,
    Scenario, Watched,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// 2026-01-02 03:04:00 UTC.
const START: u64 = 1_767_323_040;

/// `slower` is by how much everything takes longer.
pub(crate) fn report(slower: u32) -> Report {
    let connected = connect(slower);
    let mut all = connected.clone();
    change(&mut all, slower);
    let phase = |name: &str, from: u64, to: u64, figures: &Figures| Phase {
        name: name.to_owned(),
        started_ms: (START + from) * 1000,
        ended_ms: (START + to) * 1000,
        streams: 100,
        figures: figures.since(&Figures::default()),
    };
    let servers = vec![server("distributor", 40_000, slower), server("redis", 1_000, 1)];
    let mut report = Report::new(scenario(), Vec::new(), START * 1000);
    report.command = ["loadtest", "run", "endpoint-churn"].map(str::to_owned).to_vec();
    report.machine = Machine {
        cpu: "Some CPU @ 2.00GHz".to_owned(),
        cores: 2,
        memory: 8 << 30,
        kernel: "6.1.0".to_owned(),
    };
    report.versions = BTreeMap::from([
        ("distributor".to_owned(), "0.1.0".to_owned()),
        ("redis".to_owned(), "7.2.5".to_owned()),
    ]);
    report.phases = vec![
        phase("connect", 0, 4, &connected),
        phase("endpoint change", 4, 10, &all.since(&connected)),
    ];
    report.figures = all;
    report.servers = servers;
    report.clients = Clients { processes: 2, cpus: 1, used: server("clients", 30_000, 1) };
    report.per_stream = PerStream::of(&report.samples()[..5]);
    report.violations = ["client-7 went back from 3 to 2"].into_iter().collect();
    report.errors = ["127.0.0.1:1: nothing listens <there> & \"here\""].into_iter().collect();
    report
}

fn scenario() -> Scenario {
    Scenario {
        name: "endpoint-churn".to_owned(),
        about: "One endpoint changes every second.".to_owned(),
        text: "name: endpoint-churn\nclients: 100\n".to_owned(),
    }
}

fn connect(slower: u32) -> Figures {
    let mut figures = Figures::default();
    figures.failed(START, "refused");
    for client in 0..100_u64 {
        let second = START + client / 25;
        figures.opened(second, Duration::from_micros(900 + client * 10) * slower);
        figures.sent(second, 120, RequestKind::Ask);
        figures.received(second, ReceivedResponse { bytes: 50_000, resources: 200, resent: 0 });
        figures.first_state(second, Duration::from_micros(4_000 + client * 100) * slower);
        figures.sent(second, 80, RequestKind::Ack);
    }
    figures
}

fn change(figures: &mut Figures, slower: u32) {
    for change in 1..=5_u32 {
        for client in 0..100_u32 {
            let second = START + 4 + u64::from(change);
            let late = Duration::from_micros(u64::from(change * 100 + client * 20)) * slower;
            figures.received(second, ReceivedResponse { bytes: 250, resources: 1, resent: 0 });
            figures.receipt(late);
            let answer = if client == 99 { RequestKind::Nack } else { RequestKind::Ack };
            figures.sent(second, 80, answer);
            figures.answered(change, late + Duration::from_micros(50));
        }
    }
    figures.violation("backwards");
}

/// Grows with the streams for four seconds, then uses CPU alone.
fn server(name: &str, bytes_per_stream: u64, slower: u32) -> Watched {
    let mut watched = Watched::new(name);
    for second in 0..=10_u64 {
        let streams = (second * 25).min(100);
        let rss = 20_000_000 + streams * bytes_per_stream;
        watched.push(Sample {
            at_ms: (START + second) * 1000,
            streams,
            cpu_us: (streams * 200 + second * 10_000) * u64::from(slower),
            pss: Some(rss - 1_000_000),
            rss,
            peak_rss: rss,
            open_files: Some(20 + streams),
        });
    }
    watched
}

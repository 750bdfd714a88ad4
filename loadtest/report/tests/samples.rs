//! What servers use, from the kernel's own mouth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_report::{Clients, PerStream, Sample, Sampler, Watched, least_squares, total};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, hint};

#[test]
fn a_process_is_seen_as_it_is() {
    let mut here = Sampler::pids([std::process::id()]);
    let before = here.sample(1_000, 7).unwrap();
    assert_eq!((before.at_ms, before.streams), (1_000, 7));
    assert!(before.rss > 1 << 20 && before.peak_rss >= before.rss, "{before:?}");
    assert!(before.pss.is_some_and(|pss| pss > 0 && pss <= before.peak_rss), "{before:?}");
    assert!(before.open_files.is_some_and(|files| files > 2), "{before:?}");

    let deadline = Instant::now() + Duration::from_secs(60);
    let mut after = before;
    while after.cpu_us < before.cpu_us + 50_000 {
        assert!(Instant::now() < deadline, "busy for a minute, and no CPU time is seen: {after:?}");
        hint::black_box((0..1_000_000_u64).sum::<u64>());
        after = here.sample(2_000, 7).unwrap();
    }
}

#[test]
fn processes_are_counted_together() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let (here, there) = (std::process::id(), child.id());
    let one = Sampler::pids([there]).sample(0, 0).unwrap();
    let both = Sampler::pids([here, there]).sample(0, 0).unwrap();
    assert!(both.rss > one.rss && one.rss > 0, "{one:?} {both:?}");

    // It is reported as gone before its parent has noticed, and afterwards.
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let unnoticed = loop {
        assert!(Instant::now() < deadline, "killed a minute ago, and still seen");
        if let Err(error) = Sampler::pids([here, there]).sample(0, 0) {
            break error.to_string();
        }
    };
    child.wait().unwrap();
    let error = Sampler::pids([here, there]).sample(0, 0).unwrap_err().to_string();
    assert_eq!(unnoticed, error);
    let expected =
        format!("no process with the id {there}: it has ended, or it runs on another machine");
    assert_eq!(error, expected);
}

#[test]
fn what_a_restarted_server_has_used_stays_counted() {
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut sampler = Sampler::pids([busy.id()]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = sampler.sample(0, 0).unwrap();
    while before.cpu_us < 50_000 {
        assert!(
            Instant::now() < deadline,
            "busy for a minute, and no CPU time is seen: {before:?}"
        );
        before = sampler.sample(0, 0).unwrap();
    }
    busy.kill().unwrap();
    busy.wait().unwrap();
    let mut fresh = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    sampler.replace(busy.id(), fresh.id());
    let after = sampler.sample(1, 0).unwrap();
    fresh.kill().unwrap();
    fresh.wait().unwrap();
    assert!(after.cpu_us >= before.cpu_us, "{before:?} {after:?}");
    assert!(after.peak_rss >= before.peak_rss, "{before:?} {after:?}");
}

#[test]
fn a_cgroup_is_read_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    let mut sampler = Sampler::cgroup(folder.path());
    let error = sampler.sample(0, 0).unwrap_err().to_string();
    assert!(error.ends_with("is no cgroup of version 2: it has no memory.current"), "{error}");

    write("memory.current", "5000\n");
    write("memory.stat", "anon 3000\ninactive_file 1500\nactive_file 500\n");
    write("cpu.stat", "usage_usec 777\nuser_usec 700\n");
    let sample = sampler.sample(1, 2).unwrap();
    assert_eq!((sample.rss, sample.peak_rss, sample.cpu_us), (3500, 3500, 777));
    write("memory.peak", "9000\n");
    assert_eq!(sampler.sample(1, 2).unwrap().peak_rss, 9000);
    write("cpu.stat", "nothing\n");
    let error = sampler.sample(0, 0).unwrap_err().to_string();
    assert!(error.ends_with("cpu.stat says something unexpected"), "{error}");
}

#[test]
fn the_slope_is_what_one_more_costs() {
    let line = least_squares(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]).unwrap();
    assert!((line.slope - 2.0).abs() < 1e-9 && (line.at_zero - 3.0).abs() < 1e-9, "{line:?}");
    // Noise that has no direction changes nothing.
    let line = least_squares(&[(0.0, 1.0), (0.0, -1.0), (10.0, 101.0), (10.0, 99.0)]).unwrap();
    assert!((line.slope - 10.0).abs() < 1e-9, "{line:?}");
    for points in [&[][..], &[(1.0, 1.0)], &[(1.0, 1.0), (1.0, 2.0)]] {
        assert_eq!(least_squares(points), None, "{points:?}");
    }
    let sample = |streams: u64| Sample {
        streams,
        cpu_us: 1_000_000 + streams * 300,
        pss: Some(50_000_000 + streams * 20_000),
        rss: u64::MAX,
        ..Sample::default()
    };
    let cost = PerStream::of(&[sample(1_000), sample(5_000), sample(10_000)]).unwrap();
    assert!((cost.bytes - 20_000.0).abs() < 0.01, "{cost:?}");
    assert!((cost.cpu_us - 300.0).abs() < 0.01, "{cost:?}");
    assert_eq!(PerStream::of(&[sample(5), sample(5)]), None);
}

#[test]
fn clients_are_as_busy_as_in_their_busiest_time_and_on_the_cores_they_have() {
    let mut used = Watched::new("clients");
    for (at_ms, cpu_us) in [(0, 0), (1_000, 100_000), (2_000, 1_000_000), (3_000, 1_100_000)] {
        used.push(Sample { at_ms, cpu_us, ..Sample::default() });
    }
    let busiest = |seconds| used.busiest(Duration::from_secs(seconds));
    assert_eq!((busiest(1), busiest(2), busiest(4)), (Some(0.9), Some(0.5), None));
    let of = |processes, cpus| Clients { processes, cpus, used: used.clone() }.busiest();
    assert_eq!(of(1, 8), Some(0.5));
    assert_eq!(of(2, 8), Some(0.25));
    assert_eq!(of(4, 1), Some(0.5), "four that share a core have no more than one");
    assert_eq!(Clients::default().busiest(), None);
}

#[test]
fn a_long_watch_stays_small() {
    let mut watched = Watched::new("x");
    for at_ms in 0..100_000 {
        watched.push(Sample { at_ms, ..Sample::default() });
    }
    let samples = watched.samples();
    assert!(samples.len() <= 4096, "{}", samples.len());
    assert_eq!(samples.first().unwrap().at_ms, 0);
    assert_eq!(samples.last().unwrap().at_ms, 99_999);
    assert!(samples.is_sorted_by_key(|sample| sample.at_ms));
}

#[test]
fn a_total_has_only_moments_at_which_all_were_seen() {
    let watched = |name: &str, moments: &[u64], pss: Option<u64>| {
        let mut watched = Watched::new(name);
        for at_ms in moments {
            watched.push(Sample {
                at_ms: *at_ms,
                streams: 9,
                cpu_us: 5,
                pss,
                rss: 70,
                ..Sample::default()
            });
        }
        watched
    };
    let all = total(&[watched("a", &[1, 2], Some(50)), watched("b", &[2, 3], Some(60))]);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].at_ms, all[0].streams, all[0].cpu_us), (2, 9, 10));
    assert_eq!((all[0].memory(), all[0].rss), (110, 140));
    // One whose share is not known makes the sum of shares unknown, not smaller.
    let all = total(&[watched("a", &[2], Some(50)), watched("b", &[2], None)]);
    assert_eq!((all[0].pss, all[0].memory()), (None, 140));
    assert_eq!(total(&[]), []);
}

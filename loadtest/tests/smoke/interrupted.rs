use crate::program::path;
use heliograph_report::Report;
use heliograph_testing::Port;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(60);

/// The processes that a process has started and that run.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// None if there is no such process, or it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    fields.next().filter(|_| state != "Z")?.parse().ok()
}

fn metrics(address: &str) -> String {
    let mut page = String::new();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn an_interrupt_ends_everything_and_still_reports() {
    let scratch = tempfile::TempDir::new().unwrap();
    let json = scratch.path().join("report.json");
    let address = format!("127.0.0.1:{}", Port::reserve().unwrap().number());
    let mut child = Command::new(path())
        .args(["run", "idle", "--launch", "heliograph", "--clients", "20"])
        .args(["--metrics", &address, "--json", json.to_str().unwrap()])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its first line says that it has begun.
    let mut line = String::new();
    let mut output = BufReader::new(child.stderr.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert!(line.contains("/20 streams"), "{line}");
    let started = Instant::now();
    while !metrics(&address).contains("loadtest_streams 20") {
        assert!(started.elapsed() < DEADLINE, "{}", metrics(&address));
    }
    let began = children(child.id());
    assert_eq!(began.len(), 3, "a worker, a distributor and a Redis");

    let interrupted = Instant::now();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    // As a terminal does, to all that were started from it.
    kill_process_group(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(interrupted.elapsed() < Duration::from_secs(5), "{:?}", interrupted.elapsed());
    while began.iter().any(|pid| parent_of(*pid).is_some()) {
        assert!(interrupted.elapsed() < DEADLINE, "processes are left: {began:?}");
    }
    let report = Report::load(&json).unwrap();
    assert_eq!(report.most_streams(), 20);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("interrupted"), "{rest}");
    assert!(
        report.errors.is_empty(),
        "nothing else ended before it was told to: {:?}",
        report.errors
    );
}

#[test]
fn nothing_outlives_a_run_that_is_killed() {
    // Files it cannot take along.
    let scratch = tempfile::TempDir::new().unwrap();
    let mut child = Command::new(path())
        .args(["run", "idle", "--launch", "heliograph", "--clients", "5"])
        .env("TMPDIR", scratch.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let began = children(child.id());
    assert_eq!(began.len(), 3, "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while began.iter().any(|pid| parent_of(*pid).is_some()) {
        assert!(killed.elapsed() < DEADLINE, "processes are left: {began:?}");
    }
}

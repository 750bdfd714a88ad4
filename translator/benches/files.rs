//! How long a change of one file takes, from its write to the event on the channel, in directories of 1,000, 5,000 and
//! 20,000 files. Prints a table for docs/benchmarks.md. Run it with `make bench-files`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use heliograph_translator::FileMetrics;
use heliograph_translator::provider::Input;
use heliograph_translator::provider::file::File;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const FILES: [usize; 3] = [1_000, 5_000, 20_000];

/// With the pauses, this takes several of the intervals between two scans of the whole directory.
const CHANGES: usize = 400;

/// Between two changes. It is no divisor of the interval between two scans, so that changes and scans meet.
const PAUSE: Duration = Duration::from_millis(37);

const DEADLINE: Duration = Duration::from_secs(20);

/// How a program changes a file.
#[derive(Clone, Copy)]
enum Change {
    /// It truncates the file and writes it again.
    InPlace,
    /// It writes another file and renames that over it.
    Rename,
}

#[tokio::main]
async fn main() {
    println!("| change | files | median | mean | 99 % | longest |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, change) in [("in place", Change::InPlace), ("rename", Change::Rename)] {
        for files in FILES {
            let mut times = measure(files, change).await;
            times.sort();
            let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
            let [median, late, longest] =
                [times.len() / 2, times.len() * 99 / 100, times.len() - 1].map(|at| times[at]);
            println!(
                "| {name} | {files} | {median:.1?} | {mean:.1?} | {late:.1?} | {longest:.1?} |"
            );
        }
    }
}

async fn measure(files: usize, change: Change) -> Vec<Duration> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for number in 0..files {
        fs::write(path(root, number), manifest(number, 1)).unwrap();
    }
    let metrics = FileMetrics::register(&prometheus::Registry::new()).unwrap();
    let file = File::open(root, metrics).unwrap();
    let (sender, mut inputs) = mpsc::channel(16);
    let stop = CancellationToken::new();
    tokio::spawn(file.run(sender, stop.clone()));
    assert_eq!(events(&mut inputs).await, files);
    assert!(matches!(inputs.recv().await, Some(Input::Synced)));
    let mut times = Vec::new();
    for round in 0..CHANGES {
        tokio::time::sleep(PAUSE).await;
        let number = round * 7919 % files;
        let text = manifest(number, 2 + round);
        let start = Instant::now();
        match change {
            Change::InPlace => fs::write(path(root, number), text).unwrap(),
            Change::Rename => {
                let new = root.join(".new.yaml");
                fs::write(&new, text).unwrap();
                fs::rename(new, path(root, number)).unwrap();
            }
        }
        assert_eq!(events(&mut inputs).await, 1);
        times.push(start.elapsed());
    }
    stop.cancel();
    times
}

/// How many events the next batch has.
async fn events(inputs: &mut mpsc::Receiver<Input>) -> usize {
    match tokio::time::timeout(DEADLINE, inputs.recv()).await {
        Ok(Some(Input::Batch(events))) => events.len(),
        other => panic!("no batch came: {other:?}"),
    }
}

fn path(root: &Path, number: usize) -> std::path::PathBuf {
    root.join(format!("service-{number:05}.yaml"))
}

fn manifest(number: usize, port: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: shop}}\nspec: {{ports: [{{port: {port}}}]}}\n"
    )
}

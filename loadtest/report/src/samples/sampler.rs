use super::Sample;
use super::read::{kilobytes, number, ticks};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Looks at a server: some processes, counted together, or a cgroup.
#[derive(Clone, Debug)]
pub struct Sampler {
    target: Target,
    /// What processes had used that were replaced by others: a server that is restarted does not get its CPU time back.
    replaced_us: u64,
    peak_rss: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    #[error("no process with the id {0}: it has ended, or it runs on another machine")]
    Gone(u32),
    #[error("{} is no cgroup of version 2: it has no {file}", path.display())]
    NoCgroup { path: PathBuf, file: &'static str },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} says something unexpected", path.display())]
    Unexpected { path: PathBuf },
}

#[derive(Clone, Debug)]
enum Target {
    /// By id, the CPU time when it was last looked at.
    Pids(BTreeMap<u32, u64>),
    Cgroup(PathBuf),
}

/// Clock ticks a second in `/proc`: 100 for programs on every Linux of today, however often the kernel itself ticks.
const TICKS: u64 = 100;

impl Sampler {
    pub fn pids(pids: impl IntoIterator<Item = u32>) -> Self {
        Self::of(Target::Pids(pids.into_iter().map(|pid| (pid, 0)).collect()))
    }

    /// The folder of a cgroup of version 2.
    pub fn cgroup(folder: impl Into<PathBuf>) -> Self {
        Self::of(Target::Cgroup(folder.into()))
    }

    /// The process `old` was restarted as `new`. Its usage at the last sample stays counted.
    pub fn replace(&mut self, old: u32, new: u32) {
        if let Target::Pids(pids) = &mut self.target {
            self.replaced_us = self.replaced_us.saturating_add(pids.remove(&old).unwrap_or(0));
            pids.insert(new, 0);
        }
    }

    /// `at_ms` is the Unix time now, in milliseconds; `streams` is how many there are now.
    pub fn sample(&mut self, at_ms: u64, streams: u64) -> Result<Sample, SampleError> {
        let mut now = match &mut self.target {
            Target::Pids(pids) => sum(pids)?,
            Target::Cgroup(path) => cgroup(path)?,
        };
        self.peak_rss = self.peak_rss.max(now.peak_rss);
        now.cpu_us = now.cpu_us.saturating_add(self.replaced_us);
        Ok(Sample { at_ms, streams, peak_rss: self.peak_rss, ..now })
    }

    fn of(target: Target) -> Self {
        Self { target, replaced_us: 0, peak_rss: 0 }
    }
}

fn sum(pids: &mut BTreeMap<u32, u64>) -> Result<Sample, SampleError> {
    let mut sum = Sample { pss: Some(0), open_files: Some(0), ..Sample::default() };
    for (pid, cpu_us) in pids {
        let one = one(*pid)?;
        *cpu_us = one.cpu_us;
        sum.add(&one);
    }
    Ok(sum)
}

fn one(pid: u32) -> Result<Sample, SampleError> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let gone = |error| match error {
        SampleError::Read { source, .. } if has_ended(&source) => SampleError::Gone(pid),
        other => other,
    };
    let stat = read(&folder.join("stat"), ticks).map_err(gone)?;
    let status = read(&folder.join("status"), |text| Some(text.to_owned())).map_err(gone)?;
    // One that has ended and waits for its parent to notice is still there, without any memory.
    let resident = |name| kilobytes(&status, name).ok_or(SampleError::Gone(pid));
    Ok(Sample {
        cpu_us: stat.saturating_mul(1_000_000 / TICKS),
        // Only for who may look into the process.
        pss: read(&folder.join("smaps_rollup"), |text| kilobytes(text, "Pss")).ok(),
        rss: resident("VmRSS")?,
        peak_rss: resident("VmHWM")?,
        open_files: fs::read_dir(folder.join("fd")).ok().map(|files| files.count() as u64),
        ..Sample::default()
    })
}

fn cgroup(folder: &Path) -> Result<Sample, SampleError> {
    let read_in = |file: &'static str, find: &dyn Fn(&str) -> Option<u64>| {
        read(&folder.join(file), find).map_err(|error| match error {
            SampleError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                SampleError::NoCgroup { path: folder.to_owned(), file }
            }
            other => other,
        })
    };
    let plain = |text: &str| text.trim().parse().ok();
    let current = read_in("memory.current", &plain)?;
    let unused = read_in("memory.stat", &|text| number(text, "inactive_file"))?;
    let rss = current.saturating_sub(unused);
    Ok(Sample {
        cpu_us: read_in("cpu.stat", &|text| number(text, "usage_usec"))?,
        pss: None,
        rss,
        // Kernels before 5.19 do not remember it.
        peak_rss: read_in("memory.peak", &plain).unwrap_or(rss),
        open_files: None,
        ..Sample::default()
    })
}

fn read<T>(path: &Path, find: impl Fn(&str) -> Option<T>) -> Result<T, SampleError> {
    let text = fs::read_to_string(path)
        .map_err(|source| SampleError::Read { path: path.to_owned(), source })?;
    find(&text).ok_or_else(|| SampleError::Unexpected { path: path.to_owned() })
}

/// A process that ends while it is read answers "no such process".
fn has_ended(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

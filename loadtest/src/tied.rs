//! Starts programs that end with the harness, however it ends.

use anyhow::{Context, bail};
use heliograph_shared::open_files;
use rustix::process::{self, Signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes another program, which the kernel kills when the one that started this is gone
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TiedArgs {
    /// The process that started this one
    #[arg(long)]
    parent: i32,
    /// Run on this CPU alone
    #[arg(long)]
    cpu: Option<usize>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl TiedArgs {
    /// Does not return unless it fails. The other program has the same process id.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before that.
        if process::getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != self.parent) {
            bail!("the program that started this one is gone");
        }
        if let Some(cpu) = self.cpu {
            pin(cpu)?;
        }
        // Every stream is an open file at both ends. Where that is not allowed, the limit shows soon enough.
        open_files::raise();
        let Some((program, arguments)) = self.command.split_first() else {
            bail!("no program to start");
        };
        let error = Command::new(program).args(arguments).exec();
        Err(error).with_context(|| format!("cannot start {}", program.display()))
    }
}

/// Runs on one CPU from now on, and so do the programs that it starts, unless they choose others.
pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        bail!("there is no CPU {cpu}");
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot run on CPU {cpu}"))
}

use crate::servers::Target;
use heliograph_report::{Sample, Sampler};

/// The most memory that servers have resident from a moment on.
pub(super) struct Peak {
    pids: Vec<u32>,
    before: u64,
}

/// Written to the kernel's file, this resets the peak.
const FORGET: &str = "5";

impl Peak {
    /// `None` where the kernel does not tell.
    pub(super) fn from_now(target: &Target) -> Option<Self> {
        let pids: Vec<_> = target.pids().into_iter().map(|(_, pid)| pid).collect();
        for pid in &pids {
            std::fs::write(format!("/proc/{pid}/clear_refs"), FORGET).ok()?;
        }
        let before = sample(&pids)?.rss;
        Some(Self { pids, before })
    }

    /// How far above what was used at the beginning.
    pub(super) fn growth(&self) -> Option<u64> {
        Some(sample(&self.pids)?.peak_rss.saturating_sub(self.before))
    }
}

fn sample(pids: &[u32]) -> Option<Sample> {
    Sampler::pids(pids.iter().copied()).sample(0, 0).ok()
}

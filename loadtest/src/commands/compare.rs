use super::{Outcome, Usage};
use anyhow::Context;
use heliograph_report::{Bounds, Report, compare};
use heliograph_shared::output;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    before: PathBuf,
    after: PathBuf,
    /// Factor by which figures may get worse; individual figures can have another one, as in 1.1,receipt-p99=1.5
    #[arg(long, default_value = "1.1")]
    bound: Bounds,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    report: PathBuf,
    /// File to write a page with charts to [default: print the table]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl CompareArgs {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let (before, after) = (load(&self.before)?, load(&self.after)?);
        let comparison = compare(&before, &after, &self.bound);
        output::result(&comparison.to_string())?;
        Ok(if comparison.regressed() { Outcome::Bad } else { Outcome::Good })
    }
}

impl ReportArgs {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let report = load(&self.report)?;
        match &self.html {
            Some(path) => std::fs::write(path, report.html())
                .with_context(|| format!("cannot write {}", path.display()))?,
            None => output::result(&report.table())?,
        }
        Ok(Outcome::Good)
    }
}

fn load(path: &std::path::Path) -> anyhow::Result<Report> {
    Report::load(path).map_err(|error| Usage(error.to_string()).into())
}

use super::{Outcome, Usage};
use crate::scenario::{BUILT_IN, Scenario, built_in};
use heliograph_shared::output;

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    scenario: String,
}

/// One line each.
pub(super) fn list() -> anyhow::Result<Outcome> {
    let width = BUILT_IN.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in BUILT_IN {
        let about = Scenario::parse(name, text)?.about;
        output::result(&format!("{name:width$}  {about}\n"))?;
    }
    Ok(Outcome::Good)
}

impl ShowArgs {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        match built_in(&self.scenario) {
            Some(text) => output::result(text)?,
            None => {
                let reason = format!(
                    "{:?} is not built in: `loadtest list` shows those that are",
                    self.scenario
                );
                return Err(Usage(reason).into());
            }
        }
        Ok(Outcome::Good)
    }
}

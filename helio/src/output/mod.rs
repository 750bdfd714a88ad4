//! The output for terminals and pipes: results on stdout, the rest on stderr.

mod progress;
mod table;

pub(crate) use heliograph_shared::output::{message, result};
pub(crate) use progress::with_progress;
pub(crate) use table::{Cell, TextTable, cell, one_line};

use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::SystemTime;

/// How structured output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
}

impl Format {
    pub(crate) fn render(self, value: &impl Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(value)?,
        })
    }
}

pub(crate) fn line(text: &str) -> io::Result<()> {
    result(&format!("{text}\n"))
}

/// Whether a result may have colours: on a terminal, unless the user has disabled them (https://no-color.org).
pub(crate) fn colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// In UTC, to the second.
pub(crate) fn shown_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| "?".to_owned(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Asks a person, who has to be there to answer.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        message("there is no terminal for a prompt: set --yes to confirm");
        return Ok(false);
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

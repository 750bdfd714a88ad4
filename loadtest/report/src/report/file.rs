use super::{FORMAT, Report};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Each is one line that says which file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read the report {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no report of this program, or is cut off: {reason}", path.display())]
    Broken { path: PathBuf, reason: String },
    #[error(
        "{} has format {found}, and this program reads format {FORMAT}: make both reports with the same version",
        path.display()
    )]
    Format { path: PathBuf, found: u64 },
}

#[derive(Deserialize)]
struct Head {
    format: u64,
}

impl Report {
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = fs::read_to_string(path)
            .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        Self::from_json(&text, path)
    }

    /// `path` is where it came from, for errors.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, LoadError> {
        let broken = |error: serde_json::Error| LoadError::Broken {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        // First the number alone: all else may have another form.
        let head: Head = serde_json::from_str(text).map_err(broken)?;
        if head.format != u64::from(FORMAT) {
            return Err(LoadError::Format { path: path.to_owned(), found: head.format });
        }
        serde_json::from_str(text).map_err(broken)
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(rows_on_lines(&serde_json::to_string_pretty(self)?))
    }
}

/// Pretty JSON has every number of a list on a line of its own; a series has thousands. A line that is nothing but a
/// number can only be one in a list, and joins the line before it.
fn rows_on_lines(pretty: &str) -> String {
    let is_number = |line: &str| {
        let digits = line.trim().trim_end_matches(',');
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut text = String::with_capacity(pretty.len());
    let mut after_number = false;
    for line in pretty.lines() {
        let number = is_number(line);
        match (after_number, number) {
            (false, false) if text.is_empty() => text.push_str(line),
            (false, false) => text.extend(["\n", line]),
            (true, true) => text.extend([" ", line.trim()]),
            (true, false) | (false, true) => text.push_str(line.trim()),
        }
        after_number = number;
    }
    text.push('\n');
    text
}

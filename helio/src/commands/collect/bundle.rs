use super::scrub::Scrubber;
use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use tar::{Builder, Header};

/// The files of a bundle, by their paths in it. What comes in is scrubbed.
#[derive(Debug)]
pub(super) struct Bundle {
    files: BTreeMap<String, String>,
    scrubber: Scrubber,
}

impl Bundle {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { files: BTreeMap::new(), scrubber: Scrubber::new()? })
    }

    pub(super) fn add(&mut self, path: String, text: String) {
        self.files.insert(path, self.scrubber.scrub(text));
    }

    pub(super) fn add_json(&mut self, path: String, value: &impl Serialize) -> anyhow::Result<()> {
        self.add(path, serde_json::to_string_pretty(value)? + "\n");
        Ok(())
    }

    /// All files in a folder of this name, packed. `seconds` is when, since 1970.
    pub(super) fn pack(&self, folder: &str, seconds: u64, out: impl Write) -> anyhow::Result<()> {
        let mut archive = Builder::new(GzEncoder::new(out, Compression::default()));
        for (path, text) in &self.files {
            let mut header = Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(seconds);
            archive.append_data(&mut header, format!("{folder}/{path}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()?;
        Ok(())
    }

    /// Overwrites no file; only the user may read the bundle.
    pub(super) fn write(&self, folder: &str, seconds: u64, file: &Path) -> anyhow::Result<()> {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let cannot = || format!("{} cannot be written", file.display());
        let beside = tempfile::NamedTempFile::new_in(directory).with_context(cannot)?;
        self.pack(folder, seconds, beside.as_file()).with_context(cannot)?;
        beside.persist_noclobber(file).with_context(cannot)?;
        Ok(())
    }
}

/// A name that others chose, as a part of a path.
pub(super) fn as_path(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    let path: String = name.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    // Neither this folder nor the one above.
    match path.trim_matches('.') {
        "" => "_".to_owned(),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let cases =
            [("127.0.0.1:19000", "127.0.0.1_19000"), ("..", "_"), ("a/../b", "a_.._b"), ("", "_")];
        for (name, path) in cases {
            assert_eq!(as_path(name), path);
        }
    }
}

use super::scan::Fingerprint;
use super::{FoundFile, in_words};
use heliograph_gateway::objects;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Far more than a person writes, and little enough to be held in memory.
const LARGEST_MIB: u64 = 4;

/// The content of a file, and the fingerprint of the file with this content. None if it changed meanwhile, so that the
/// content may be half of one version and half of another.
pub(super) fn read(path: &Path) -> Option<(FoundFile, Fingerprint)> {
    match read_steady(path) {
        Ok(reading) => reading,
        Err(error) => {
            let fingerprint = Fingerprint::of(&fs::metadata(path).ok()?);
            Some((FoundFile::Unreadable(in_words(&error)), fingerprint))
        }
    }
}

fn read_steady(path: &Path) -> io::Result<Option<(FoundFile, Fingerprint)>> {
    let mut file = fs::File::open(path)?;
    let before = Fingerprint::of(&file.metadata()?);
    let limit = LARGEST_MIB * 1024 * 1024;
    let mut bytes = Vec::new();
    if before.size <= limit {
        file.by_ref().take(limit + 1).read_to_end(&mut bytes)?;
    }
    let steady = before == Fingerprint::of(&file.metadata()?);
    let contents = if before.size > limit {
        let text = format!("is larger than {LARGEST_MIB} MiB: split it into several files");
        FoundFile::Unreadable(text)
    } else {
        match std::str::from_utf8(&bytes) {
            Ok(text) => FoundFile::Documents(objects::parse(text)),
            Err(_) => FoundFile::Unreadable("is not text in UTF-8".to_owned()),
        }
    };
    Ok(steady.then_some((contents, before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        fs::write(&path, bytes).unwrap();
        match read(&path) {
            Some((FoundFile::Unreadable(reason), _)) => reason,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused_in_words() {
        assert_eq!(reason(&[0xff, 0xfe]), "is not text in UTF-8");
        let large = vec![b'#'; 4 * 1024 * 1024 + 1];
        assert_eq!(reason(&large), "is larger than 4 MiB: split it into several files");
    }

    #[test]
    fn a_file_that_vanished_is_not_read() {
        assert!(read(Path::new("/nonexistent/a.yaml")).is_none());
    }
}

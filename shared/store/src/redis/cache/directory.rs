//! The directory of the cache: its files are read and replaced whole. Everything here blocks.

use super::file::{self, FRAME, FileError, FleetSummary, Header, Kind, Objects};
use bytes::Bytes;
use heliograph_snapshot::{Address, FleetName};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(
        "the snapshot cache cannot use the directory {}: {error}; set --snapshot-cache to one that this program may write to",
        path.display()
    )]
    Unusable { path: PathBuf, error: io::Error },
    #[error(
        "another program uses the snapshot cache in {}: set a separate directory for each program with --snapshot-cache",
        .0.display()
    )]
    InUse(PathBuf),
}

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// No file of more bytes is read.
    limit: u64,
    /// Held for as long as the program uses the directory.
    lock: Option<File>,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Refused(#[from] FileError),
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A file of the cache, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName(String);

const DIRECTORY: &str = "directory";
const LOCK: &str = "lock";
const FLEET: &str = ".fleet";
const TEMPORARY: &str = ".tmp";

impl FileName {
    /// A hash, because a fleet's name is no file's: it has a slash in it, and may be long.
    pub(super) fn of(fleet: &FleetName) -> Self {
        Self(format!("{}{FLEET}", blake3::hash(fleet.as_str().as_bytes()).to_hex()))
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether --snapshot-cache names a directory that this program cannot have. All else is a fault of the disk, which no flag
/// repairs: it is full, was mounted again read-only, or is gone.
pub(super) fn is_mistake(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound,
        PermissionDenied,
    };
    matches!(
        error.kind(),
        NotFound
            | PermissionDenied
            | NotADirectory
            | AlreadyExists
            | IsADirectory
            | InvalidFilename
            | InvalidInput
    )
}

impl Directory {
    /// Makes it if it is not there, and makes sure that it can be written to. Returns the fault of its disk, if it has one:
    /// what is there can perhaps be read, and it may work later.
    pub(super) fn open(path: &Path, limit: u64) -> Result<(Self, Option<io::Error>), CacheError> {
        let mut directory = Self { path: path.to_owned(), limit, lock: None };
        let fault = match directory.prepare() {
            Ok(true) => None,
            Ok(false) => return Err(CacheError::InUse(path.to_owned())),
            Err(error) if is_mistake(&error) => {
                return Err(CacheError::Unusable { path: path.to_owned(), error });
            }
            Err(error) => Some(error),
        };
        Ok((directory, fault))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The files of fleets and their lengths. Partly written files are deleted; files that are not of the cache stay.
    pub(super) fn list(&self) -> io::Result<BTreeMap<FileName, u64>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata())
            else {
                continue;
            };
            if !metadata.is_file() || [DIRECTORY, LOCK].contains(&&*name) {
                continue;
            }
            if name.ends_with(TEMPORARY) {
                let _ = fs::remove_file(entry.path());
            } else if name.ends_with(FLEET) {
                files.insert(FileName(name), metadata.len());
            } else {
                tracing::warn!(
                    "the snapshot cache ignores {}: it is not one of its files",
                    entry.path().display()
                );
            }
        }
        Ok(files)
    }

    /// `None`: there is none.
    pub(super) fn summary(&self) -> Result<Option<Vec<FleetSummary>>, ReadError> {
        let Some((mut file, length)) = self.file(&FileName(DIRECTORY.to_owned()))? else {
            return Ok(None);
        };
        let layout = file::layout(Kind::Directory, &read(&mut file, FRAME)?, length)?;
        let header = read(&mut file, layout.header)?;
        Ok(Some(file::read_directory(&layout, &header)?))
    }

    pub(super) fn write_summary(&self, summary: &[FleetSummary]) -> io::Result<()> {
        let bytes = file::directory(summary).map_err(io::Error::other)?;
        self.replace(&FileName(DIRECTORY.to_owned()), [&bytes[..]])
    }

    /// The header of a fleet's file. `None`: there is no such file.
    pub(super) fn header(&self, name: &FileName) -> Result<Option<Header>, ReadError> {
        Ok(self.read(name)?.map(|(header, ..)| header))
    }

    /// All of a file. `None`: there is no such file.
    pub(super) fn objects(&self, name: &FileName) -> Result<Option<(Header, Objects)>, ReadError> {
        let Some((header, mut file, length)) = self.read(name)? else { return Ok(None) };
        let objects = header.objects(&read(&mut file, length)?)?;
        Ok(Some((header, objects)))
    }

    pub(super) fn write<'a>(
        &self,
        name: &FileName,
        header: &'a [u8],
        objects: &'a [(Address, Bytes)],
    ) -> io::Result<()> {
        let objects = objects.iter().map(|(_, object)| &object[..]);
        self.replace(name, [header].into_iter().chain(objects))
    }

    /// It may be gone already.
    pub(super) fn delete(&self, name: &FileName) -> io::Result<()> {
        match fs::remove_file(self.path.join(&name.0)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether no other program uses it.
    fn prepare(&mut self) -> io::Result<bool> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = self.lock.insert(options.open(self.path.join(LOCK))?);
        // Where files cannot be locked, this is not reported.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Ok(false);
        }
        let probe = FileName(format!("probe{TEMPORARY}"));
        self.replace(&probe, [&b"probe"[..]])?;
        self.delete(&probe)?;
        Ok(true)
    }

    /// The header, the file behind it, and how much is left of it.
    fn read(&self, name: &FileName) -> Result<Option<(Header, File, usize)>, ReadError> {
        let Some((mut file, length)) = self.file(name)? else { return Ok(None) };
        let layout = file::layout(Kind::Fleet, &read(&mut file, FRAME)?, length)?;
        let header = file::read_header(&layout, read(&mut file, layout.header)?.into())?;
        Ok(Some((header, file, layout.objects)))
    }

    fn file(&self, name: &FileName) -> Result<Option<(File, u64)>, ReadError> {
        let file = match File::open(self.path.join(&name.0)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let length = file.metadata()?.len();
        if length > self.limit {
            return Err(FileError::TooLarge(length).into());
        }
        Ok(Some((file, length)))
    }

    /// The whole file or the one before, whatever happens meanwhile.
    fn replace<'a>(
        &self,
        name: &FileName,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let (path, temporary) =
            (self.path.join(&name.0), self.path.join(format!("{}{TEMPORARY}", name.0)));
        let written = write_new(&temporary, pieces).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

/// Not forced to the disk: a process that dies takes nothing with it, and what a power cut leaves half written is found by its
/// checksum and read from Redis.
fn write_new<'a>(path: &Path, pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
    // One that is left over is not written into: its mode may be another.
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut writer = BufWriter::new(file);
    for piece in pieces {
        writer.write_all(piece)?;
    }
    writer.flush()
}

/// So many bytes, or fewer where the file ends: that is found by its length and its checksum.
fn read(file: &mut File, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

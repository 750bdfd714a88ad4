use crate::output;
use anyhow::{Context, bail};
use heliograph_store::keys::KeyRing;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io, iter};

/// Create and change the key ring that seals secrets in the store
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Create a key ring
    New {
        /// File to create; an existing file is never overwritten
        file: PathBuf,
    },
    /// Add a new key, which seals from then on; older keys still open what they sealed
    Rotate { file: PathBuf },
    /// Print the names of the keys; the first one seals
    List { file: PathBuf },
    /// Remove an older key; do this only when everything is sealed with a newer one
    Forget {
        file: PathBuf,
        /// Name of the key, as `list` prints it
        id: String,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::New { file } => new(file)?,
        Command::Rotate { file } => {
            let before = read(file)?;
            let ring = KeyRing::parse(&before).with_context(|| shown(file))?;
            let id = new_id(ring.ids());
            let text = KeyRing::rotate(&before, &id).with_context(|| shown(file))?;
            replace(file, &text)?;
            output::message(&format!(
                "{id} seals from now on. Give {} to every program; translators seal again what older keys sealed, and say \
                 so; then `helio store keys forget` can take out the older ones",
                shown(file)
            ));
        }
        Command::List { file } => {
            for id in KeyRing::read(file)?.ids() {
                output::line(id)?;
            }
        }
        Command::Forget { file, id } => {
            let text = KeyRing::forget(&read(file)?, id).with_context(|| shown(file))?;
            replace(file, &text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn new(file: &Path) -> anyhow::Result<()> {
    if file.exists() {
        bail!(
            "{} exists: nothing was changed. To put a new key into it: helio store keys rotate {0}",
            shown(file)
        );
    }
    replace(file, &KeyRing::generate(&new_id(iter::empty()))?)?;
    output::message(&format!(
        "Give {} to every translator and distributor with --store-keys. Who has it and can reach Redis can read all \
         secrets there; if it is lost, the store is published anew with another",
        shown(file)
    ));
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| shown(file))
}

/// Written beside it first, so that a program that follows the file never reads half of it.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = || -> io::Result<()> {
        let mut beside = tempfile::NamedTempFile::new_in(directory)?;
        beside.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
        beside.write_all(text.as_bytes())?;
        beside.as_file().sync_all()?;
        beside.persist(file)?;
        Ok(())
    };
    written().with_context(|| format!("{} cannot be written", shown(file)))
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

/// The seconds of the clock, and a little later if a key of that name is there.
pub(crate) fn new_id<'a>(taken: impl Iterator<Item = &'a str>) -> String {
    let taken: Vec<_> = taken.collect();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut ids = (since.as_secs()..).map(|seconds| format!("k{seconds}"));
    ids.find(|id| !taken.contains(&id.as_str())).unwrap_or_default()
}

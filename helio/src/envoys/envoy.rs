use super::bootstrap::bootstrap;
use super::lifeline;
use anyhow::Context;
use heliograph_snapshot::FleetName;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// One running Envoy, with its files in a directory of its own.
pub(super) struct Envoy {
    child: Child,
    log: PathBuf,
    admin: PathBuf,
}

impl Envoy {
    /// Must be called on a thread that lives as long as the Envoy is wanted: see [`lifeline::tie`].
    pub(super) fn start(
        program: &Path,
        directory: &Path,
        fleet: &FleetName,
        xds: SocketAddr,
    ) -> anyhow::Result<Self> {
        let [config, log, admin] =
            ["bootstrap.json", "envoy.log", "admin"].map(|name| directory.join(name));
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&config, bootstrap(fleet, xds).to_string()))
            // Left by one before, it would lead to whoever has that port now.
            .and_then(|()| if admin.exists() { fs::remove_file(&admin) } else { Ok(()) })
            .with_context(|| format!("cannot write to {}", directory.display()))?;
        let output = fs::File::create(&log)
            .and_then(|log| Ok((log.try_clone()?, log)))
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        command
            .args([OsStr::new("--config-path"), config.as_os_str()])
            .args([OsStr::new("--admin-address-path"), admin.as_os_str()])
            .args(["--concurrency", "1", "--log-level", "warning"])
            // Hot restart needs shared memory, which would be left behind, and a number that no other Envoy has.
            .arg("--disable-hot-restart")
            .stdin(Stdio::null())
            .stdout(output.0)
            .stderr(output.1)
            // Ctrl-C goes to the whole process group of a terminal; when an Envoy ends is for us to say.
            .process_group(0)
            .kill_on_drop(true);
        lifeline::tie(&mut command);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self { child, log, admin })
    }

    /// Resolves once it has what it needs to serve, and says so if that takes long.
    pub(super) fn live(
        &self,
        late: Duration,
        fleet: &FleetName,
    ) -> impl Future<Output = ()> + use<> {
        let (admin, log, fleet) = (self.admin.clone(), self.log.clone(), fleet.clone());
        let live = async move {
            while !is_live(&admin).await {
                sleep(ASK_EVERY).await;
            }
        };
        async move {
            let mut live = std::pin::pin!(live);
            if timeout(late, &mut live).await.is_err() {
                let words = last_words(&log);
                tracing::warn!("the Envoy of Gateway {fleet} is not live after {late:?}: {words}");
                live.await;
            }
        }
    }

    /// Resolves when it ends by itself.
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end, and does not take no for an answer.
    pub(super) async fn stop(mut self) {
        lifeline::terminate(&self.child);
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    pub(super) fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

const ASK_EVERY: Duration = Duration::from_millis(50);
const ANSWER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
const LAST_LINES: usize = 3;
const LAST_BYTES: u64 = 4096;

/// The end of a log, in one line.
fn last_words(log: &Path) -> String {
    let mut end = Vec::new();
    // What cannot be read is not said; the log is there for who wants to look.
    let _ = fs::File::open(log).and_then(|mut log| {
        let size = log.metadata()?.len();
        log.seek(SeekFrom::Start(size.saturating_sub(LAST_BYTES)))?;
        log.take(LAST_BYTES).read_to_end(&mut end)
    });
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LAST_LINES));
    let last = last.copied().collect::<Vec<_>>().join(" | ");
    if last.is_empty() { "it logged nothing".to_owned() } else { last }
}

/// `admin` is the file to which an Envoy writes where its admin port is.
async fn is_live(admin: &Path) -> bool {
    let Ok(address) = fs::read_to_string(admin) else { return false };
    let Ok(address) = address.trim().parse() else { return false };
    matches!(timeout(ANSWER, ask_ready(address)).await, Ok(Ok(true)))
}

/// Asks an Envoy's admin port whether it is live: 200 if so, 503 while it initialises.
async fn ask_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /ready HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status_line = [0; b"HTTP/1.1 200".len()];
    stream.read_exact(&mut status_line).await?;
    Ok(&status_line == b"HTTP/1.1 200")
}

/// Finds the program to run: as told, or on the path.
pub(super) fn find_program(told: Option<&Path>, path: Option<&OsStr>) -> anyhow::Result<PathBuf> {
    let told_or_name = told.unwrap_or(Path::new("envoy"));
    // As a shell does: a name without a slash is looked up.
    let found = if told_or_name.components().count() > 1 || told_or_name.is_absolute() {
        is_program(told_or_name).then(|| told_or_name.to_owned())
    } else {
        let directories = path.map(std::env::split_paths).into_iter().flatten();
        directories.map(|directory| directory.join(told_or_name)).find(|path| is_program(path))
    };
    found.with_context(|| match told {
        Some(told) => format!(
            "{} is not a program: point --envoy-binary or ENVOY at an Envoy",
            told.display()
        ),
        None => "there is no envoy on PATH: install it, or point --envoy-binary or ENVOY at one"
            .to_owned(),
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_program_is_as_told_or_on_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("envoy");
        fs::write(&program, "").unwrap();
        let path = Some(directory.path().as_os_str());
        let error = find_program(None, path).unwrap_err().to_string();
        assert!(error.contains("no envoy on PATH"), "not executable: {error}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program(None, path).unwrap(), program);
        assert_eq!(find_program(Some(Path::new("envoy")), path).unwrap(), program);
        assert_eq!(find_program(Some(&program), None).unwrap(), program);
        let error = find_program(Some(Path::new("/nonexistent/envoy")), path).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/envoy is not a program"), "{error}");
    }
}

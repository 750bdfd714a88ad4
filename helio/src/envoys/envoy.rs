use super::bootstrap::bootstrap;
use super::lifeline;
use crate::sources::AdminConnection;
use anyhow::{Context, bail};
use heliograph_model::InfraPort;
use heliograph_snapshot::FleetName;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
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
            // A file of an earlier Envoy would name a port that another program may have now.
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

    /// Resolves once it has everything that it needs to serve, and logs if that takes long.
    pub(super) fn live(
        &self,
        late: Duration,
        fleet: &FleetName,
    ) -> impl Future<Output = ()> + use<> {
        let (admin, log, fleet) = (self.admin.clone(), self.log.clone(), fleet.clone());
        let live = async move {
            // 200 if it is live, 503 while it initialises.
            while page(&admin, "/ready").await.is_none() {
                sleep(ASK_EVERY).await;
            }
        };
        async move {
            let mut live = std::pin::pin!(live);
            if timeout(late, &mut live).await.is_err() {
                let words = last_log_lines(&log);
                tracing::warn!("the Envoy of {fleet} is not live after {late:?}: {words}");
                live.await;
            }
        }
    }

    /// Waits until it listens on all of `ports`, but no longer than `limit` if it answers. Returns those on which it says
    /// that it does not.
    pub(super) fn closed_ports(
        &self,
        ports: &[InfraPort],
        limit: Duration,
    ) -> impl Future<Output = BTreeSet<u16>> + use<> {
        let ports = ports.iter().map(|port| port.bind_port).collect();
        closed_ports(self.admin.clone(), ports, limit)
    }

    /// Resolves when it ends by itself.
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end, and does not take no for an answer.
    pub(super) async fn stop(mut self) {
        lifeline::terminate(&self.child);
        if timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    pub(super) fn last_log_lines(&self) -> String {
        last_log_lines(&self.log)
    }
}

async fn closed_ports(admin: PathBuf, ports: BTreeSet<u16>, limit: Duration) -> BTreeSet<u16> {
    let deadline = Instant::now() + limit;
    loop {
        // No answer in time is not the answer that it listens nowhere.
        if let Some(open) = page(&admin, "/listeners").await {
            let closed = &ports - &listening(&open);
            if closed.is_empty() || Instant::now() >= deadline {
                return closed;
            }
        }
        sleep(ASK_EVERY).await;
    }
}

const ASK_EVERY: Duration = Duration::from_millis(50);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const LAST_LINES: usize = 3;
const LAST_BYTES: u64 = 4096;

/// The end of a log, in one line.
fn last_log_lines(log: &Path) -> String {
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

/// A page of an Envoy's admin port, if it answers with 200. `admin` is the file to which the Envoy writes where that is.
async fn page(admin: &Path, path: &str) -> Option<String> {
    let address: SocketAddr = fs::read_to_string(admin).ok()?.trim().parse().ok()?;
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        AdminConnection::over(stream, &address.to_string(), "").await?.text(path).await
    };
    timeout(REQUEST_TIMEOUT, exchange).await.ok()?.ok()
}

/// The ports on an Envoy's page `/listeners`, which has lines such as `NAME::0.0.0.0:8080`.
fn listening(page: &str) -> BTreeSet<u16> {
    page.lines().filter_map(|line| line.rsplit_once(':')?.1.parse().ok()).collect()
}

/// Fails unless the program says of itself that it is an Envoy.
pub(super) async fn check_program(program: &Path) -> anyhow::Result<()> {
    let mut output = Vec::new();
    let child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    // What cannot be run or says nothing in time has not said that it is an Envoy.
    if let Ok(mut child) = child
        && let Some(stdout) = child.stdout.take()
    {
        let _ = timeout(VERSION_TIMEOUT, stdout.take(LAST_BYTES).read_to_end(&mut output)).await;
    }
    if !is_version_of_envoy(&String::from_utf8_lossy(&output)) {
        bail!("{} is not an Envoy: point --envoy-binary or ENVOY at one", program.display());
    }
    Ok(())
}

/// `PROGRAM  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn is_version_of_envoy(text: &str) -> bool {
    let version =
        text.split_once(" version: ").and_then(|(_, rest)| rest.split_whitespace().next());
    version.is_some_and(|version| version.split('/').count() == 5)
}

/// Finds the program to run: as given, or on the path.
pub(super) fn find_program(given: Option<&Path>, path: Option<&OsStr>) -> anyhow::Result<PathBuf> {
    let given_or_name = given.unwrap_or(Path::new("envoy"));
    // As a shell does: a name without a slash is looked up.
    let found = if given_or_name.components().count() > 1 || given_or_name.is_absolute() {
        is_program(given_or_name).then(|| given_or_name.to_owned())
    } else {
        let directories = path.map(std::env::split_paths).into_iter().flatten();
        directories.map(|directory| directory.join(given_or_name)).find(|path| is_program(path))
    };
    found.with_context(|| match given {
        Some(given) => format!(
            "{} is not a program: point --envoy-binary or ENVOY at an Envoy",
            given.display()
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
    use tokio::io::AsyncWriteExt;

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

    #[test]
    fn the_ports_that_an_envoy_lists_are_open() {
        let page = "web-8080::0.0.0.0:8080\nb::0.0.0.0:443\n";
        assert_eq!(listening(page), BTreeSet::from([443, 8080]));
        assert_eq!(listening(""), BTreeSet::new());
    }

    #[tokio::test]
    async fn an_envoy_that_does_not_answer_has_not_said_that_its_ports_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let admin = directory.path().join("admin");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        fs::write(&admin, listener.local_addr().unwrap().to_string()).unwrap();
        let asked = tokio::spawn(closed_ports(admin, BTreeSet::from([443, 8080]), Duration::ZERO));
        drop(listener.accept().await.unwrap());
        let again = timeout(VERSION_TIMEOUT, listener.accept()).await.expect("it asks again");
        let (mut connection, _) = again.unwrap();
        let question = connection.read(&mut [0; 1024]).await.unwrap();
        assert!(question > 0, "it is asked");
        let answer = b"HTTP/1.1 200 OK\r\n\r\nweb::0.0.0.0:8080\n";
        connection.write_all(answer).await.unwrap();
        drop(connection);
        assert_eq!(asked.await.unwrap(), BTreeSet::from([443]));
    }

    #[tokio::test]
    async fn what_is_no_envoy_is_refused() {
        for program in ["/bin/false", "/bin/cat", "/dev/null"] {
            let error = check_program(Path::new(program)).await.unwrap_err().to_string();
            let expected =
                format!("{program} is not an Envoy: point --envoy-binary or ENVOY at one");
            assert_eq!(error, expected);
        }
        assert!(is_version_of_envoy("\n/e  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL\n\n"));
    }
}

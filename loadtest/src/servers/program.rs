use super::ServersError;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

/// Where programs are found.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This harness: it starts the others.
    loadtest: PathBuf,
    /// The folder of the project's own programs, if it is that of another build.
    own: Option<PathBuf>,
}

/// A program that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    log: Arc<Log>,
}

/// A program to start.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<&'a OsStr>,
    pub(crate) cpu: Option<usize>,
}

/// How a program is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It may say goodbye to its clients.
    Ask,
    Kill,
}

/// The last lines that a program printed.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<VecDeque<String>>,
    changed: watch::Sender<()>,
}

/// The project's programs that the harness starts.
const OWN: [&str; 2] = ["distributor", "translator"];
const KEPT: usize = 100;
/// For what takes moments; a busy machine gets time.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(10);

impl Programs {
    /// When the program that runs is the harness.
    pub fn here() -> std::io::Result<Self> {
        Ok(Self::of(std::env::current_exe()?))
    }

    /// `loadtest` is the path of the harness.
    pub fn of(loadtest: impl Into<PathBuf>) -> Self {
        Self { loadtest: loadtest.into(), own: None }
    }

    /// The same harness with the distributor and the translator of a folder.
    pub fn of_build(&self, folder: &Path) -> Result<Self, ServersError> {
        if let Some(name) = OWN.into_iter().find(|name| !folder.join(name).is_file()) {
            return Err(ServersError::Incomplete { name, folder: folder.to_owned() });
        }
        Ok(Self { own: Some(folder.to_owned()), ..self.clone() })
    }

    /// One of the project's programs: where [`Programs::find`] finds it, unless they are those of another build.
    pub(crate) fn find_own(
        &self,
        name: &str,
        variable: &'static str,
        advice: &'static str,
    ) -> Result<PathBuf, ServersError> {
        match &self.own {
            Some(folder) => Ok(folder.join(name)),
            None => self.find(name, variable, advice),
        }
    }

    /// Looked for where the variable says, beside the harness, and on the path.
    pub(crate) fn find(
        &self,
        name: &str,
        variable: &'static str,
        advice: &'static str,
    ) -> Result<PathBuf, ServersError> {
        let missing = || ServersError::Missing { name: name.to_owned(), variable, advice };
        let said = std::env::var_os(variable).filter(|path| !path.is_empty());
        let beside = self.loadtest.with_file_name(name);
        let (first, name) = match said {
            Some(path) => (PathBuf::from(&path), path),
            None => (beside, name.into()),
        };
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&paths).map(|folder| folder.join(&name));
        [first].into_iter().chain(folders).find(|path| path.is_file()).ok_or_else(missing)
    }

    /// A command that runs another, tied to this process.
    pub(crate) fn command(&self, program: &Path, cpu: Option<usize>) -> Command {
        let mut command = Command::new(&self.loadtest);
        command.args(["tied", "--parent", &std::process::id().to_string()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command.arg("--").arg(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        // A terminal interrupts all of a group. It is for this process to end the others, and in order.
        command.process_group(0);
        command
    }

    pub(crate) fn loadtest(&self) -> &Path {
        &self.loadtest
    }
}

impl Program {
    pub(crate) fn start(programs: &Programs, start: Start<'_>) -> Result<Self, ServersError> {
        let Start { name, program, arguments, cpu } = start;
        let mut command = programs.command(program, cpu);
        command.args(arguments);
        // Settings that were meant for other runs of these programs.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("HELIO_") {
                command.env_remove(variable);
            }
        }
        let failed = |cause| ServersError::Start { name: name.to_owned(), cause };
        let mut child = command.spawn().map_err(failed)?;
        let log = Arc::new(Log::default());
        if let Some(output) = child.stdout.take() {
            tokio::spawn(follow(output, log.clone()));
        }
        if let Some(output) = child.stderr.take() {
            tokio::spawn(follow(output, log.clone()));
        }
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Some programs end when it is closed.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for a line of which something can be made.
    pub(crate) async fn printed<T>(
        &mut self,
        what: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ServersError> {
        let log = self.log.clone();
        let mut changes = log.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = log.find(&read) {
                    return found;
                }
                // The sender is our own.
                let _ = changes.changed().await;
            }
        };
        self.before_it_ends(what, found).await
    }

    /// Waits until this is so.
    pub(crate) async fn is(
        &mut self,
        what: &'static str,
        condition: impl AsyncFn() -> bool,
    ) -> Result<(), ServersError> {
        let met = async {
            while !condition().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        self.before_it_ends(what, met).await
    }

    /// Sees to it that it ends.
    pub(crate) async fn stop(&mut self, stop: Stop) -> Result<(), ServersError> {
        self.end(stop, GRACE).await
    }

    /// Asks it to end, which takes it this time and a little.
    pub(crate) async fn drain(&mut self, time: Duration) -> Result<(), ServersError> {
        self.end(Stop::Ask, time + GRACE).await
    }

    async fn end(&mut self, stop: Stop, grace: Duration) -> Result<(), ServersError> {
        if stop == Stop::Ask {
            if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                // It may have ended already.
                let _ = kill_process(pid, Signal::TERM);
            }
            if tokio::time::timeout(grace, self.child.wait()).await.is_ok() {
                return Ok(());
            }
        }
        let failed = |cause| ServersError::Start { name: self.name.clone(), cause };
        self.child.kill().await.map_err(failed)
    }

    async fn before_it_ends<T>(
        &mut self,
        what: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, ServersError> {
        tokio::select! {
            done = future => Ok(done),
            _ = self.child.wait() => {
                // What it said of it may still be on its way.
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(ServersError::Ended { name: self.name.clone(), line: self.log.last() })
            }
            () = tokio::time::sleep(STARTUP_TIMEOUT) => {
                Err(ServersError::Late { name: self.name.clone(), what, line: self.log.last() })
            }
        }
    }
}

impl Log {
    fn find<T>(&self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let lines = self.lines.lock();
        lines.iter().find_map(|line| read(line))
    }

    fn last(&self) -> String {
        let lines = self.lines.lock();
        lines.back().cloned().unwrap_or_else(|| "nothing".to_owned())
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() >= KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
        drop(lines);
        self.changed.send_replace(());
    }
}

/// Reads on for as long as the program prints: one that cannot would stop.
async fn follow(output: impl AsyncRead + Unpin, log: Arc<Log>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        log.push(line);
    }
}

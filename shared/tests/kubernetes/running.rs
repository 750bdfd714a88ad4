use super::lifeline;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// A program that is killed when this is dropped, or when the tests are killed.
pub(crate) struct Running {
    id: u32,
    end: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        lifeline::tie(&mut command);
        let ((started, id), (end, ended)) = (mpsc::channel(), mpsc::channel());
        // The kernel ends it with the thread that started it, and a server may be shared by tests of several threads.
        let keeper = thread::spawn(move || {
            let mut child = command.spawn().unwrap();
            started.send(child.id()).unwrap();
            let _ = ended.recv();
            let _ = child.kill();
            let _ = child.wait();
        });
        Self { id: id.recv().unwrap(), end: Some(end), keeper: Some(keeper) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        assert!(kill.arg(format!("-{name}")).arg(self.id.to_string()).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.keeper.take().map(JoinHandle::join);
    }
}

/// One of the two programs, whose words go to a file of its name.
pub(super) fn program(name: &str, folder: &Path) -> Command {
    let mut command = match assets() {
        Some(assets) => Command::new(Path::new(&assets).join(name)),
        None => {
            let path = std::env::var("KUBERNETES").expect(
                "KUBERNETES is to name the program whose path `scripts/tools kubernetes` prints",
            );
            let mut command = Command::new(path);
            command.arg(name);
            command
        }
    };
    let log = File::create(folder.join(format!("{name}.log"))).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command
}

pub(super) fn etcd(folder: &Path, port: u16, peer_port: u16) -> Command {
    let mut command = program("etcd", folder);
    let data = folder.join("etcd");
    if assets().is_none() {
        command.arg(data).args([port.to_string(), peer_port.to_string()]);
        return command;
    }
    let [clients, peers] = [port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
    command.arg("--data-dir").arg(data).arg("--unsafe-no-fsync").args([
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
    ]);
    command
}

/// Where the programs are as tests of other projects have them, too.
fn assets() -> Option<String> {
    std::env::var("KUBEBUILDER_ASSETS").ok().filter(|folder| !folder.is_empty())
}

use super::certificates::Certificates;
use super::{Launch, Program, Programs, ServersError, Start, version};
use crate::drive::PeerDriver;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use tokio::process::ChildStdin;

/// The program over go-control-plane.
#[derive(Debug)]
pub(super) struct Peer {
    program: Program,
    path: PathBuf,
    ads: String,
    tls: bool,
    /// It ends when this is closed.
    _stdin: Option<ChildStdin>,
}

/// The addresses that it prints once it listens.
#[derive(Deserialize)]
struct Addresses {
    ads: String,
    control: String,
}

impl Peer {
    pub(super) async fn start(
        launch: Launch,
        count: usize,
        programs: &Programs,
        cpu: Option<usize>,
        certificates: Option<&Certificates>,
    ) -> Result<(Self, PeerDriver), ServersError> {
        let (name, cache) = match launch {
            Launch::SnapshotCachePerClient => ("snapshot-cache-per-client", "snapshot-per-client"),
            Launch::LinearCache => ("linear-cache", "linear"),
            Launch::SnapshotCache | Launch::Heliograph => ("snapshot-cache", "snapshot"),
        };
        if count > 1 {
            return Err(ServersError::Single(name));
        }
        let advice = "`scripts/tools peer` builds it and prints where it is";
        let path = programs.find("peer", "PEER", advice)?;
        let mut arguments = ["--cache", cache].map(OsStr::new).to_vec();
        // It does not ask clients who they are, which saves it their certificates.
        if let Some(Certificates { server, .. }) = certificates {
            arguments.extend([OsStr::new("--tls-certificate"), server.certificate.as_os_str()]);
            arguments.extend([OsStr::new("--tls-key"), server.key.as_os_str()]);
        }
        let start = Start { name, program: &path, arguments, cpu };
        let mut program = Program::start(programs, start)?;
        let stdin = program.take_stdin();
        let addresses = |line: &str| serde_json::from_str::<Addresses>(line).ok();
        let Addresses { ads, control } = program.printed("it listens", addresses).await?;
        let mut driver = PeerDriver::new(&control)?;
        driver.ready().await?;
        let tls = certificates.is_some();
        Ok((Self { program, path, ads, tls, _stdin: stdin }, driver))
    }

    pub(super) fn address(&self) -> String {
        super::url(self.tls, &self.ads)
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    pub(super) async fn versions(&self) -> BTreeMap<String, String> {
        let version = version(&self.path).await;
        version.map(|version| ("go-control-plane".to_owned(), version)).into_iter().collect()
    }
}

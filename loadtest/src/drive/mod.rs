//! Drivers make the changes that clients wait for: each passes them to the servers under test in one way.

mod files;
mod manifests;
mod peer;
mod store;

pub use files::FilesDriver;
pub use peer::PeerDriver;
pub use store::StoreDriver;

use crate::workload::{Update, Workload};

/// Makes the changes of a workload where the servers under test look for them.
#[derive(Debug)]
pub enum Driver {
    /// In Redis, as a translator would.
    Store(StoreDriver),
    /// In a directory that a translator or `helio standalone` reads.
    Files(FilesDriver),
    /// In the memory of the go-control-plane program.
    Peer(PeerDriver),
    /// Nowhere: others make the changes.
    None,
}

/// How much is known of what a server is given to serve, and so how far its responses can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// The snapshots, and at which heads they are: the nonces of our server carry them.
    Heads,
    /// The snapshots and their order.
    Contents,
    /// Nothing: others work out the resources.
    Nothing,
}

/// Each says what to do, in one line.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Open(#[from] heliograph_store::redis::StoreOpenError),
    #[error("the store does not take it: {0}")]
    Store(#[from] heliograph_store::StoreError),
    #[error("cannot write {path}: {cause}; choose a directory that you may write to")]
    File { path: std::path::PathBuf, cause: std::io::Error },
    #[error(
        "{path} has files that are not of an earlier run, for example {found}: choose an empty directory"
    )]
    NotOurs { path: std::path::PathBuf, found: String },
    #[error("{0:?} is no address of a control port: write http://HOST:PORT, as the peer prints it")]
    Address(String),
    #[error("the peer's control port at {address} does not answer: {cause}; is it running?")]
    Peer { address: String, cause: String },
    #[error("the peer refused {path}: {status} {text}")]
    Refused { path: &'static str, status: u16, text: String },
    #[error("the peer serves one fleet, not {0}: use a scenario with one, or another driver")]
    Fleets(usize),
    #[error("files can not say {0}: use another driver")]
    Unsupported(&'static str),
}

impl Driver {
    /// Publishes everything as it is before the first change. Afterwards the workload's heads are those that the servers
    /// will get, as far as they can be known.
    pub async fn set_up(&mut self, workload: &mut Workload) -> Result<(), DriveError> {
        match self {
            Self::Store(store) => store.set_up(workload).await,
            Self::Files(files) => files.set_up(workload).await,
            Self::Peer(peer) => peer.set_up(workload).await,
            Self::None => Ok(()),
        }
    }

    /// Makes a change, in the workload and for the servers. When this returns, they have received it.
    pub async fn change(
        &mut self,
        workload: &mut Workload,
        update: Update,
    ) -> Result<(), DriveError> {
        match self {
            Self::Store(store) => store.change(workload, update).await,
            Self::Files(files) => files.change(workload, update).await,
            Self::Peer(peer) => peer.change(workload, update).await,
            Self::None => Ok(()),
        }
    }

    pub fn knowledge(&self) -> Knowledge {
        match self {
            Self::Store(_) => Knowledge::Heads,
            Self::Peer(_) => Knowledge::Contents,
            Self::Files(_) | Self::None => Knowledge::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;

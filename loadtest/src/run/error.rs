use crate::drive::DriveError;
use crate::servers::ServersError;
use heliograph_report::SampleError;
use std::time::Duration;

/// Why a run did not go on, in one line.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error("no client has got anything from the servers: {0}")]
    NoServer(String),
    #[error(
        "within {within:?} {lacking} of {clients} clients did not get what they should: {missing}"
    )]
    Unsettled { within: Duration, lacking: usize, clients: usize, missing: String },
    #[error(
        "within {within:?} the streams did not even out: {} servers have {streams:?} for {clients} clients",
        streams.len()
    )]
    Uneven { within: Duration, streams: Vec<u64>, clients: usize },
    #[error("{opened} streams were opened in one second, and {most} are a storm")]
    Storm { opened: u64, most: u64 },
    #[error("a process of clients cannot be started: {0}")]
    Start(std::io::Error),
    #[error("a process of clients has failed: {0}")]
    Worker(String),
    #[error("a process of clients does not answer")]
    Silent,
    #[error("metrics cannot be served: {0}")]
    Metrics(String),
    #[error("{clients} clients need {needed} processes, and the run was begun with {processes}")]
    TooMany { clients: usize, needed: usize, processes: usize },
}

//! The messages between a coordinator and its workers: lines of JSON on stdin and stdout.

use crate::drive::Knowledge;
use crate::population::{Conduct, Group};
use crate::scenario::{Protocols, Share, Span};
use crate::security::Security;
use crate::workload::{Resources, Schedule, Update};
use heliograph_report::Figures;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerOrder {
    /// The first, and only once. Answered with [`WorkerMessage::Ready`].
    Begin(Box<Begin>),
    /// Clients are to connect until there are so many in all workers together, this worker's at so many a second.
    Connect {
        clients: usize,
        rate: Option<f64>,
    },
    /// Changes that will be made. Answered with [`WorkerMessage::Ready`]; before that none of them may be.
    Expect(Vec<Update>),
    /// When they are due.
    Schedule(Schedule),
    Reconnect {
        share: Share,
        over: Span,
    },
    Behave {
        share: Share,
        conduct: Conduct,
    },
    /// All servers that there are now.
    Servers(Vec<String>),
    /// From now on streams may end like that.
    Excuse(Excuse),
    /// Sends all figures now. Answered with [`WorkerMessage::Figures`], then [`WorkerMessage::Ready`].
    Tell,
    /// Answered with [`WorkerMessage::Done`], and then the worker ends. `check`: all clients have to have everything.
    Finish {
        check: bool,
    },
}

/// How streams may end by the server's doing without being errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Excuse {
    #[default]
    Nothing,
    /// A server says that it is not there for this client, and that others are.
    SentAway,
    /// Servers come and go.
    Anything,
}

/// Which client is in which worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    pub workers: usize,
    /// Clients from this one on, and no others, are in the last worker. A client that connects while others in its
    /// process are busy would wait for these, which has nothing to do with the server.
    pub newcomers: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Which worker this is, from 0 on.
    pub worker: usize,
    pub spread: Spread,
    pub servers: Vec<String>,
    pub security: Security,
    pub streams_per_connection: usize,
    pub protocols: Protocols,
    pub population: Vec<Group>,
    pub resources: Resources,
    pub fleets: usize,
    /// What clients say instead of the names of the workload's fleets.
    pub fleet: Option<String>,
    pub knowledge: Knowledge,
    /// The head of the first snapshots.
    pub base: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerMessage {
    Ready,
    /// As soon as it changed, more or less.
    Standing(ClientTotals),
    /// All since the start, now and then.
    Figures(Box<Figures>),
    /// Something that should not be, with an example of it. A few of each kind are reported.
    Trouble(StreamFailure),
    Violation(String),
    Done(Box<Figures>),
    /// The worker cannot go on.
    Failed(String),
}

/// Where the clients of a worker are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTotals {
    pub clients: usize,
    pub up: usize,
    /// Have had everything that a proxy needs, since they first connected.
    pub warm: usize,
    /// Are without something that they should have: a stream, everything at first, or a change.
    pub lacking: usize,
    /// How many streams were opened, and how many responses there were on them, since the start.
    pub opened: u64,
    pub responses: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFailure {
    pub text: String,
    /// It will be the same next time: the server is not there, or not one.
    pub lasting: bool,
}

impl Spread {
    pub fn worker_of(self, client: usize) -> usize {
        match self.newcomers {
            Some(first) if client >= first => self.workers - 1,
            _ => client % self.workers_of(client),
        }
    }

    /// How many workers share the clients to which this one belongs.
    pub fn workers_of(self, client: usize) -> usize {
        match self.newcomers {
            Some(first) if client >= first => 1,
            Some(_) => (self.workers - 1).max(1),
            None => self.workers,
        }
    }
}

impl ClientTotals {
    pub fn add(&mut self, other: &Self) {
        let Self { clients, up, warm, lacking, opened, responses } = other;
        self.clients += clients;
        self.up += up;
        self.warm += warm;
        self.lacking += lacking;
        self.opened += opened;
        self.responses += responses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_are_in_a_worker_of_their_own() {
        let workers_of = |spread: Spread| [0, 1, 2, 3, 4].map(|client| spread.worker_of(client));
        assert_eq!(workers_of(Spread { workers: 2, newcomers: None }), [0, 1, 0, 1, 0]);
        let apart = Spread { workers: 3, newcomers: Some(3) };
        assert_eq!(workers_of(apart), [0, 1, 0, 2, 2]);
        assert_eq!([0, 3].map(|client| apart.workers_of(client)), [2, 1]);
    }
}

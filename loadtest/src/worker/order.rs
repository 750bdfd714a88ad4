//! What a coordinator says to its workers and what they say to it: lines of JSON on stdin and stdout.

use crate::drive::Knowledge;
use crate::population::{Conduct, Group};
use crate::scenario::{Protocols, Share, Span};
use crate::security::Security;
use crate::workload::{Resources, Schedule, Update};
use heliograph_report::Figures;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first, and only once. Answered with [`Tiding::Ready`].
    Begin(Box<Begin>),
    /// Clients are to connect until there are so many in all workers together, this worker's at so many a second.
    Connect {
        clients: usize,
        rate: Option<f64>,
    },
    /// Changes that will be made. Answered with [`Tiding::Ready`]; before that none of them may be.
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
    /// From now on streams may end, or may not.
    Excuse(bool),
    /// Sends all figures now. Answered with [`Tiding::Figures`], then [`Tiding::Ready`].
    Tell,
    /// Answered with [`Tiding::Done`], and then the worker ends. `check`: all clients have to have everything.
    Finish {
        check: bool,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Which worker this is, from 0 on, and how many there are: client `n` is that of worker `n % workers`.
    pub worker: usize,
    pub workers: usize,
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
pub enum Tiding {
    Ready,
    /// As soon as it changed, more or less.
    Standing(Standing),
    /// All since the start, now and then.
    Figures(Box<Figures>),
    /// Something that should not be, with an example of it. A few of each kind are told.
    Trouble(Trouble),
    Violation(String),
    Done(Box<Figures>),
    /// The worker cannot go on.
    Failed(String),
}

/// Where the clients of a worker are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
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
pub struct Trouble {
    pub text: String,
    /// It will be the same next time: the server is not there, or not one.
    pub lasting: bool,
}

impl Standing {
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

use super::{Share, Span};
use crate::population::Conduct;
use crate::workload::{Reach, UpdateKind};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// One after the other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Step {
    Idle(Duration),
    Change {
        kind: UpdateKind,
        every: Duration,
        count: u32,
        reach: Reach,
    },
    Reconnect {
        share: Share,
        over: Duration,
    },
    Restart {
        how: Restart,
        pause: Duration,
    },
    AddServers(usize),
    /// Servers come or go until there are so many, and streams even out in time.
    Scale {
        to: usize,
        within: Duration,
        most_opened: Option<u64>,
    },
    Behave {
        conduct: Conduct,
        share: Share,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    OneByOne,
    AllAtOnce,
    /// One by one, and none is asked to end.
    Killed,
}

/// A step as it is written: one verb, and what belongs to it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Written {
    idle: Option<Span>,
    change: Option<UpdateKind>,
    every: Option<Span>,
    count: Option<u32>,
    reach: Option<Reach>,
    reconnect: Option<Share>,
    over: Option<Span>,
    restart_servers: Option<Restart>,
    pause: Option<Span>,
    add_servers: Option<usize>,
    scale_servers: Option<usize>,
    within: Option<Span>,
    most_opened: Option<u64>,
    behave: Option<Conduct>,
    share: Option<Share>,
}

const VERBS: &str =
    "idle, change, reconnect, restart-servers, add-servers, scale-servers or behave";

/// The default time for streams to even out.
const EVEN_WITHIN: Duration = Duration::from_secs(600);

impl TryFrom<Written> for Step {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { mut every, mut count, mut reach, mut over, mut pause, mut share, .. } =
            written;
        let Written { mut within, mut most_opened, scale_servers, .. } = written;
        let Written { idle, change, reconnect, restart_servers, add_servers, behave, .. } = written;
        let span = |span: Option<Span>| span.unwrap_or_default().0;
        let mut steps = Vec::new();
        steps.extend(idle.map(|idle| Self::Idle(idle.0)));
        steps.extend(change.map(|kind| Self::Change {
            kind,
            every: every.take().map_or(Duration::from_secs(1), |every| every.0),
            count: count.take().unwrap_or(1),
            reach: reach.take().unwrap_or_default(),
        }));
        steps.extend(reconnect.map(|share| Self::Reconnect { share, over: span(over.take()) }));
        let restart = |how| Self::Restart { how, pause: span(pause.take()) };
        steps.extend(restart_servers.map(restart));
        steps.extend(add_servers.map(Self::AddServers));
        steps.extend(scale_servers.map(|to| Self::Scale {
            to,
            within: within.take().map_or(EVEN_WITHIN, |within| within.0),
            most_opened: most_opened.take(),
        }));
        steps.extend(
            behave
                .map(|conduct| Self::Behave { conduct, share: share.take().unwrap_or(Share::ALL) }),
        );
        let left = [
            ("every", every.is_some()),
            ("count", count.is_some()),
            ("reach", reach.is_some()),
            ("over", over.is_some()),
            ("pause", pause.is_some()),
            ("share", share.is_some()),
            ("within", within.is_some()),
            ("most-opened", most_opened.is_some()),
        ];
        match (steps.pop(), steps.is_empty()) {
            (Some(step), true) => match left.into_iter().find(|(_, is_left)| *is_left) {
                Some((field, _)) => Err(format!("`{field}` does not belong to a step `{step}`")),
                None => Ok(step),
            },
            (Some(_), false) => Err(format!("a step is one of {VERBS}: write two steps")),
            (None, _) => Err(format!("a step is one of {VERBS}: this is none")),
        }
    }
}

/// As phases of a report are called.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(_) => f.write_str("idle"),
            Self::Change { kind, .. } => write!(f, "change {}", name_of(*kind)),
            Self::Reconnect { share, .. } => write!(f, "reconnect {share}"),
            Self::Restart { .. } => f.write_str("restart servers"),
            Self::AddServers(count) => write!(f, "add {count} servers"),
            Self::Scale { to, .. } => write!(f, "scale to {to} servers"),
            Self::Behave { conduct, share } => write!(f, "{share} {conduct}"),
        }
    }
}

fn name_of(kind: UpdateKind) -> &'static str {
    match kind {
        UpdateKind::Endpoint => "endpoint",
        UpdateKind::Route => "route",
        UpdateKind::Clusters => "clusters",
        UpdateKind::Full => "full",
    }
}

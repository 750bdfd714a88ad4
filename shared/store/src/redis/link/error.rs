//! Errors: for code that decides what to do, and for operators who repair the cause.

use super::url::Mode;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One line, which names the server, the reason and the remedy, and contains no secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LinkError {
    pub kind: LinkErrorKind,
    /// The command was or may have been sent and its reply is lost: it may have been obeyed or not.
    pub outcome_unknown: bool,
    message: Arc<str>,
}

/// A closed set, fit for the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkErrorKind {
    /// No server there, connection lost, no reply in time, still loading, between two masters.
    Unavailable,
    /// Wrong or missing user, password or credentials file.
    Auth,
    /// The certificates do not fit, or cannot be read.
    Tls,
    /// The server is a replica, or a master that lacks replicas: it serves reads only.
    ReadOnly,
    /// Redis has reached its `maxmemory`.
    OutOfMemory,
    /// Redis cannot write to its disk.
    DiskFull,
    /// The user may not do this.
    NoPermission,
    /// A reply that is an error for other reasons, or not what was asked for.
    Other,
}

/// An error, and what to do with the connection it came over.
pub(super) struct ClassifiedError {
    pub(super) error: LinkError,
    pub(super) connection: ConnectionAction,
}

/// The server that a connection was to be made to, for messages.
pub(super) struct ConnectTarget<'a> {
    pub(super) address: &'a (dyn fmt::Display + Sync),
    pub(super) is_sentinel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionAction {
    /// Nothing is wrong with it.
    Keep,
    /// It still answers, but a new one may lead to a better server: replace it as soon as there is one.
    Doubt,
    /// It is dead.
    Drop,
}

impl LinkErrorKind {
    pub const ALL: [Self; 8] = [
        Self::Unavailable,
        Self::Auth,
        Self::Tls,
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::DiskFull,
        Self::NoPermission,
        Self::Other,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::DiskFull => "disk_full",
            Self::NoPermission => "no_permission",
            Self::Other => "other",
        }
    }

    /// The remedy, where Redis' own error does not have it.
    fn advice(self, of_sentinel: bool) -> &'static str {
        match self {
            Self::Unavailable | Self::Other => "",
            Self::Auth if of_sentinel => {
                "; check --store-sentinel-username-file and --store-sentinel-password-file"
            }
            Self::Auth => "; check --store-username-file and --store-password-file",
            Self::Tls => "; check --store-ca, --store-cert and --store-key",
            Self::ReadOnly => "; point --store at the master, or use redis+sentinel://",
            Self::OutOfMemory => "; raise its maxmemory",
            Self::DiskFull => "; free or repair its disk",
            Self::NoPermission => "; grant it to the user with ACL SETUSER",
        }
    }
}

impl<'a> ConnectTarget<'a> {
    pub(super) fn server(address: &'a (dyn fmt::Display + Sync)) -> Self {
        Self { address, is_sentinel: false }
    }
}

impl fmt::Display for LinkErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl LinkError {
    /// Nothing was sent, so nothing happened.
    pub(super) fn before_sending(kind: LinkErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, outcome_unknown: false, message: message.to_string().into() }
    }

    /// The runtime is shutting down under us.
    pub(super) fn ended() -> Self {
        Self::before_sending(LinkErrorKind::Unavailable, "the program is ending")
    }

    /// The same reason, for a caller whose command was not sent.
    pub(super) fn not_sent(&self) -> Self {
        Self { outcome_unknown: false, ..self.clone() }
    }
}

/// An error while a connection was being made.
pub(super) fn of_connecting(error: &RedisError, target: &ConnectTarget<'_>) -> LinkError {
    let (kind, reason) = (kind_of(error), reason_of(error));
    let kind = match kind {
        // What rustls says comes as text only, and so does all that a node of a Cluster says.
        LinkErrorKind::Unavailable if is_about_certificates(&reason) => LinkErrorKind::Tls,
        LinkErrorKind::Unavailable if is_about_login(&reason) => LinkErrorKind::Auth,
        kind => kind,
    };
    LinkError { kind, outcome_unknown: false, message: away(target, kind, &reason) }
}

/// Nothing came back in time while a connection was being made.
pub(super) fn of_silence(target: &ConnectTarget<'_>, after: Duration) -> LinkError {
    let kind = LinkErrorKind::Unavailable;
    let reason = format!("no answer within {} ms", after.as_millis());
    LinkError { kind, outcome_unknown: false, message: away(target, kind, &reason) }
}

/// An error while a connection to `server` was in use.
pub(super) fn classify(error: &RedisError, server: &str, mode: Mode) -> ClassifiedError {
    let (kind, reason) = (kind_of(error), reason_of(error));
    let lost = is_lost(error);
    let connection = match kind {
        // A Cluster's connection is many; the others still work.
        _ if lost && mode == Mode::Cluster => ConnectionAction::Doubt,
        _ if lost => ConnectionAction::Drop,
        LinkErrorKind::Auth if mode != Mode::Cluster => ConnectionAction::Drop,
        LinkErrorKind::Auth | LinkErrorKind::Unavailable | LinkErrorKind::ReadOnly => {
            ConnectionAction::Doubt
        }
        _ => ConnectionAction::Keep,
    };
    // The client of a Cluster tries again by itself: what failed last is not all that happened.
    let repeated = mode == Mode::Cluster && connection == ConnectionAction::Doubt;
    let message = match (kind, error.kind()) {
        (LinkErrorKind::Unavailable | LinkErrorKind::Auth, _) => {
            away(&ConnectTarget::server(&server), kind, &reason)
        }
        (_, ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
            if mode != Mode::Cluster =>
        {
            format!(
                "Redis at {server} is a Cluster: the URL of --store must begin with redis+cluster"
            )
            .into()
        }
        _ => format!("Redis at {server} refused: {reason}{}", kind.advice(false)).into(),
    };
    ClassifiedError {
        error: LinkError { kind, outcome_unknown: lost || repeated, message },
        connection,
    }
}

fn away(target: &ConnectTarget<'_>, kind: LinkErrorKind, reason: &str) -> Arc<str> {
    let ConnectTarget { address, is_sentinel } = target;
    let who = if *is_sentinel { "the Sentinel" } else { "Redis" };
    format!("{who} at {address} is away: {reason}{}", kind.advice(*is_sentinel)).into()
}

/// Whether the reply is lost, and the connection with it.
fn is_lost(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client | ErrorKind::ClusterConnectionNotFound
    )
}

fn kind_of(error: &RedisError) -> LinkErrorKind {
    match error.kind() {
        ErrorKind::AuthenticationFailed => LinkErrorKind::Auth,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain => LinkErrorKind::Unavailable,
            ServerErrorKind::ReadOnly => LinkErrorKind::ReadOnly,
            ServerErrorKind::NoPerm => LinkErrorKind::NoPermission,
            // A command that a script may not call has an error without a code.
            ServerErrorKind::ResponseError
                if error
                    .detail()
                    .is_some_and(|text| text.contains("user executing the script")) =>
            {
                LinkErrorKind::NoPermission
            }
            _ => LinkErrorKind::Other,
        },
        ErrorKind::Extension => match error.code() {
            Some("NOAUTH" | "WRONGPASS") => LinkErrorKind::Auth,
            Some("OOM") => LinkErrorKind::OutOfMemory,
            Some("MISCONF") => LinkErrorKind::DiskFull,
            Some("NOREPLICAS") => LinkErrorKind::ReadOnly,
            Some("UNBLOCKED" | "DENIED" | "BUSY") => LinkErrorKind::Unavailable,
            _ => LinkErrorKind::Other,
        },
        ErrorKind::RESP3NotSupported | ErrorKind::UnexpectedReturnType => LinkErrorKind::Other,
        _ => LinkErrorKind::Unavailable,
    }
}

fn reason_of(error: &RedisError) -> String {
    let reason = match error.kind() {
        ErrorKind::RESP3NotSupported => "it is older than Redis 7.0, which is required".to_owned(),
        ErrorKind::Io if error.is_timeout() => "no reply in time".to_owned(),
        ErrorKind::Io if error.is_connection_dropped() && !error.is_connection_refusal() => {
            format!("the connection was closed ({error})")
        }
        _ => error.to_string(),
    };
    // A reply may hold line breaks; a log line must not.
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_about_certificates(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    reason.contains("certificate") || reason.contains("fatal alert")
}

fn is_about_login(reason: &str) -> bool {
    reason.contains("WRONGPASS") || reason.contains("NOAUTH")
}

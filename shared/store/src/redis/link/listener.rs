use super::connect::{self, Access};
use super::error::{self, ConnectTarget, LinkError, LinkErrorKind};
use super::settings::RedisSettings;
use super::state::BACKOFF;
use super::url::{Mode, ServerAddress};
use bytes::Bytes;
use heliograph_shared::failure_log::FailureLog;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// A channel that is listened to forever, whatever happens to the connection.
///
/// Messages get lost: those sent while the connection was broken, and those for which there was no room because the
/// reader was slow. So a message is a hint, and what it hints at has to be compared now and then anyway. A connection
/// that broke without a word is found out within the time that a reply may take plus the time that connecting may take.
#[derive(Debug)]
pub struct ChannelListener {
    events: mpsc::Receiver<ListenerEvent>,
    /// The one that connects; it ends with the listener.
    _task: JoinSet<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    Message(Bytes),
    /// From here on messages arrive again, or for the first time. What was sent before may have been missed.
    Subscribed,
}

/// How many messages wait for a slow reader.
const ROOM: usize = 256;
/// How many nodes of a Cluster may send us on to another.
const MOVES: usize = 4;

impl ChannelListener {
    pub(super) fn start(settings: RedisSettings, channel: String) -> Self {
        let (events, receiver) = mpsc::channel(ROOM);
        let mut task = JoinSet::new();
        task.spawn(listen(settings, channel, events));
        Self { events: receiver, _task: task }
    }

    /// The next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> ListenerEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends only with the runtime, and then no event follows.
            None => std::future::pending().await,
        }
    }
}

async fn listen(settings: RedisSettings, channel: String, events: mpsc::Sender<ListenerEvent>) {
    let mut failures: u32 = 0;
    let mut log = FailureLog::default();
    loop {
        match subscribe(&settings, &channel).await {
            Ok(subscription) => {
                log.worked();
                if events.send(ListenerEvent::Subscribed).await.is_err() {
                    return;
                }
                let since = Instant::now();
                subscription.relay(&settings, &events).await;
                failures =
                    if since.elapsed() < BACKOFF.longest { failures.saturating_add(1) } else { 0 };
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                // The link reports that Redis is unreachable; this reports errors that only a listener finds.
                let ours = matches!(error.kind, LinkErrorKind::NoPermission | LinkErrorKind::Other);
                if ours && log.failed(&error.kind) {
                    warn!("cannot subscribe to {channel}, so changes arrive later: {error}");
                }
            }
        }
        if failures > 0 {
            sleep(BACKOFF.jittered(failures, fastrand::f64())).await;
        }
    }
}

struct Subscription {
    connection: MultiplexedConnection,
    messages: mpsc::Receiver<Bytes>,
    /// The slot of the channel has moved to another node. Not among the messages, of which some are dropped.
    moved: Arc<Notify>,
}

impl Subscription {
    /// Until the connection is of no more use.
    async fn relay(mut self, settings: &RedisSettings, events: &mpsc::Sender<ListenerEvent>) {
        loop {
            let message = async {
                tokio::select! {
                    () = self.moved.notified() => None,
                    message = self.messages.recv() => message,
                }
            };
            match timeout(settings.response_timeout, message).await {
                Ok(Some(message)) => {
                    // Full: the reader has enough hints to wake up for.
                    let _ = events.try_send(ListenerEvent::Message(message));
                }
                Ok(None) => return,
                // Silent for long: does it still live?
                Err(_) => {
                    let ping = redis::cmd("PING");
                    let answer = ping.query_async::<Value>(&mut self.connection);
                    if !matches!(timeout(settings.connect_timeout, answer).await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

async fn subscribe(settings: &RedisSettings, channel: &str) -> Result<Subscription, LinkError> {
    let access = Access::read(settings).await?;
    let (sender, messages) = mpsc::channel(ROOM);
    let moved = Arc::new(Notify::new());
    let move_on = moved.clone();
    let sender: Arc<dyn AsyncPushSender> = Arc::new(move |push| keep(&sender, &move_on, push));
    let connection = match settings.mode() {
        Mode::Single | Mode::Sentinel => {
            let (mut connection, server) =
                connect::open_master(settings, &access, Some(sender)).await?;
            let command = command("SUBSCRIBE", channel);
            let answer = send(settings, &command, &mut connection, &server).await?;
            answer.map_err(|error| error::classify(&error, &server, settings.mode()).error)?;
            connection
        }
        Mode::Cluster => subscribe_shard(settings, &access, channel, sender).await?,
    };
    Ok(Subscription { connection, messages, moved })
}

/// Any node says which one has the channel, so no map of the Cluster is needed.
async fn subscribe_shard(
    settings: &RedisSettings,
    access: &Access,
    channel: &str,
    sender: Arc<dyn AsyncPushSender>,
) -> Result<MultiplexedConnection, LinkError> {
    let command = command("SSUBSCRIBE", channel);
    let mut reason = LinkError::before_sending(LinkErrorKind::Other, "--store names no server");
    for seed in &settings.servers {
        let mut server = seed.clone();
        for _ in 0..MOVES {
            let opened = connect::open_node(settings, access, &server, Some(sender.clone())).await;
            let mut connection = match opened {
                Ok(connection) => connection,
                Err(error) => {
                    reason = error;
                    break;
                }
            };
            let name = server.to_string();
            match send(settings, &command, &mut connection, &name).await? {
                Ok(()) => return Ok(connection),
                Err(error) => {
                    reason = error::classify(&error, &name, Mode::Cluster).error;
                    let Some(next) = moved_to(&error, &server) else { break };
                    server = next;
                }
            }
        }
    }
    Err(reason)
}

fn command(name: &str, channel: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(channel);
    command
}

/// The inner error is Redis' answer.
async fn send(
    settings: &RedisSettings,
    command: &Cmd,
    connection: &mut MultiplexedConnection,
    server: &str,
) -> Result<Result<(), RedisError>, LinkError> {
    let limit = settings.connect_timeout;
    match timeout(limit, command.query_async::<Value>(connection)).await {
        Ok(answer) => Ok(answer.map(|_| ())),
        Err(_) => Err(error::of_silence(&ConnectTarget::server(&server), limit)),
    }
}

/// A node that does not know its own host leaves it out; it is the one that was asked.
fn moved_to(error: &RedisError, asked: &ServerAddress) -> Option<ServerAddress> {
    let (server, _) = error.redirect_node()?;
    let (host, port) = server.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "?" => asked.host.clone(),
        host => host.to_owned(),
    };
    Some(ServerAddress { host, port })
}

/// Must not block; a message that does not fit is dropped.
fn keep(
    sender: &mpsc::Sender<Bytes>,
    moved: &Notify,
    push: PushInfo,
) -> Result<(), redis::aio::SendError> {
    match push.kind {
        PushKind::Message | PushKind::SMessage => {
            if let Some(Value::BulkString(message)) = push.data.into_iter().nth(1) {
                let _ = sender.try_send(message.into());
            }
        }
        PushKind::SUnsubscribe | PushKind::Unsubscribe => moved.notify_one(),
        // That the connection is lost is known by the end of the channel.
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn push(kind: PushKind) -> PushInfo {
        let data = [&b"channel"[..], b"message"].map(|part| Value::BulkString(part.to_vec()));
        PushInfo { kind, data: data.into() }
    }

    #[test]
    fn that_the_channel_has_moved_is_known_however_many_messages_wait() {
        let (sender, mut messages) = mpsc::channel(1);
        let moved = Notify::new();
        for kind in [PushKind::SMessage, PushKind::SMessage, PushKind::SUnsubscribe] {
            keep(&sender, &moved, push(kind)).unwrap();
        }
        assert_eq!(messages.try_recv().unwrap(), "message");
        assert!(messages.try_recv().is_err(), "there was no room");
        assert!(moved.notified().now_or_never().is_some());
    }
}

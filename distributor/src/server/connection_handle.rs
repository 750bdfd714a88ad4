use crate::load::{Ending, Owner};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Shared by a connection and its streams, to ask either of them to end. Each request of the connection carries it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Where the client is.
    address: SocketAddr,
    /// Whether a request has come.
    used: AtomicBool,
    /// How many calls were refused because their caller is unknown.
    refused: AtomicU32,
    /// Whose the connection is, once that is known.
    owner: OnceLock<Owner>,
    /// Notified when the next stream should go to another replica.
    reconnect_requested: Notify,
    /// Cancelled when the connection is asked to end.
    closed: CancellationToken,
    /// Cancelled when the streams must end.
    streams_ended: CancellationToken,
    /// Why; set once, before either is cancelled.
    ending: OnceLock<Ending>,
}

impl ConnectionHandle {
    pub(crate) fn of(address: SocketAddr) -> Self {
        let inner = Inner {
            address,
            used: AtomicBool::default(),
            refused: AtomicU32::default(),
            owner: OnceLock::default(),
            reconnect_requested: Notify::default(),
            closed: CancellationToken::default(),
            streams_ended: CancellationToken::default(),
            ending: OnceLock::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.inner.address
    }

    pub(crate) fn from(&self) -> IpAddr {
        self.inner.address.ip()
    }

    /// The owner of the connection, if it is known.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.inner.owner.get()
    }

    /// Whether this is the first owner.
    pub(crate) fn set_owner(&self, owner: Owner) -> bool {
        self.inner.owner.set(owner).is_ok()
    }

    pub(crate) fn used(&self) {
        self.inner.used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// A call is refused because its caller is unknown. Says how many were.
    pub(crate) fn refused(&self) -> u32 {
        self.inner.refused.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Asks the client to open its next stream on another connection, which may lead to another replica.
    pub(crate) fn request_reconnect(&self) {
        self.inner.reconnect_requested.notify_one();
    }

    /// For the connection: resolves when the client is to be asked to reconnect.
    pub(crate) async fn reconnect_requested(&self) {
        self.inner.reconnect_requested.notified().await;
    }

    /// Asks the connection to end.
    pub(crate) fn close(&self, ending: Ending) {
        let _ = self.inner.ending.set(ending);
        self.inner.closed.cancel();
    }

    /// For the connection: resolves when it is asked to end.
    pub(crate) async fn closed(&self) -> Ending {
        self.inner.closed.cancelled().await;
        self.inner.ending.get().copied().unwrap_or(Ending::Drain)
    }

    /// Ends the streams.
    pub(crate) fn end(&self, ending: Ending) {
        let _ = self.inner.ending.set(ending);
        self.inner.streams_ended.cancel();
    }

    /// For the streams: resolves when they end, with the status for their clients.
    pub(crate) async fn ended(&self) -> Status {
        self.inner.streams_ended.cancelled().await;
        Status::unavailable(self.inner.ending.get().map_or("connect again", |why| why.message()))
    }
}

/// For tests, which have no connections.
#[cfg(test)]
impl Default for ConnectionHandle {
    fn default() -> Self {
        Self::of((std::net::Ipv4Addr::LOCALHOST, 0).into())
    }
}

//! An index of the open streams, for pages.

use crate::identity::Caller;
use crate::view::{ClassHandle, ClientInfo};
use heliograph_distributor_protocol::{ClientState, Protocol, Rejection};
use heliograph_snapshot::FleetName;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// All streams whose clients have named a fleet that they may read. Clones are the same.
///
/// Streams share its lock when they come and go, and not while they are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// How many there have been.
    count: AtomicU64,
}

/// One stream and its client.
#[derive(Debug)]
pub(crate) struct Client {
    /// No other stream of this replica has it, and later streams have higher ones.
    pub(crate) number: u64,
    pub(crate) fleet: FleetName,
    pub(crate) info: ClientInfo,
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
    pub(crate) since: SystemTime,
    /// Never printed whole: it has what the client showed to prove who it is.
    caller: Caller,
    status: Mutex<StreamStatus>,
}

/// The fields that change while the stream is open. Only the stream itself and a page lock them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamStatus {
    /// `None` while the client waits for its fleet.
    pub(crate) client_state: Option<ClientState>,
    pub(crate) class_handle: ClassHandle,
    /// The last rejection that it sent.
    pub(crate) rejection: Option<Arc<Rejection>>,
}

/// A stream's own entry, which goes with it.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    clients: Clients,
    client: Arc<Client>,
}

impl Clients {
    pub(crate) fn join(
        &self,
        protocol: Protocol,
        fleet: FleetName,
        info: ClientInfo,
        caller: Caller,
        address: SocketAddr,
    ) -> ClientEntry {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (since, status) = (SystemTime::now(), Mutex::default());
        let client = Client { number, fleet, info, protocol, address, since, caller, status };
        let client = Arc::new(client);
        self.all().insert(number, client.clone());
        ClientEntry { clients: self.clone(), client }
    }

    /// The first few of those with higher numbers, in order.
    pub(crate) fn some_after(&self, number: u64, count: usize) -> Vec<Arc<Client>> {
        let all = self.all();
        let later = all.range((Excluded(number), Unbounded));
        later.take(count).map(|(_, client)| client.clone()).collect()
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.0.all.lock()
    }
}

impl Client {
    pub(crate) fn identity(&self) -> String {
        self.caller.identity().to_string()
    }

    pub(crate) fn status(&self) -> StreamStatus {
        self.current().clone()
    }

    fn current(&self) -> MutexGuard<'_, StreamStatus> {
        self.status.lock()
    }
}

impl ClientEntry {
    pub(crate) fn info(&self) -> &ClientInfo {
        &self.client.info
    }

    /// Updates what the page shows of the stream.
    pub(crate) fn at(&self, client_state: ClientState, class_handle: &ClassHandle) {
        let mut status = self.client.current();
        if !status.client_state.as_ref().is_some_and(|known| known.is(&client_state)) {
            status.client_state = Some(client_state);
        }
        if !status.class_handle.is(class_handle) {
            status.class_handle = class_handle.clone();
        }
    }

    pub(crate) fn rejected(&self, rejection: &Arc<Rejection>) {
        self.client.current().rejection = Some(rejection.clone());
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.clients.all().remove(&self.client.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        // With what an `Arc` and a place in the map take, that is less than 400 bytes. Names and labels are the
        // stream's own in any case.
        let of_the_stream_anyway = size_of::<ClientInfo>();
        let size = size_of::<Client>() - of_the_stream_anyway;
        assert!(size <= 256, "{size}");
    }
}

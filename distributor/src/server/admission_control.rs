use super::connection_handle::ConnectionHandle;
use super::read_progress::{OpenStreams, ReadProgress};
use crate::identity::Identity;
use crate::load::{
    Admission, Cause, Ending, LoadArgs, LoadMetrics, Owner, QuotaKey, ReceivePermit, ReceiveQuota,
    Refusal, RequestLimiter, SubscriptionPermit, SubscriptionQuota, Unauthenticated, Usage, age,
};
use crate::log_limit::LineLimit;
use futures::future::BoxFuture;
use heliograph_distributor_protocol::Allocation;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Applies the decisions of [`Admission`] to connections and streams: gives it the time, and counts and logs rejections.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    admission: Mutex<Admission>,
    unauthenticated: Mutex<Unauthenticated<ConnectionHandle>>,
    subscriptions: Arc<SubscriptionQuota>,
    setups: Semaphore,
    receiving: Arc<ReceiveQuota>,
    open_streams: OpenStreams,
    request_rate: u32,
    age: Duration,
    first_request_timeout: Duration,
    unpublished_timeout: Duration,
    send_timeout: Duration,
    drain_time: Duration,
    start: Instant,
    /// How many calls have waited until it was known whose they are.
    calls: AtomicU64,
    metrics: LoadMetrics,
    /// Limits the log lines of a replica that rejects thousands.
    lines: Mutex<BTreeMap<Refusal, LineLimit>>,
}

/// An admitted connection. When this is dropped, another connection may be admitted.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(crate) handle: ConnectionHandle,
    control: Arc<AdmissionControl>,
    /// Its number among the unauthenticated connections.
    number: u64,
    from: IpAddr,
}

/// The authentication of an admitted connection.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    control: Arc<AdmissionControl>,
    handle: ConnectionHandle,
    number: u64,
}

/// An admitted stream. When this is dropped, another stream may be admitted.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    control: Arc<AdmissionControl>,
    number: u64,
    read_progress: Arc<ReadProgress>,
    owner: Owner,
    was_set_up: AtomicBool,
}

/// How many times within the send timeout streams are checked for slow readers. A reader may have a part of it more.
const CHECKS: f64 = 4.0;

impl AdmissionControl {
    pub(crate) fn new(args: &LoadArgs, metrics: LoadMetrics) -> Self {
        let setups = match args.max_setups {
            0 => Semaphore::MAX_PERMITS,
            some => some.min(Semaphore::MAX_PERMITS),
        };
        Self {
            admission: Mutex::new(Admission::new(args)),
            unauthenticated: Mutex::new(Unauthenticated::new(args.max_unauthenticated)),
            subscriptions: SubscriptionQuota::new(args, metrics.clone()),
            setups: Semaphore::new(setups),
            receiving: ReceiveQuota::new(metrics.clone()),
            open_streams: OpenStreams::default(),
            request_rate: args.request_rate,
            age: args.connection_age,
            first_request_timeout: args.first_request_timeout,
            unpublished_timeout: args.unpublished_timeout,
            send_timeout: args.send_timeout,
            drain_time: args.drain_time.unwrap_or_default(),
            start: Instant::now(),
            calls: AtomicU64::default(),
            metrics,
            lines: Mutex::default(),
        }
    }

    pub(crate) fn drain_time(&self) -> Duration {
        self.drain_time
    }

    /// Admits a connection, or logs why not.
    pub(crate) fn connect(self: &Arc<Self>, address: SocketAddr) -> Option<ConnectionPermit> {
        let (from, handle) = (address.ip(), ConnectionHandle::of(address));
        let connected = self.admission().connect(from);
        let decided = connected.and_then(|()| {
            let mut waiting = self.unauthenticated();
            let entered = waiting.enter(from, self.start.elapsed(), handle.clone());
            self.metrics.unauthenticated(waiting.len());
            drop(waiting);
            entered.inspect_err(|_| self.admission().disconnect(from, None))
        });
        match decided {
            Ok((number, oldest)) => {
                if let Some(oldest) = oldest {
                    oldest.close(Ending::Unauthenticated);
                }
                Some(ConnectionPermit { handle, control: self.clone(), number, from })
            }
            Err(refusal) => {
                self.reject(refusal, &from);
                None
            }
        }
    }

    /// Assigns a connection to this identity. Fails with the status for the client, which is to connect again.
    fn authenticate(
        &self,
        handle: &ConnectionHandle,
        number: u64,
        identity: &Identity,
    ) -> Result<(), Status> {
        if handle.owner().is_some() {
            return Ok(());
        }
        let owner = Owner::new(identity, handle.from());
        let decided = self.admission().authenticate(&owner);
        match decided {
            Ok(()) if handle.set_owner(owner.clone()) => {
                self.forget_unauthenticated(number);
                Ok(())
            }
            // Another call of the connection was sooner.
            Ok(()) => {
                self.admission().release(&owner);
                Ok(())
            }
            Err(refusal) => {
                self.reject(refusal, &owner);
                handle.request_reconnect();
                Err(Status::unavailable(refusal.message()))
            }
        }
    }

    /// Admits a stream. Fails with the status for the client, which is to connect again.
    pub(crate) fn admit(
        self: &Arc<Self>,
        handle: &ConnectionHandle,
        identity: &Identity,
    ) -> Result<StreamPermit, Status> {
        let owner = match handle.owner() {
            // As nearly always: then it is kept once.
            Some(owner) if *owner == Owner::new(identity, handle.from()) => owner.clone(),
            _ => Owner::new(identity, handle.from()),
        };
        let decided = self.admission().open_stream(handle.from(), &owner, self.start.elapsed());
        match decided {
            Ok(()) => {
                let (number, read_progress) = self.open_streams.join(handle.clone(), self.start);
                let was_set_up = AtomicBool::new(false);
                Ok(StreamPermit { control: self.clone(), number, read_progress, owner, was_set_up })
            }
            Err(refusal) => {
                match refusal {
                    Refusal::Identity | Refusal::Namespace | Refusal::Rate => {
                        self.reject(refusal, &owner);
                    }
                    _ => self.reject(refusal, &handle.from()),
                }
                let is_full = matches!(
                    refusal,
                    Refusal::Streams | Refusal::Identity | Refusal::Namespace | Refusal::Drain
                );
                if is_full {
                    // Here it would be refused again, while another replica may have room.
                    handle.request_reconnect();
                }
                Err(Status::unavailable(refusal.message()))
            }
        }
    }

    /// How much is in use, and by which owners.
    pub(crate) fn usage(&self) -> Usage {
        let waiting = self.unauthenticated().usage();
        let kept = self.subscriptions.usage();
        self.admission().usage(waiting, self.receiving.usage(), kept)
    }

    pub(crate) fn streams(&self) -> usize {
        self.open_streams.len()
    }

    /// The connections of so many streams, chosen at random. They may be gone when they are asked to end.
    pub(crate) fn choose(&self, streams: usize) -> Vec<ConnectionHandle> {
        self.open_streams.choose(streams)
    }

    /// Closes connections whose clients do not read within the send timeout, if there is one.
    pub(crate) async fn close_slow_readers(self: Arc<Self>) -> Infallible {
        if self.send_timeout.is_zero() {
            return std::future::pending().await;
        }
        let mut ticker = interval(self.send_timeout.div_f64(CHECKS));
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticker.tick().await;
            self.open_streams.close_stalled(self.start.elapsed(), self.send_timeout);
        }
    }

    fn reject(&self, refusal: Refusal, whom: &dyn Display) {
        self.metrics.rejected_clients(refusal);
        if refusal == Refusal::Drain {
            return;
        }
        let mut lines = self.lines.lock();
        let allowed = lines.entry(refusal).or_default().allow(Instant::now());
        drop(lines);
        if let Some(suppressed) = allowed {
            let address = whom;
            tracing::warn!(%address, suppressed, "proxies are rejected: {}", refusal.message());
        }
    }

    fn forget_unauthenticated(&self, number: u64) {
        let mut waiting = self.unauthenticated();
        waiting.remove(number);
        self.metrics.unauthenticated(waiting.len());
    }

    fn unauthenticated(&self) -> MutexGuard<'_, Unauthenticated<ConnectionHandle>> {
        self.unauthenticated.lock()
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission.lock()
    }
}

impl ConnectionPermit {
    /// How long the client may leave something unread.
    pub(crate) fn send_timeout(&self) -> Duration {
        self.control.send_timeout
    }

    /// Resolves when the connection must go. To be waited for from its beginning.
    pub(crate) async fn wait_for_end(&self, stop: &CancellationToken) -> Ending {
        let silence = async {
            passed(self.control.first_request_timeout).await;
            if self.handle.is_used() {
                std::future::pending().await
            }
        };
        let drain = async {
            stop.cancelled().await;
            let turn =
                self.control.admission().drain_delay(self.control.drain_time, fastrand::f64());
            sleep(turn).await;
        };
        let ending = tokio::select! {
            () = silence => Ending::Silence,
            () = passed(age(self.control.age, fastrand::f64())) => Ending::Age,
            () = drain => Ending::Drain,
            ending = self.handle.closed() => ending,
        };
        self.control.metrics.ended(ending);
        ending
    }

    /// The same while nothing but the connection itself is known.
    pub(crate) async fn wait_for_early_end(&self) {
        let ending = self.handle.closed().await;
        self.control.metrics.ended(ending);
    }

    /// For the calls of the connection, once their caller is known.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication {
            control: self.control.clone(),
            handle: self.handle.clone(),
            number: self.number,
        }
    }
}

impl Authentication {
    pub(crate) fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    /// Counts so many bytes that a call has sent of which it is not known yet whose it is, in the place of what `permit` was for. Fails
    /// with the status for the client, which is to connect again.
    pub(crate) fn charge_call(
        &self,
        number: u64,
        permit: &mut Option<SubscriptionPermit>,
        bytes: usize,
    ) -> Result<(), Status> {
        let kept = [(QuotaKey::Call(number), bytes)];
        let owner = match self.handle.owner() {
            Some(owner) => owner.clone(),
            None => Owner::unauthenticated(self.handle.from()),
        };
        let charged = self.control.subscriptions.charge(permit, &owner, &kept, Cause::Client);
        charged.map_err(|_| {
            self.control.reject(Refusal::Receiving, &owner);
            Status::unavailable(Refusal::Receiving.message())
        })
    }

    /// A number for a call that waits.
    pub(crate) fn number(&self) -> u64 {
        self.control.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Assigns the connection to this identity. Fails with the status for the client if the identity has too many.
    pub(crate) fn succeeded(&self, identity: &Identity) -> Result<(), Status> {
        self.control.authenticate(&self.handle, self.number, identity)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.control.forget_unauthenticated(self.number);
        self.control.admission().disconnect(self.from, self.handle.owner());
    }
}

impl StreamPermit {
    /// Resolves when the stream must end, with the status for the client.
    pub(crate) fn ended(&self) -> BoxFuture<'static, Status> {
        let handle = self.read_progress.handle().clone();
        Box::pin(async move { handle.ended().await })
    }

    /// Where the client is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.read_progress.handle().address()
    }

    /// Records when the client reads.
    pub(crate) fn read_progress(&self) -> Arc<ReadProgress> {
        self.read_progress.clone()
    }

    /// How long the client may take to send its first request.
    pub(crate) fn first_request_timeout(&self) -> Duration {
        self.control.first_request_timeout
    }

    /// The limit on the requests of the client from now on.
    pub(crate) fn request_limiter(&self) -> RequestLimiter {
        RequestLimiter::new(self.control.request_rate, Instant::now())
    }

    /// Counts a client that sends more requests than it may.
    pub(crate) fn slowed(&self) {
        self.control.metrics.slowed();
    }

    /// The status for a client that sent more requests than it may for too long.
    pub(crate) fn flooded(&self) -> Status {
        self.control.reject(Refusal::Requests, &self.read_progress.handle().from());
        Status::resource_exhausted(Refusal::Requests.message())
    }

    /// Makes room for a request of so many bytes that begins to arrive, for as long as what is returned lives; a tiny one needs
    /// none. Fails with the status for the client, which is to connect again.
    pub(crate) fn receive(&self, bytes: usize) -> Result<Option<ReceivePermit>, Status> {
        let received = self.control.receiving.receive(&self.owner, bytes);
        received.map_err(|refusal| self.no_room(refusal))
    }

    /// All of it has arrived, and needs so many bytes while it is decoded. Returns the permit of a large one.
    pub(crate) fn received(
        &self,
        room: Option<ReceivePermit>,
        bytes: usize,
    ) -> Result<Option<ReceivePermit>, Status> {
        let Some(room) = room else { return Ok(None) };
        room.received(bytes).map_err(|refusal| self.no_room(refusal))
    }

    fn no_room(&self, refusal: Refusal) -> Status {
        self.control.reject(refusal, &self.owner);
        Status::unavailable(refusal.message())
    }

    /// How long the client may wait for a fleet that is not published. By chance, because those who wait for it came together.
    pub(crate) fn unpublished_timeout(&self) -> Duration {
        match self.control.unpublished_timeout {
            Duration::ZERO => Duration::MAX,
            timeout => age(timeout, fastrand::f64()),
        }
    }

    /// The status for a client that waited too long.
    pub(crate) fn unpublished(&self) -> Status {
        self.control.metrics.rejected_clients(Refusal::Unpublished);
        Status::unavailable(Refusal::Unpublished.message())
    }

    /// Counts what the stream keeps for names that its fleet does not have, in the place of what `permit` was for. Fails with the
    /// status for the client; then the stream is to end.
    pub(crate) fn charge_absent_memory(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        kept: &[(Allocation, usize)],
        cause: Cause,
    ) -> Result<(), Status> {
        let kept: Vec<_> =
            kept.iter().map(|(what, bytes)| (QuotaKey::Subscription(*what), *bytes)).collect();
        self.charge(permit, &kept, cause)
    }

    /// The same for so many bytes of requests of the stream that wait. There is one permit for them at a time.
    pub(crate) fn charge_waiting_request(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        bytes: usize,
    ) -> Result<(), Status> {
        self.charge(permit, &[(QuotaKey::Request(self.number), bytes)], Cause::Client)
    }

    fn charge(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        kept: &[(QuotaKey, usize)],
        cause: Cause,
    ) -> Result<(), Status> {
        let charged = self.control.subscriptions.charge(permit, &self.owner, kept, cause);
        charged.map_err(|refusal| {
            self.control.reject(refusal, &self.owner);
            Status::resource_exhausted(refusal.message())
        })
    }

    /// The stream has its part of `--admission-rate`, which is not given back when it ends.
    pub(crate) fn answered(&self) {
        self.was_set_up.store(true, Ordering::Relaxed);
    }

    /// Waits until the client may be sent its first configuration. Its turn lasts while it holds the permit: it must not
    /// hold it while it waits for something else, because others wait for the permit.
    pub(crate) async fn set_up(&self) -> Option<SemaphorePermit<'_>> {
        self.answered();
        // It is never closed.
        self.control.setups.acquire().await.ok()
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.control.open_streams.leave(self.number);
        let from = self.read_progress.handle().from();
        let was_set_up = self.was_set_up.load(Ordering::Relaxed);
        self.control.admission().close_stream(from, &self.owner, was_set_up);
    }
}

/// Resolves after that time; if it is zero, never.
async fn passed(time: Duration) {
    if time.is_zero() {
        std::future::pending().await
    }
    sleep(time).await;
}

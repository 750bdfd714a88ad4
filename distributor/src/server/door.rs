use super::pace::{Pace, Paces};
use super::tenure::Tenure;
use crate::identity::Identity;
use crate::load::{
    Allowance, Cause, Ending, Gate, Key, LoadArgs, LoadMetrics, Owner, ReceivePermit, ReceiveQuota,
    Refusal, SubscriptionPermit, SubscriptionQuota, Unauthenticated, Usage, age,
};
use crate::log_limit::LineLimit;
use futures::future::BoxFuture;
use heliograph_distributor_protocol::Allocation;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The gate at work: it is locked, told the time, and what it says is counted and logged.
#[derive(Debug)]
pub(crate) struct Door {
    gate: Mutex<Gate>,
    unauthenticated: Mutex<Unauthenticated<Tenure>>,
    subscriptions: Arc<SubscriptionQuota>,
    setups: Semaphore,
    receiving: Arc<ReceiveQuota>,
    paces: Paces,
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
    /// A replica that turns away thousands says so now and then.
    lines: Mutex<BTreeMap<Refusal, LineLimit>>,
}

/// A connection that was let in. Its place is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) tenure: Tenure,
    door: Arc<Door>,
    /// Among those of whom nobody knew who they were.
    number: u64,
    from: IpAddr,
}

/// How a connection that was let in becomes that of somebody.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    door: Arc<Door>,
    tenure: Tenure,
    number: u64,
}

/// A stream that was let in. Its place is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    door: Arc<Door>,
    number: u64,
    pace: Arc<Pace>,
    owner: Owner,
    was_set_up: AtomicBool,
}

/// How often they are looked at within the time that clients have to read. They may have a part more of it.
const LOOKS: f64 = 4.0;

impl Door {
    pub(crate) fn new(args: &LoadArgs, metrics: LoadMetrics) -> Self {
        let setups = match args.max_setups {
            0 => Semaphore::MAX_PERMITS,
            some => some.min(Semaphore::MAX_PERMITS),
        };
        Self {
            gate: Mutex::new(Gate::new(args)),
            unauthenticated: Mutex::new(Unauthenticated::new(args.max_unauthenticated)),
            subscriptions: SubscriptionQuota::new(args, metrics.clone()),
            setups: Semaphore::new(setups),
            receiving: ReceiveQuota::new(metrics.clone()),
            paces: Paces::default(),
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

    /// Lets a connection in, or says in the log why not.
    pub(crate) fn connect(self: &Arc<Self>, address: SocketAddr) -> Option<Visit> {
        let (from, tenure) = (address.ip(), Tenure::of(address));
        let connected = self.gate().connect(from);
        let decided = connected.and_then(|()| {
            let mut waiting = self.unauthenticated();
            let entered = waiting.enter(from, self.start.elapsed(), tenure.clone());
            self.metrics.unauthenticated(waiting.len());
            drop(waiting);
            entered.inspect_err(|_| self.gate().disconnect(from, None))
        });
        match decided {
            Ok((number, oldest)) => {
                if let Some(oldest) = oldest {
                    oldest.dismiss(Ending::Unauthenticated);
                }
                Some(Visit { tenure, door: self.clone(), number, from })
            }
            Err(refusal) => {
                self.turn_away(refusal, &from);
                None
            }
        }
    }

    /// A connection turns out to be of this one, or says what to tell its client, who is to come again.
    fn authenticate(
        &self,
        tenure: &Tenure,
        number: u64,
        identity: &Identity,
    ) -> Result<(), Status> {
        if tenure.owner().is_some() {
            return Ok(());
        }
        let owner = Owner::new(identity, tenure.from());
        let decided = self.gate().authenticate(&owner);
        match decided {
            Ok(()) if tenure.set_owner(owner.clone()) => {
                self.forget_unauthenticated(number);
                Ok(())
            }
            // Another call of the connection was sooner.
            Ok(()) => {
                self.gate().release(&owner);
                Ok(())
            }
            Err(refusal) => {
                self.turn_away(refusal, &owner);
                tenure.send_elsewhere();
                Err(Status::unavailable(refusal.message()))
            }
        }
    }

    /// Lets a stream in, or says what to tell its client, who is to come again.
    pub(crate) fn admit(
        self: &Arc<Self>,
        tenure: &Tenure,
        identity: &Identity,
    ) -> Result<Admitted, Status> {
        let owner = match tenure.owner() {
            // As nearly always: then it is kept once.
            Some(owner) if *owner == Owner::new(identity, tenure.from()) => owner.clone(),
            _ => Owner::new(identity, tenure.from()),
        };
        let decided = self.gate().open_stream(tenure.from(), &owner, self.start.elapsed());
        match decided {
            Ok(()) => {
                let (number, pace) = self.paces.join(tenure.clone(), self.start);
                let was_set_up = AtomicBool::new(false);
                Ok(Admitted { door: self.clone(), number, pace, owner, was_set_up })
            }
            Err(refusal) => {
                match refusal {
                    Refusal::Identity | Refusal::Namespace | Refusal::Rate => {
                        self.turn_away(refusal, &owner);
                    }
                    _ => self.turn_away(refusal, &tenure.from()),
                }
                let is_full = matches!(
                    refusal,
                    Refusal::Streams | Refusal::Identity | Refusal::Namespace | Refusal::Drain
                );
                if is_full {
                    // Here it would be refused again, while another replica may have room.
                    tenure.send_elsewhere();
                }
                Err(Status::unavailable(refusal.message()))
            }
        }
    }

    /// How much is taken, and by whom.
    pub(crate) fn usage(&self) -> Usage {
        let waiting = self.unauthenticated().taken();
        let kept = self.subscriptions.usage();
        self.gate().usage(waiting, self.receiving.usage(), kept)
    }

    pub(crate) fn streams(&self) -> usize {
        self.paces.len()
    }

    /// Connections with so many streams, chosen by chance. They may be gone when they are asked to leave.
    pub(crate) fn some(&self, streams: usize) -> Vec<Tenure> {
        self.paces.some(streams)
    }

    /// Gives up the clients that take nothing of what waits for them, unless they may leave it there for ever.
    pub(crate) async fn watch(self: Arc<Self>) -> Infallible {
        if self.send_timeout.is_zero() {
            return std::future::pending().await;
        }
        let mut look = interval(self.send_timeout.div_f64(LOOKS));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            self.paces.stall(self.start.elapsed(), self.send_timeout);
        }
    }

    fn turn_away(&self, refusal: Refusal, whom: &dyn Display) {
        self.metrics.turned_away(refusal);
        if refusal == Refusal::Drain {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = lines.entry(refusal).or_default().allow(Instant::now());
        drop(lines);
        if let Some(suppressed) = allowed {
            let address = whom;
            tracing::warn!(%address, suppressed, "proxies are turned away: {}", refusal.message());
        }
    }

    fn forget_unauthenticated(&self, number: u64) {
        let mut waiting = self.unauthenticated();
        waiting.remove(number);
        self.metrics.unauthenticated(waiting.len());
    }

    fn unauthenticated(&self) -> MutexGuard<'_, Unauthenticated<Tenure>> {
        self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// How long the client may leave something unread.
    pub(crate) fn send_timeout(&self) -> Duration {
        self.door.send_timeout
    }

    /// Resolves when the connection must go. To be waited for from its beginning.
    pub(crate) async fn departure(&self, stop: &CancellationToken) -> Ending {
        let silence = async {
            passed(self.door.first_request_timeout).await;
            if self.tenure.is_used() {
                std::future::pending().await
            }
        };
        let drain = async {
            stop.cancelled().await;
            let turn = self.door.gate().turn(self.door.drain_time, fastrand::f64());
            sleep(turn).await;
        };
        let ending = tokio::select! {
            () = silence => Ending::Silence,
            () = passed(age(self.door.age, fastrand::f64())) => Ending::Age,
            () = drain => Ending::Drain,
            ending = self.tenure.dismissed() => ending,
        };
        self.door.metrics.ended(ending);
        ending
    }

    /// The same while nothing but the connection itself is known.
    pub(crate) async fn early_departure(&self) {
        let ending = self.tenure.dismissed().await;
        self.door.metrics.ended(ending);
    }

    /// What is to be asked once it is known whose the connection is.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication { door: self.door.clone(), tenure: self.tenure.clone(), number: self.number }
    }
}

impl Authentication {
    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Counts so many bytes that a call has sent of which it is not known yet whose it is, in the place of what `permit` was for. Or
    /// says what to tell the client, who is to come again.
    pub(crate) fn keep_call(
        &self,
        number: u64,
        permit: &mut Option<SubscriptionPermit>,
        bytes: usize,
    ) -> Result<(), Status> {
        let kept = [(Key::Call(number), bytes)];
        let owner = match self.tenure.owner() {
            Some(owner) => owner.clone(),
            None => Owner::unauthenticated(self.tenure.from()),
        };
        let charged = self.door.subscriptions.charge(permit, &owner, &kept, Cause::Client);
        charged.map_err(|_| {
            self.door.turn_away(Refusal::Receiving, &owner);
            Status::unavailable(Refusal::Receiving.message())
        })
    }

    /// A number for a call that waits.
    pub(crate) fn number(&self) -> u64 {
        self.door.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// The connection is of this one, unless that has too many: then says what to tell it.
    pub(crate) fn succeeded(&self, identity: &Identity) -> Result<(), Status> {
        self.door.authenticate(&self.tenure, self.number, identity)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.door.forget_unauthenticated(self.number);
        self.door.gate().disconnect(self.from, self.tenure.owner());
    }
}

impl Admitted {
    /// Resolves when the stream must end, with what its client is told.
    pub(crate) fn over(&self) -> BoxFuture<'static, Status> {
        let tenure = self.pace.tenure().clone();
        Box::pin(async move { tenure.ended().await })
    }

    /// Where the client is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.pace.tenure().address()
    }

    /// Where it is noted what the client takes.
    pub(crate) fn pace(&self) -> Arc<Pace> {
        self.pace.clone()
    }

    /// How long the client may take to ask for something.
    pub(crate) fn first_request_timeout(&self) -> Duration {
        self.door.first_request_timeout
    }

    /// How much the client may ask from now on.
    pub(crate) fn allowance(&self) -> Allowance {
        Allowance::new(self.door.request_rate, Instant::now())
    }

    /// The client asks for more than it may.
    pub(crate) fn slowed(&self) {
        self.door.metrics.slowed();
    }

    /// It did so for too long. Says what to tell it.
    pub(crate) fn flooded(&self) -> Status {
        self.door.turn_away(Refusal::Requests, &self.pace.tenure().from());
        Status::resource_exhausted(Refusal::Requests.message())
    }

    /// Makes room for a request of so many bytes that begins to arrive, for as long as what is returned lives; a tiny one needs
    /// none. Or says what to tell the client, who is to come again.
    pub(crate) fn receive(&self, bytes: usize) -> Result<Option<ReceivePermit>, Status> {
        let received = self.door.receiving.receive(&self.owner, bytes);
        received.map_err(|refusal| self.no_room(refusal))
    }

    /// All of it has arrived, and takes so many bytes while it is decoded. What is returned is the room of a large one.
    pub(crate) fn received(
        &self,
        room: Option<ReceivePermit>,
        bytes: usize,
    ) -> Result<Option<ReceivePermit>, Status> {
        let Some(room) = room else { return Ok(None) };
        room.received(bytes).map_err(|refusal| self.no_room(refusal))
    }

    fn no_room(&self, refusal: Refusal) -> Status {
        self.door.turn_away(refusal, &self.owner);
        Status::unavailable(refusal.message())
    }

    /// How long the client may wait for a fleet that is not published. By chance, because those who wait for it came together.
    pub(crate) fn unpublished_timeout(&self) -> Duration {
        match self.door.unpublished_timeout {
            Duration::ZERO => Duration::MAX,
            timeout => age(timeout, fastrand::f64()),
        }
    }

    /// It did so for too long. Says what to tell it.
    pub(crate) fn unpublished(&self) -> Status {
        self.door.metrics.turned_away(Refusal::Unpublished);
        Status::unavailable(Refusal::Unpublished.message())
    }

    /// Counts what the stream keeps for names that its fleet does not have, in the place of what `permit` was for. Or says what to
    /// tell the client; then the stream is to end.
    pub(crate) fn keep(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        kept: &[(Allocation, usize)],
        cause: Cause,
    ) -> Result<(), Status> {
        let kept: Vec<_> =
            kept.iter().map(|(what, bytes)| (Key::Subscription(*what), *bytes)).collect();
        self.charge(permit, &kept, cause)
    }

    /// The same for so many bytes of requests of the stream that wait. There is one permit for them at a time.
    pub(crate) fn keep_request(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        bytes: usize,
    ) -> Result<(), Status> {
        self.charge(permit, &[(Key::Request(self.number), bytes)], Cause::Client)
    }

    fn charge(
        &self,
        permit: &mut Option<SubscriptionPermit>,
        kept: &[(Key, usize)],
        cause: Cause,
    ) -> Result<(), Status> {
        let charged = self.door.subscriptions.charge(permit, &self.owner, kept, cause);
        charged.map_err(|refusal| {
            self.door.turn_away(refusal, &self.owner);
            Status::resource_exhausted(refusal.message())
        })
    }

    /// The stream has its part of `--admission-rate`, which is not given back when it ends.
    pub(crate) fn answered(&self) {
        self.was_set_up.store(true, Ordering::Relaxed);
    }

    /// Waits until the client may be told its first configuration. It is its turn for as long as it holds what it gets:
    /// not while it waits for something else, because others wait for it.
    pub(crate) async fn set_up(&self) -> Option<SemaphorePermit<'_>> {
        self.answered();
        // It is never closed.
        self.door.setups.acquire().await.ok()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.door.paces.leave(self.number);
        let from = self.pace.tenure().from();
        let was_set_up = self.was_set_up.load(Ordering::Relaxed);
        self.door.gate().close_stream(from, &self.owner, was_set_up);
    }
}

/// Resolves after that time; if it is zero, never.
async fn passed(time: Duration) {
    if time.is_zero() {
        std::future::pending().await
    }
    sleep(time).await;
}

use super::conduct::{self, Conduct, FLOOD_TICK, GARBAGE_TICK, Rejection};
use super::lines::Lines;
use super::memo::Memo;
use super::place::{Follower, Place};
use super::seat::{Orders, Seat};
use super::{Backoff, Member, Observer};
use crate::request::Request;
use crate::wire::{Ended, Message, Pool, Server, Stream};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tonic::Code;

/// What all members of a crowd share.
pub(super) struct Inner<F, O> {
    servers: RwLock<(Arc<[Server]>, u64)>,
    seats: RwLock<Vec<Arc<Seat<F>>>>,
    lines: Lines,
    memo: Memo<F>,
    pool: Pool,
    backoff: Backoff,
    observer: Arc<O>,
}

/// One member on one stream.
struct Conversation<'a, F, O> {
    crowd: &'a Inner<F, O>,
    member: usize,
    seat: &'a Seat<F>,
    stream: Stream,
    place: Arc<Place<F>>,
    conduct: Conduct,
    rejection: Option<Arc<Rejection>>,
    /// When the conduct asks for something next.
    due: Option<Pin<Box<Sleep>>>,
    flood: f64,
    reads: bool,
    heard: bool,
}

impl<F: Follower, O: Observer<F>> Inner<F, O> {
    pub(super) fn new(
        servers: Vec<Server>,
        streams_per_connection: usize,
        backoff: Backoff,
        observer: Arc<O>,
    ) -> Self {
        Self {
            servers: RwLock::new((servers.into(), 0)),
            seats: RwLock::default(),
            lines: Lines::new(streams_per_connection),
            memo: Memo::default(),
            pool: Pool::default(),
            backoff,
            observer,
        }
    }

    /// A seat for a member, and its life.
    pub(super) fn admit(
        self: Arc<Self>,
        member: Member<F>,
    ) -> (usize, impl Future<Output = ()> + Send + 'static) {
        let Member { name, node, protocol, server, conduct, follower } = member;
        let servers = self.servers().1;
        let orders = Orders { conduct, server, servers, reconnects: 0, leaves: false };
        let place = self.memo.start(protocol, follower);
        let seat = Arc::new(Seat::new(name, node, orders, place));
        let number = {
            let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
            seats.push(seat.clone());
            seats.len() - 1
        };
        (number, async move { self.live(number, &seat).await })
    }

    pub(super) fn servers(&self) -> (Arc<[Server]>, u64) {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_servers(&self, servers: Vec<Server>) {
        let mut known = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        *known = (servers.into(), known.1 + 1);
    }

    pub(super) fn seats(&self, members: Range<usize>) -> Vec<Arc<Seat<F>>> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        let end = members.end.min(seats.len());
        seats.get(members.start..end).unwrap_or_default().to_vec()
    }

    pub(super) fn places(&self) -> usize {
        self.memo.places()
    }

    async fn live(&self, member: usize, seat: &Seat<F>) {
        let mut failures = 0_u32;
        let mut elsewhere = false;
        loop {
            let orders = seat.orders();
            if orders.leaves {
                return;
            }
            let Some(server) = self.choose(seat, &orders, elsewhere) else { return };
            let (ended, heard) = self.attend(member, seat, &server, &orders).await;
            self.observer.ended(member, &ended);
            elsewhere = false;
            if matches!(ended, Ended::Told) {
                continue;
            }
            // As Envoy, which begins anew once a server has answered.
            failures = if heard { 0 } else { failures.saturating_add(1) };
            let wait = self.backoff.wait(failures.saturating_sub(1));
            let sent_away = matches!(ended, Ended::Status { code: Code::Unavailable, .. });
            tokio::select! {
                () = told(seat, &orders) => {}
                () = tokio::time::sleep(wait) => elsewhere = !heard || sent_away,
            }
        }
    }

    /// The server that it was told; any, as a load balancer has it, if there are other servers than before, or if that one
    /// does not answer or sends clients away.
    fn choose(&self, seat: &Seat<F>, orders: &Orders, elsewhere: bool) -> Option<Server> {
        let (servers, list) = self.servers();
        if servers.is_empty() {
            return None;
        }
        let mut server = orders.server % servers.len();
        if elsewhere || orders.servers != list {
            server = fastrand::usize(..servers.len());
            seat.choose(server, list);
        }
        servers.get(server).cloned()
    }

    /// One stream, until it ends. Whether the server has said anything.
    async fn attend(
        &self,
        member: usize,
        seat: &Seat<F>,
        server: &Server,
        begun: &Orders,
    ) -> (Ended, bool) {
        let place = seat.place();
        // In a box, as it is large and soon over.
        let connecting = Box::pin(self.lines.stream(server, place.holdings().protocol(), || {
            self.observer.connected(member);
        }));
        let connected = tokio::select! {
            connected = connecting => connected,
            () = told(seat, begun) => Err(Ended::Told),
        };
        let (stream, line) = match connected {
            Ok(connected) => connected,
            Err(ended) => return (ended, false),
        };
        let mut conversation = Conversation {
            crowd: self,
            member,
            seat,
            stream,
            place,
            rejection: None,
            conduct: Conduct::Well,
            due: None,
            flood: 0.0,
            reads: true,
            heard: false,
        };
        conversation.behave(seat.orders().conduct);
        conversation.open().await;
        let ended = conversation.run(begun).await;
        drop(line);
        (ended, conversation.heard)
    }
}

impl<F: Follower, O: Observer<F>> Conversation<'_, F, O> {
    async fn open(&mut self) {
        let opening = self.crowd.memo.open(&self.place, Instant::now());
        self.stand(opening.to.clone());
        if self.conduct == Conduct::Garbage {
            self.stream.send_bytes(conduct::garbage(self.place.holdings()).into());
        } else {
            let mut introduction = Some((&*self.seat.node, &*self.seat.name));
            for request in &opening.requests {
                let bytes = self.stream.send(request, introduction.take());
                self.crowd.observer.asked(self.member, bytes, Instant::now());
            }
        }
        self.stream.flush().await;
    }

    async fn run(&mut self, begun: &Orders) -> Ended {
        loop {
            let due = async {
                match &mut self.due {
                    Some(due) => due.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.seat.ordered() => {
                    let orders = self.seat.orders();
                    if orders.is_to_end(begun) {
                        return Ended::Told;
                    }
                    if orders.conduct != self.conduct {
                        self.behave(orders.conduct);
                    }
                }
                () = due => {
                    if self.misbehave().await {
                        return Ended::Told;
                    }
                }
                message = self.stream.next(&self.crowd.pool), if self.reads => {
                    let taken = match message {
                        Ok(message) => self.take(message).await,
                        Err(ended) => Err(ended),
                    };
                    if let Err(ended) = taken {
                        return ended;
                    }
                }
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), Ended> {
        let now = Instant::now();
        self.heard = true;
        let rejection = self.rejection.as_ref();
        let step = self.crowd.memo.take(&self.place, &message, rejection, &self.seat.name, now);
        let step = step.map_err(|error| Ended::Unreadable(error.to_string()))?;
        let Some(step) = step else { return Ok(()) };
        self.crowd.observer.received(self.member, &step, message.length, now);
        self.stream.nonces().set(step.kind, &message.nonce);
        // The first one is the answer.
        let mut sent = step.requests.iter().map(|request| self.stream.send(request, None));
        let answer = sent.next().unwrap_or(0);
        for bytes in sent {
            self.crowd.observer.asked(self.member, bytes, now);
        }
        self.stream.flush().await;
        self.crowd.observer.answered(self.member, &step, answer, Instant::now());
        self.stand(step.to.clone());
        Ok(())
    }

    fn stand(&mut self, place: Arc<Place<F>>) {
        if !Arc::ptr_eq(&place, &self.place) {
            self.seat.stand(place.clone());
            self.place = place;
        }
    }

    fn behave(&mut self, conduct: Conduct) {
        self.rejection = conduct.rejection();
        self.due = conduct.begins().map(|after| Box::pin(tokio::time::sleep(after)));
        self.reads = true;
        self.conduct = conduct;
    }

    /// What the conduct asks for now. Whether that is to end the stream.
    async fn misbehave(&mut self) -> bool {
        match self.conduct {
            Conduct::Well | Conduct::Rejects { .. } => self.due = None,
            Conduct::StopsReading { .. } => (self.reads, self.due) = (false, None),
            Conduct::Reconnects { .. } => return true,
            Conduct::Floods { .. } => {
                let again = self.place.holdings().acknowledged();
                let again = Request::new(self.place.holdings().protocol(), again);
                for _ in 0..self.conduct.flood(&mut self.flood) {
                    // A server that does not read must not fill the memory of the client.
                    if self.stream.has_room_for(&again) {
                        let bytes = self.stream.send(&again, None);
                        self.crowd.observer.asked(self.member, bytes, Instant::now());
                    }
                }
                self.stream.flush().await;
                self.again_after(FLOOD_TICK);
            }
            Conduct::Garbage => {
                let bytes = conduct::garbage(self.place.holdings());
                self.stream.send_bytes(bytes.into());
                self.stream.flush().await;
                self.again_after(GARBAGE_TICK);
            }
        }
        false
    }

    fn again_after(&mut self, wait: Duration) {
        if let Some(due) = &mut self.due {
            due.as_mut().reset(tokio::time::Instant::now() + wait);
        }
    }
}

impl Orders {
    /// Whether they ask for more than those that a stream began with.
    fn is_to_end(&self, begun: &Self) -> bool {
        self.leaves || self.reconnects != begun.reconnects
    }
}

async fn told<F>(seat: &Seat<F>, begun: &Orders) {
    loop {
        seat.ordered().await;
        if seat.orders().is_to_end(begun) {
            return;
        }
    }
}

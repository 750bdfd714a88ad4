use super::admission_control::StreamPermit;
use super::connection::RECEIVE_WINDOW;
use super::early::receive_during;
use super::frames::Frames;
use crate::load::{NextRead, ReceivePermit, RequestLimiter};
use crate::view::NodeClaims;
use bytes::{Bytes, BytesMut};
use heliograph_distributor_protocol::{NodeFields, Protocol, Request, RequestError};
use http_body::Frame;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;
use tonic::body::Body;

/// A request as the stream needs it.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Unread. Some clients repeat it with every request, and only the first counts.
    pub(crate) node: Option<Bytes>,
    pub(crate) request: Request,
    /// The room that it takes, if it is large.
    pub(crate) room: Option<ReceivePermit>,
}

/// All that is kept of a node.
#[derive(Debug)]
pub(crate) struct NodeName {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) claims: NodeClaims,
}

/// The requests of one stream, in order.
pub(crate) struct Requests {
    protocol: Protocol,
    body: Body,
    frames: Frames,
    receiving: Option<Receiving>,
    request_limiter: RequestLimiter,
    stream_permit: Arc<StreamPermit>,
}

/// A request of which a part is there.
struct Receiving {
    room: Option<ReceivePermit>,
    /// When all of it must be there: until then it takes the room of others.
    deadline: Instant,
}

/// How long a request may take from its first byte to its last.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

impl Requests {
    pub(crate) fn new(protocol: Protocol, body: Body, stream_permit: Arc<StreamPermit>) -> Self {
        let (frames, request_limiter) = (Frames::default(), stream_permit.request_limiter());
        Self { protocol, body, frames, receiving: None, request_limiter, stream_permit }
    }

    /// The next request; `None` when the client says no more. Nothing is lost if this is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Option<Incoming>, Status> {
        self.wait_for_turn().await?;
        loop {
            if let Some(message) = self.frames.next()? {
                self.request_limiter.charge_request(message.len(), Instant::now());
                let (request, node) = Request::scan(self.protocol, message).map_err(refusal)?;
                let room = self.receiving.take().and_then(|receiving| receiving.room);
                let room = self.stream_permit.received(room, request.overhead())?;
                return Ok(Some(Incoming { node, request, room }));
            }
            match self.frame().await? {
                // Anything but data is trailers, which requests have no use for.
                Some(frame) => frame?.into_data().into_iter().for_each(|it| self.frames.push(it)),
                None if self.frames.is_empty() => return Ok(None),
                None => return Err(Status::internal("the stream ended within a request")),
            }
        }
    }
}

impl Requests {
    /// Charges the last request for the names that it was about, beyond its bytes.
    pub(crate) fn charge(&mut self, names: usize) {
        self.request_limiter.charge_names(names);
    }

    /// Waits for `work`, which may take long, and keeps `request` meanwhile. Data that the client sends in this time is
    /// received, and counts like `request`.
    pub(crate) async fn during<T>(
        &mut self,
        request: &Request,
        work: impl Future<Output = T>,
    ) -> Result<T, Status> {
        let (mut permit, stream_permit) = (None, &self.stream_permit);
        let charge =
            |bytes| stream_permit.charge_waiting_request(&mut permit, request.size() + bytes);
        // A copy, because the rest may be a small part of what was received with it.
        let early = BytesMut::from(&self.frames.take_rest()[..]);
        let (outcome, early) = receive_during(work, &mut self.body, early, charge).await?;
        self.frames.push(early);
        Ok(outcome)
    }

    /// The next piece of the body. A request needs room before more of it is read.
    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, Status>>, Status> {
        if self.receiving.is_none()
            && let Some(length) = self.frames.announced()
        {
            let room = self.stream_permit.receive(length)?;
            self.frames.accept();
            self.receiving = Some(Receiving { room, deadline: Instant::now() + RECEIVE_TIMEOUT });
        }
        let Some(Receiving { deadline, .. }) = self.receiving else {
            return Ok(self.body.frame().await);
        };
        // Boxed, because it is there for a moment, and the stream for long.
        let frame = Box::pin(timeout_at(deadline, self.body.frame())).await;
        frame.map_err(|_| Status::deadline_exceeded("a request was begun and not ended in time"))
    }

    /// Waits until the next request may be read. Data that the client sends meanwhile is not read, and once its window
    /// is full it can send no more.
    async fn wait_for_turn(&mut self) -> Result<(), Status> {
        // One that always has something to say must not keep the thread from the others.
        consume_budget().await;
        loop {
            match self.request_limiter.next_read(Instant::now()) {
                NextRead::Now => return Ok(()),
                NextRead::Never => return Err(self.stream_permit.flooded()),
                NextRead::At { time, first } => {
                    if first {
                        self.stream_permit.slowed();
                    }
                    // Boxed, because nearly no stream ever has one.
                    Box::pin(self.pause(time)).await?;
                }
            }
        }
    }

    /// Reads nothing until then, while HTTP/2 may keep a whole window.
    async fn pause(&mut self, until: Instant) -> Result<(), Status> {
        let mut permit = None;
        self.stream_permit.charge_waiting_request(&mut permit, RECEIVE_WINDOW as usize)?;
        sleep_until(until).await;
        Ok(())
    }
}

impl NodeName {
    pub(crate) fn read(node: &[u8]) -> Result<Self, Status> {
        let node = NodeFields::scan(node).map_err(|error| {
            Status::invalid_argument(format!("the node of this request cannot be read: {error}"))
        })?;
        let claims = NodeClaims::of(&node);
        Ok(Self { id: node.id.to_owned(), cluster: node.cluster.to_owned(), claims })
    }
}

/// Why a request ends its stream.
pub(crate) fn refusal(error: RequestError) -> Status {
    match error {
        RequestError::Malformed(_) => Status::invalid_argument(error.to_string()),
        RequestError::TooManyNames { .. }
        | RequestError::TooLong { .. }
        | RequestError::TooManyBytes { .. }
        | RequestError::TooManyAbsent { .. }
        | RequestError::TooManyDetails { .. }
        | RequestError::NodeTooLarge { .. } => Status::resource_exhausted(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::AdmissionControl;
    use super::super::connection_handle::ConnectionHandle;
    use super::*;
    use crate::identity::Identity;
    use crate::load::{LoadArgs, LoadMetrics};
    use futures::{FutureExt, stream};
    use http_body_util::StreamBody;
    use prometheus::Registry;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::task::coop::unconstrained;
    use tonic::Code;

    /// So many empty requests, which are there already.
    fn requests(count: usize, request_rate: u32) -> Requests {
        let metrics = LoadMetrics::register(&Registry::new(), &LoadArgs::DEFAULT).unwrap();
        let admission_control = Arc::new(AdmissionControl::new(
            &LoadArgs { request_rate, ..LoadArgs::DEFAULT },
            metrics,
        ));
        let stream_permit = Arc::new(
            admission_control.admit(&ConnectionHandle::default(), &Identity::Anybody).unwrap(),
        );
        let frame = Bytes::from_static(&[0; 5]);
        let frames = (0..count).map(move |_| Ok::<_, Infallible>(Frame::data(frame.clone())));
        Requests::new(
            Protocol::Delta,
            Body::new(StreamBody::new(stream::iter(frames))),
            stream_permit,
        )
    }

    /// An admitted stream that sends these bytes, and then nothing.
    fn half(admission_control: &Arc<AdmissionControl>, bytes: Vec<u8>) -> Requests {
        let stream_permit = Arc::new(
            admission_control.admit(&ConnectionHandle::default(), &Identity::Anybody).unwrap(),
        );
        let frames = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(bytes)))]);
        let body = StreamBody::new(futures::StreamExt::chain(frames, stream::pending()));
        Requests::new(Protocol::Delta, Body::new(body), stream_permit)
    }

    #[tokio::test(start_paused = true)]
    async fn large_requests_wait_for_each_other_and_small_ones_for_nobody() {
        let metrics = LoadMetrics::register(&Registry::new(), &LoadArgs::DEFAULT).unwrap();
        let admission_control = Arc::new(AdmissionControl::new(&LoadArgs::DEFAULT, metrics));
        // The largest that there may be: eight fill the room.
        let large = [0, 2, 0, 0, 0, 7];
        let mut halves: Vec<_> = (0..8).map(|_| half(&admission_control, large.into())).collect();
        for half in &mut halves {
            assert!(half.next().now_or_never().is_none());
        }
        let refused = half(&admission_control, large.into()).next().await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(half(&admission_control, vec![0; 5]).next().await.unwrap().is_some());
        // A client that leaves makes room, and so does one whose time is over.
        halves.pop();
        halves.push(half(&admission_control, large.into()));
        let late = halves[0].next().await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded);
        halves.remove(0);
        assert!(half(&admission_control, large.into()).next().now_or_never().is_none());
    }

    /// A request with names of one byte: 3 bytes each on the wire, and 56 more once they are decoded.
    #[tokio::test]
    async fn a_large_request_takes_the_room_of_what_it_becomes() {
        let metrics = LoadMetrics::register(&Registry::new(), &LoadArgs::DEFAULT).unwrap();
        let admission_control = Arc::new(AdmissionControl::new(&LoadArgs::DEFAULT, metrics));
        let request = |names: usize| {
            let message = [3 << 3 | 2, 1, b'a'].repeat(names);
            let length = (message.len() as u32).to_be_bytes();
            // In pieces, as they come from a network.
            let pieces = [&[0], &length[..], &message].concat();
            let pieces: Vec<_> = pieces.chunks(16 << 10).map(Bytes::copy_from_slice).collect();
            let frames = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            let body = Body::new(StreamBody::new(stream::iter(frames)));
            Requests::new(
                Protocol::Delta,
                body,
                Arc::new(
                    admission_control
                        .admit(&ConnectionHandle::default(), &Identity::Anybody)
                        .unwrap(),
                ),
            )
        };
        let taken = |incoming: &Incoming| incoming.room.as_ref().map(ReceivePermit::bytes);
        let small = request(32_000).next().await.unwrap().unwrap();
        assert_eq!(taken(&small), None, "so many that it was small on the wire");
        let mut all = Vec::new();
        let refused = loop {
            match request(200_000).next().await {
                Ok(incoming) => all.push(incoming.unwrap()),
                Err(status) => break status,
            }
        };
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(taken(&all[0]), Some(200_000 * 56));
        assert_eq!(all.len(), (256 << 20) / (200_000 * 56));
        drop(all);
        assert!(request(200_000).next().await.is_ok());
    }

    #[tokio::test]
    async fn a_stream_that_always_has_something_to_say_leaves_the_thread_to_others() {
        let mut requests = requests(100_000, 0);
        let other = Arc::new(AtomicBool::new(false));
        tokio::spawn({
            let other = other.clone();
            async move { other.store(true, Ordering::Relaxed) }
        });
        let mut read = 0;
        while !other.load(Ordering::Relaxed) {
            assert!(requests.next().await.unwrap().is_some(), "nobody else had a turn");
            read += 1;
        }
        assert!(read > 10, "{read}: but not after each");
    }

    /// While it is read slower, HTTP/2 keeps a window of each.
    #[tokio::test(start_paused = true)]
    async fn floods_that_are_read_slower_are_so_many_and_no_more() {
        let args = LoadArgs { request_rate: 10, ..LoadArgs::DEFAULT };
        let metrics = LoadMetrics::register(&Registry::new(), &args).unwrap();
        let admission_control = Arc::new(AdmissionControl::new(&args, metrics));
        let mut floods: Vec<_> =
            (0..200).map(|_| half(&admission_control, vec![0; 5 * 1000])).collect();
        let (mut waiting, mut refused) = (Vec::new(), 0);
        for flood in &mut floods {
            // A hundred at once, and then one that is not read yet.
            while unconstrained(flood.next()).now_or_never().is_some_and(|read| read.is_ok()) {}
            let mut next = Box::pin(unconstrained(flood.next()));
            match (&mut next).now_or_never() {
                None => waiting.push(next),
                Some(ended) => {
                    assert_eq!(ended.unwrap_err().code(), Code::ResourceExhausted);
                    refused += 1;
                }
            }
        }
        // 32 MiB for all streams of one client.
        assert_eq!((waiting.len(), refused), (128, 72));
        for next in waiting {
            assert!(next.await.unwrap().is_some(), "it is its turn");
        }
        assert_eq!(admission_control.usage().subscription_bytes.now, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_that_does_not_end_is_ended() {
        let mut requests = requests(usize::MAX, 10);
        let begun = Instant::now();
        let mut read = 0;
        let status = loop {
            match requests.next().await {
                Ok(_) => read += 1,
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("--request-rate"), "{status}");
        assert!((690..=710).contains(&read), "{read} at ten per second, and a hundred at first");
        assert!(begun.elapsed() < Duration::from_secs(62), "{:?}", begun.elapsed());
    }
}

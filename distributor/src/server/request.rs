use super::door::Admitted;
use super::frames::Frames;
use crate::load::{Allowance, Turn};
use crate::view::Claims;
use bytes::Bytes;
use heliograph_distributor_protocol::{Protocol, Request, RequestError};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;

/// A request as the stream needs it.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Unread. Some clients repeat it with every request, and only the first counts.
    pub(crate) node: Option<Bytes>,
    pub(crate) request: Request,
}

/// All that is kept of a node. A real Envoy sends 61 KB, most of it the list of its extensions.
#[derive(Debug)]
pub(crate) struct NodeName {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) claims: Claims,
}

/// The requests of one stream, in order.
pub(crate) struct Requests {
    protocol: Protocol,
    body: Body,
    frames: Frames,
    allowance: Allowance,
    admitted: Arc<Admitted>,
}

impl Requests {
    pub(crate) fn new(protocol: Protocol, body: Body, admitted: Arc<Admitted>) -> Self {
        let (frames, allowance) = (Frames::default(), admitted.allowance());
        Self { protocol, body, frames, allowance, admitted }
    }

    /// The next request; `None` when the client says no more. Nothing is lost if this is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Option<Incoming>, Status> {
        self.turn().await?;
        loop {
            if let Some(message) = self.frames.next()? {
                self.allowance.take(message.len(), Instant::now());
                let (request, node) = Request::scan(self.protocol, message).map_err(refusal)?;
                return Ok(Some(Incoming { node, request }));
            }
            match self.body.frame().await {
                // Anything but data is trailers, which requests have no use for.
                Some(frame) => frame?.into_data().into_iter().for_each(|it| self.frames.push(it)),
                None if self.frames.is_empty() => return Ok(None),
                None => return Err(Status::internal("the stream ended within a request")),
            }
        }
    }
}

impl Requests {
    /// Waits until the next request may be read. A client that says more than that is not heard meanwhile, and once its
    /// window is full it can say no more.
    async fn turn(&mut self) -> Result<(), Status> {
        // One that always has something to say must not keep the thread from the others.
        consume_budget().await;
        loop {
            match self.allowance.turn(Instant::now()) {
                Turn::Now => return Ok(()),
                Turn::Never => return Err(self.admitted.flooded()),
                Turn::At { time, first } => {
                    if first {
                        self.admitted.slowed();
                    }
                    // Boxed, because nearly no stream ever has one.
                    Box::pin(sleep_until(time)).await;
                }
            }
        }
    }
}

impl NodeName {
    pub(crate) fn read(node: Bytes) -> Result<Self, Status> {
        let node = Node::decode(node).map_err(|error| {
            Status::invalid_argument(format!("the node of this request cannot be read: {error}"))
        })?;
        let claims = Claims::of(&node);
        Ok(Self { id: node.id, cluster: node.cluster, claims })
    }
}

/// Why a request ends its stream.
pub(crate) fn refusal(error: RequestError) -> Status {
    match error {
        RequestError::Malformed(_) => Status::invalid_argument(error.to_string()),
        RequestError::TooManyNames { .. }
        | RequestError::TooLong { .. }
        | RequestError::TooManyBytes { .. } => Status::resource_exhausted(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Door;
    use super::super::tenure::Tenure;
    use super::*;
    use crate::load::{LoadArgs, LoadMetrics};
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use prometheus::Registry;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use tonic::Code;

    /// So many empty requests, which are there already.
    fn requests(count: usize, request_rate: u32) -> Requests {
        let metrics = LoadMetrics::register(&Registry::new()).unwrap();
        let door = Arc::new(Door::new(&LoadArgs { request_rate, ..LoadArgs::DEFAULT }, metrics));
        let admitted = Arc::new(door.admit(&Tenure::default()).unwrap());
        let frame = Bytes::from_static(&[0; 5]);
        let frames = (0..count).map(move |_| Ok::<_, Infallible>(Frame::data(frame.clone())));
        Requests::new(Protocol::Delta, Body::new(StreamBody::new(stream::iter(frames))), admitted)
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

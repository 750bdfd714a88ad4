use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Limits how many reviews run at once. Those that wait are served by turns: each address gets one before any gets another.
#[derive(Debug)]
pub(super) struct ReviewQueue(Mutex<Queue>);

/// One of the reviews that run at once, until it is dropped.
#[derive(Debug)]
pub(super) struct ReviewSlot(Arc<ReviewQueue>);

/// Too many wait already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A lane of the queue: an address, with its signed tokens apart from the others.
pub(super) type Lane = (IpAddr, bool);

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Lanes in which a review waits, the next first.
    order: VecDeque<Lane>,
    waiting: HashMap<Lane, VecDeque<oneshot::Sender<ReviewSlot>>>,
    count: usize,
}

/// How many may wait. A lane may have as many as there is room left, so there is always some for another.
const MOST_WAITING: usize = 4_000;

impl ReviewQueue {
    pub(super) fn new(at_once: usize) -> Arc<Self> {
        let queue =
            Queue { free: at_once, order: VecDeque::new(), waiting: HashMap::new(), count: 0 };
        Arc::new(Self(Mutex::new(queue)))
    }

    /// Resolves when it is its turn. Dropping the future before gives the turn up.
    pub(super) async fn wait(self: &Arc<Self>, lane: Lane) -> Result<ReviewSlot, Full> {
        let slot = {
            let mut queue = self.0.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Ok(ReviewSlot(self.clone()));
            }
            queue.join(lane)?
        };
        // A waiter is never dropped before its turn, since the queue lives as long as its waiters.
        slot.await.map_err(|_| Full)
    }

    fn give_back(self: &Arc<Self>) {
        let mut queue = self.0.lock();
        queue.free += 1;
        let next = queue.next();
        if next.is_some() {
            queue.free -= 1;
        }
        drop(queue);
        if let Some(next) = next {
            // If it is gone by now, the turn comes back and goes to another.
            let _ = next.send(ReviewSlot(self.clone()));
        }
    }
}

impl Queue {
    fn join(&mut self, lane: Lane) -> Result<oneshot::Receiver<ReviewSlot>, Full> {
        if !self.has_room(lane) {
            self.forget_those_who_left(lane);
            if !self.has_room(lane) {
                return Err(Full);
            }
        }
        if !self.waiting.contains_key(&lane) {
            self.order.push_back(lane);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.entry(lane).or_default().push_back(sender);
        self.count += 1;
        Ok(receiver)
    }

    fn has_room(&self, lane: Lane) -> bool {
        let own = self.waiting.get(&lane).map_or(0, VecDeque::len);
        own < MOST_WAITING.saturating_sub(self.count)
    }

    fn forget_those_who_left(&mut self, lane: Lane) {
        if let Some(waiting) = self.waiting.get_mut(&lane) {
            let before = waiting.len();
            waiting.retain(|waiter| !waiter.is_closed());
            self.count -= before - waiting.len();
        }
    }

    /// The next who still waits.
    fn next(&mut self) -> Option<oneshot::Sender<ReviewSlot>> {
        loop {
            let lane = self.order.pop_front()?;
            let Some(waiting) = self.waiting.get_mut(&lane) else { continue };
            let mut next = None;
            while let Some(waiter) = waiting.pop_front() {
                self.count -= 1;
                if !waiter.is_closed() {
                    next = Some(waiter);
                    break;
                }
            }
            if waiting.is_empty() {
                self.waiting.remove(&lane);
            } else {
                self.order.push_back(lane);
            }
            if next.is_some() {
                return next;
            }
        }
    }
}

impl Drop for ReviewSlot {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::BoxFuture;

    fn lane(last: u8) -> Lane {
        (IpAddr::from([192, 0, 2, last]), false)
    }

    /// One who waits, and has asked for its turn.
    fn waits(slots: &Arc<ReviewQueue>, lane: Lane) -> BoxFuture<'static, Result<ReviewSlot, Full>> {
        let slots = slots.clone();
        let mut waiting = async move { slots.wait(lane).await }.boxed();
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    fn comes(waiting: &mut BoxFuture<'static, Result<ReviewSlot, Full>>) -> Option<ReviewSlot> {
        waiting.now_or_never().map(Result::unwrap)
    }

    #[test]
    fn an_address_that_comes_new_waits_for_one_turn_of_others() {
        let slots = ReviewQueue::new(1);
        let first = slots.wait(lane(1)).now_or_never().unwrap().unwrap();
        let mut flood: Vec<_> = (0..100).map(|_| waits(&slots, lane(1))).collect();
        let (mut new, mut signed) = (waits(&slots, lane(2)), waits(&slots, (lane(1).0, true)));
        drop(first);
        assert!(comes(&mut new).is_none());
        drop(comes(&mut flood[0]).unwrap());
        drop(comes(&mut new).unwrap());
        drop(comes(&mut signed).unwrap());
        drop(comes(&mut flood[1]).unwrap());
    }

    #[test]
    fn so_many_at_once_and_no_more() {
        let slots = ReviewQueue::new(2);
        let both = [(); 2].map(|()| slots.wait(lane(1)).now_or_never().unwrap().unwrap());
        let mut third = waits(&slots, lane(3));
        drop(both);
        let third = comes(&mut third).unwrap();
        let fourth = slots.wait(lane(4)).now_or_never().unwrap().unwrap();
        drop(waits(&slots, lane(5)));
        drop((third, fourth));
        assert_eq!(slots.0.lock().free, 2);
        assert_eq!(slots.0.lock().count, 0);
    }

    #[test]
    fn who_left_keeps_nobody_waiting() {
        let slots = ReviewQueue::new(1);
        let first = slots.wait(lane(1)).now_or_never().unwrap().unwrap();
        let (gone, mut later) = (waits(&slots, lane(2)), waits(&slots, lane(3)));
        drop(gone);
        drop(first);
        // One who leaves with its turn gives it to the next.
        let mut last = waits(&slots, lane(4));
        let mut left = waits(&slots, lane(5));
        drop(comes(&mut later).unwrap());
        drop(last.as_mut().now_or_never());
        drop(last);
        drop(comes(&mut left).unwrap());
        let queue = slots.0.lock();
        assert!(queue.order.is_empty() && queue.waiting.is_empty() && queue.count == 0);
        assert_eq!(queue.free, 1);
    }

    #[test]
    fn there_is_room_to_wait_for_another_address() {
        let slots = ReviewQueue::new(1);
        let _first = slots.wait(lane(1)).now_or_never().unwrap().unwrap();
        let mut flood = Vec::new();
        for _ in 0..MOST_WAITING / 2 {
            flood.push(waits(&slots, lane(1)));
        }
        assert_eq!(slots.wait(lane(1)).now_or_never().unwrap().unwrap_err(), Full);
        let _new = waits(&slots, lane(2));
        flood.clear();
        let _again = waits(&slots, lane(1));
        assert_eq!(slots.0.lock().count, 2, "who left takes no room");
    }
}

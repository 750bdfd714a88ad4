//! Changes of routes wait where proxies have rejected routes of their namespace again and again. Each new route or content is
//! tried, and a rejected table delays the changes of all its routes until it is published without the cause. Without a
//! pause, a tenant that edits faster than proxies answer would keep the table rejected.

use heliograph_gateway::Event;
use heliograph_gateway::objects::ObjectKey;
use heliograph_shared::backoff::Backoff;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Delay {
    namespaces: BTreeMap<String, Rejections>,
    /// The last change of each object that waits.
    waiting: BTreeMap<ObjectKey, Event>,
}

/// The rejected tables that routes of one namespace caused lately.
#[derive(Clone, Copy, Debug)]
struct Rejections {
    count: u32,
    last: Instant,
    /// When one of them was last found to be the cause, beyond doubt.
    found: Option<Instant>,
}

/// The first pause is longer than it takes until a table is known to be rejected and is published without the cause.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(32));

/// After so long without a rejection a namespace has none, and has not offended.
const FORGOTTEN: Duration = Duration::from_secs(120);

impl Delay {
    /// Proxies rejected a table because of routes of this namespace, or there is no other explanation.
    pub(super) fn rejected(&mut self, namespace: &str, now: Instant) {
        let rejections = self.entry(namespace, now);
        (rejections.count, rejections.last) = (rejections.count.saturating_add(1), now);
        let pause = rejections.pause();
        if !pause.is_zero() {
            tracing::warn!(
                namespace,
                "proxies have rejected routes of this namespace {} times within minutes: \
                 its next changes of routes wait for {pause:?}",
                rejections.count
            );
        }
    }

    /// Proxies accept a table because something of this namespace is left out of it.
    pub(super) fn found(&mut self, namespace: &str, now: Instant) {
        self.entry(namespace, now).found = Some(now);
    }

    /// The namespaces of which something was found out lately.
    pub(super) fn offending(&self, now: Instant) -> impl Iterator<Item = &str> {
        let is_recent = move |it: &Rejections| it.found.is_some_and(|it| now < it + FORGOTTEN);
        self.namespaces.iter().filter(move |(_, it)| is_recent(it)).map(|(it, _)| it.as_str())
    }

    /// The changes to apply now: those that need not wait, and those that have waited long enough.
    pub(crate) fn admit(&mut self, events: Vec<Event>, now: Instant) -> Vec<Event> {
        self.namespaces
            .retain(|_, it| now < it.found.map_or(it.last, |at| at.max(it.last)) + FORGOTTEN);
        let mut admitted = Vec::new();
        for event in events {
            let key = event.key();
            match event {
                Event::Applied(_) if self.must_wait(&key, now) => {
                    self.waiting.insert(key, event);
                }
                _ => {
                    // What waited is outdated.
                    self.waiting.remove(&key);
                    admitted.push(event);
                }
            }
        }
        let namespaces = &self.namespaces;
        let is_over = |key: &ObjectKey| is_over(namespaces, key, now);
        let released = self.waiting.extract_if(.., |key, _| is_over(key));
        admitted.extend(released.map(|(_, event)| event));
        admitted
    }

    /// When a change has waited long enough, if any waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        let of = |key: &ObjectKey| self.namespaces.get(&*key.name.namespace);
        let over = self.waiting.keys().filter_map(of).map(|it| it.last + it.pause());
        over.min()
    }

    /// How many objects have a change that waits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All that wait.
    pub(crate) fn into_waiting(self) -> impl Iterator<Item = Event> {
        self.waiting.into_values()
    }

    fn entry(&mut self, namespace: &str, now: Instant) -> &mut Rejections {
        let none = Rejections { count: 0, last: now, found: None };
        self.namespaces.entry(namespace.to_owned()).or_insert(none)
    }

    fn must_wait(&self, key: &ObjectKey, now: Instant) -> bool {
        key.kind.is_route() && !is_over(&self.namespaces, key, now)
    }
}

fn is_over(namespaces: &BTreeMap<String, Rejections>, key: &ObjectKey, now: Instant) -> bool {
    namespaces.get(&*key.name.namespace).is_none_or(|it| now >= it.last + it.pause())
}

impl Rejections {
    /// A mistake costs nothing, so that its fix is served at once.
    fn pause(&self) -> Duration {
        match self.count {
            0 | 1 => Duration::ZERO,
            count => BACKOFF.pause(count - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::{Document, Kind, Object, ObjectName, parse};

    const SECOND: Duration = Duration::from_secs(1);

    fn route(namespace: &str, host: &str) -> Event {
        let manifest = format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: {namespace}}}
spec: {{hostnames: [{host}]}}
"
        );
        match parse(&manifest).into_iter().next() {
            Some(Document::Object(object)) => Event::Applied(object),
            other => panic!("{other:?}"),
        }
    }

    fn hosts(events: &[Event]) -> Vec<&str> {
        let host = |event| match event {
            &Event::Applied(Object::HTTPRoute(ref route)) => {
                route.spec.hostnames.as_ref()?.first().map(String::as_str)
            }
            _ => None,
        };
        events.iter().filter_map(host).collect()
    }

    fn key(namespace: &str) -> ObjectKey {
        ObjectName::new(namespace, "web").of(Kind::HTTPRoute)
    }

    #[test]
    fn a_fix_of_the_first_mistake_does_not_wait() {
        let (mut delay, now) = (Delay::default(), Instant::now());
        delay.rejected("a", now);
        assert_eq!(delay.admit(vec![route("a", "fixed")], now).len(), 1);
        assert_eq!(delay.due(), None);
    }

    #[test]
    fn only_the_last_change_is_applied_after_a_pause_that_grows() {
        let (mut delay, mut now) = (Delay::default(), Instant::now());
        delay.rejected("a", now);
        for pause in [2, 4, 8, 16, 32, 32, 32] {
            delay.rejected("a", now);
            assert!(delay.admit(vec![route("a", "one"), route("a", "two")], now).is_empty());
            assert_eq!(delay.admit(vec![route("b", "one")], now).len(), 1, "of another tenant");
            assert_eq!((delay.due(), delay.waiting()), (Some(now + pause * SECOND), 1));
            now += pause * SECOND;
            assert!(delay.admit(Vec::new(), now - SECOND / 2).is_empty());
            let admitted = delay.admit(Vec::new(), now);
            assert_eq!(hosts(&admitted), ["two"]);
            assert_eq!((delay.due(), delay.waiting()), (None, 0));
        }
        now += FORGOTTEN;
        delay.admit(Vec::new(), now);
        delay.rejected("a", now);
        assert_eq!(delay.admit(vec![route("a", "fixed")], now).len(), 1);
    }

    #[test]
    fn what_is_deleted_goes_at_once_and_does_not_come_back() {
        let (mut delay, now) = (Delay::default(), Instant::now());
        delay.rejected("a", now);
        delay.rejected("a", now);
        assert!(delay.admit(vec![route("a", "one")], now).is_empty());
        let admitted = delay.admit(vec![Event::Deleted(key("a"))], now);
        assert!(matches!(&*admitted, [Event::Deleted(_)]));
        assert!(delay.admit(Vec::new(), now + BACKOFF.longest).is_empty());
    }
}

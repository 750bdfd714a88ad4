use super::*;
use heliograph_gateway::objects::{Object, Scope};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

const POLICY: Kind = Kind::BackendTLSPolicy;

fn key(kind: Kind, name: &str) -> ObjectKey {
    let namespace = if kind.scope() == Scope::Cluster { "" } else { "shop" };
    ObjectName::new(namespace, name).of(kind)
}

/// All kinds, of those that protect something one alone.
fn watched() -> Vec<Kind> {
    Kind::ALL.iter().copied().filter(|kind| *kind == POLICY || !kind.is_protecting()).collect()
}

/// An object with little in it, and a generation for each version.
fn object(kind: Kind, name: &str, generation: i64) -> Object {
    let spec = match kind {
        Kind::GatewayClass => json!({ "controllerName": "a" }),
        Kind::Gateway => json!({ "gatewayClassName": "a", "listeners": [] }),
        Kind::ListenerSet => json!({ "parentRef": { "name": "edge" }, "listeners": [] }),
        Kind::ReferenceGrant => json!({ "from": [], "to": [] }),
        Kind::TCPRoute => json!({ "rules": [] }),
        Kind::BackendTLSPolicy => {
            json!({ "targetRefs": [], "validation": { "hostname": "a" } })
        }
        _ => json!({}),
    };
    let namespace = Some(key(kind, name).name.namespace.to_string());
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.filter(|it| !it.is_empty()),
        generation: Some(generation),
        ..ObjectMeta::default()
    };
    let mut value = match kind {
        Kind::EndpointSlice => json!({ "addressType": "IPv4", "endpoints": [] }),
        Kind::Secret | Kind::ConfigMap => json!({ "data": {} }),
        _ => json!({ "spec": spec }),
    };
    kind.read(metadata, &mut value).unwrap()
}

/// One that may be asked as the provider asks it.
struct Tested {
    protection: Protection,
    now: Instant,
    /// Protecting objects that wait for what they name.
    withheld: BTreeSet<ObjectKey>,
    waiting: BTreeSet<ObjectKey>,
}

impl Tested {
    /// Before anything is listed.
    fn starting(kinds: &[Kind]) -> Self {
        Self {
            protection: Protection::new(kinds.iter().copied()),
            now: Instant::now(),
            withheld: BTreeSet::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// With everything known.
    fn running() -> Self {
        let mut tested = Self::starting(&watched());
        assert_eq!(tested.send(Message::Current(POLICY, None)), [""; 0]);
        assert_eq!(tested.send(Message::Input(Input::Synced)), ["synced"]);
        tested
    }

    /// What is passed on, in words.
    fn send(&mut self, message: Message) -> Vec<String> {
        let received = self.protection.receive(message, self.now);
        let mut words = self.words(received);
        words.extend(self.settle());
        words
    }

    fn settle(&mut self) -> Vec<String> {
        let withheld = self.withheld.clone();
        let passed = self.protection.settle(|| withheld);
        let words = self.words(passed);
        let kept: BTreeSet<_> = self.protection.waiting.changes.keys().cloned().collect();
        assert_eq!(self.waiting, kept, "what was reported is what waits");
        words
    }

    fn apply(&mut self, kind: Kind, name: &str, generation: i64) -> Vec<String> {
        self.batch(vec![Event::Applied(object(kind, name, generation))])
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Vec<String> {
        self.batch(vec![Event::Deleted(key(kind, name))])
    }

    fn batch(&mut self, events: Vec<Event>) -> Vec<String> {
        self.send(Message::Input(Input::Batch(events)))
    }

    fn words(&mut self, Passed { inputs, waits }: Passed) -> Vec<String> {
        for (key, waits) in waits {
            let is_news = if waits { self.waiting.insert(key) } else { self.waiting.remove(&key) };
            assert!(is_news, "it did so already");
        }
        let event = |event: Event| match event {
            Event::Applied(object) => {
                let generation = object.metadata().generation.unwrap_or_default();
                format!("{} {generation}", object.key().name.name)
            }
            Event::Deleted(key) => format!("no {}", key.name.name),
        };
        let word = |input| match input {
            Input::Batch(events) => events.into_iter().map(event).collect::<Vec<_>>().join(", "),
            Input::Synced => "synced".to_owned(),
            Input::Unread(kind, names) => format!("{} unread {}", names.len(), kind.as_str()),
            Input::Fresh(asking) => format!("fresh {asking}"),
        };
        inputs.into_iter().map(word).collect()
    }
}

#[test]
fn while_everything_is_current_everything_passes() {
    let mut tested = Tested::running();
    for kind in Kind::ALL.iter().filter(|kind| kind.api_version().is_some()) {
        // The descriptions of our own kinds want more than this.
        if !matches!(kind, Kind::ViewPolicy | Kind::ProxyConfig) {
            assert_eq!(tested.apply(*kind, "a", 1), ["a 1"]);
        }
        assert_eq!(tested.delete(*kind, "a"), ["no a"]);
    }
}

#[test]
fn before_all_is_known_for_the_first_time_the_word_that_it_is_waits_and_nothing_else() {
    let mut tested = Tested::starting(&watched());
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 1), ["cart 1"]);
    assert_eq!(tested.send(Message::Input(Input::Synced)), [""; 0]);
    assert_eq!(tested.protection.awaited().collect::<Vec<_>>(), [POLICY]);
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 2), ["cart 2"]);
    assert_eq!(tested.send(Message::Input(Input::Fresh(1))), [""; 0]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["synced", "fresh 1"]);
    assert_eq!(tested.protection.awaited().count(), 0);
}

/// It was listed, and failed before others were.
#[test]
fn a_kind_that_fails_while_others_are_listed_keeps_the_word_back() {
    let mut tested = Tested::starting(&watched());
    tested.send(Message::Current(POLICY, None));
    tested.send(Message::Stale(POLICY));
    assert_eq!(tested.apply(Kind::Gateway, "edge", 1), ["edge 1"]);
    assert_eq!(tested.send(Message::Input(Input::Synced)), [""; 0]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["synced"]);
}

#[test]
fn where_no_protecting_kind_is_watched_nothing_waits() {
    let mut tested = Tested::starting(&[Kind::HTTPRoute]);
    assert_eq!(tested.send(Message::Input(Input::Synced)), ["synced"]);
    tested.send(Message::Chosen(1));
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 1), ["cart 1"]);
}

#[test]
fn what_may_open_something_waits_and_the_rest_passes() {
    let mut tested = Tested::running();
    assert_eq!(tested.send(Message::Stale(POLICY)), [""; 0]);
    let opening = [
        Kind::Namespace,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::ReferenceGrant,
        Kind::Service,
    ];
    for kind in opening {
        assert_eq!(tested.apply(kind, "a", 1), [""; 0], "{kind:?}");
    }
    for kind in [POLICY, Kind::EndpointSlice, Kind::Secret, Kind::ConfigMap] {
        assert_eq!(tested.apply(kind, "a", 1), ["a 1"], "{kind:?}");
    }
    let words = tested.send(Message::Current(POLICY, None));
    assert_eq!(words, ["a 1, a 1, a 1, a 1, a 1, a 1, a 1, a 1"], "all in one batch");
}

#[test]
fn of_each_object_the_newest_version_waits() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    for generation in 1..=1000 {
        assert_eq!(tested.apply(Kind::HTTPRoute, "cart", generation), [""; 0]);
        tested.send(Message::Input(Input::Unread(Kind::Gateway, BTreeSet::new())));
        tested.send(Message::Input(Input::Fresh(generation.unsigned_abs())));
    }
    assert_eq!(tested.protection.waiting.changes.len(), 1);
    let words = tested.send(Message::Current(POLICY, None));
    assert_eq!(words, ["cart 1000", "0 unread Gateway", "fresh 1000"]);
}

#[test]
fn a_deletion_does_not_wait_and_nothing_waits_behind_it() {
    let mut tested = Tested::running();
    tested.apply(Kind::HTTPRoute, "cart", 1);
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::HTTPRoute, "cart", 2);
    assert_eq!(tested.delete(Kind::HTTPRoute, "cart"), ["no cart"]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), [""; 0]);

    tested.send(Message::Stale(POLICY));
    let (old, new) = (key(Kind::HTTPRoute, "old"), object(Kind::HTTPRoute, "new", 1));
    let batch = vec![Event::Deleted(old), Event::Applied(new)];
    assert_eq!(tested.batch(batch), ["no old"], "of a batch, too");
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["new 1"]);
}

/// What replaces it may not be known.
#[test]
fn the_deletion_of_what_protects_something_waits() {
    let mut tested = Tested::running();
    tested.apply(POLICY, "tls", 1);
    tested.send(Message::Stale(POLICY));
    assert_eq!(tested.delete(POLICY, "tls"), [""; 0]);
    assert_eq!(tested.apply(POLICY, "tls", 2), ["tls 2"]);
    assert_eq!(tested.delete(POLICY, "tls"), [""; 0]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["no tls"]);
}

/// A list of the kind is sent before the word that it is current.
#[test]
fn what_was_missed_comes_first() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::HTTPRoute, "cart", 1);
    assert_eq!(tested.apply(POLICY, "tls", 1), ["tls 1"]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["cart 1"]);
}

#[test]
fn what_was_missed_and_waits_for_what_it_names_is_waited_for() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::HTTPRoute, "cart", 1);
    tested.withheld = [key(POLICY, "one"), key(POLICY, "two")].into();
    assert_eq!(tested.send(Message::Current(POLICY, None)), [""; 0]);
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 2), [""; 0]);
    // Not for others that come meanwhile: a tenant that creates more and more of them would delay all others.
    tested.withheld = [key(POLICY, "two"), key(POLICY, "three")].into();
    assert_eq!(tested.settle(), [""; 0]);
    tested.withheld = [key(POLICY, "one"), key(POLICY, "three")].into();
    assert_eq!(tested.settle(), ["cart 2"]);
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 3), ["cart 3"]);
}

#[test]
fn one_that_fails_again_meanwhile_is_waited_for_again() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::HTTPRoute, "cart", 1);
    tested.withheld = [key(POLICY, "one")].into();
    tested.send(Message::Current(POLICY, None));
    tested.send(Message::Stale(POLICY));
    tested.withheld.clear();
    assert_eq!(tested.settle(), [""; 0]);
    assert_eq!(tested.send(Message::Current(POLICY, None)), ["cart 1"]);
}

/// A term begins with what is known then: not before all is, and with all that waited.
#[test]
fn the_word_that_all_is_known_comes_behind_what_waited() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::Gateway, "edge", 1);
    tested.send(Message::Input(Input::Unread(Kind::Gateway, BTreeSet::new())));
    assert_eq!(tested.send(Message::Input(Input::Fresh(2))), [""; 0]);
    assert_eq!(tested.send(Message::Input(Input::Fresh(1))), [""; 0]);
    assert_eq!(tested.protection.awaited().collect::<Vec<_>>(), [POLICY]);
    let words = tested.send(Message::Current(POLICY, None));
    assert_eq!(words, ["edge 1", "0 unread Gateway", "fresh 2"]);
}

/// Routes of a namespace that begins to count may be listed before what protects them.
#[test]
fn where_other_namespaces_count_all_that_protects_something_there_is_waited_for() {
    let mut tested = Tested::starting(&watched());
    tested.send(Message::Chosen(1));
    tested.send(Message::Current(POLICY, Some(1)));
    assert_eq!(tested.send(Message::Input(Input::Synced)), ["synced"]);
    tested.send(Message::Chosen(2));
    assert_eq!(tested.apply(Kind::HTTPRoute, "cart", 1), [""; 0]);
    assert_eq!(
        tested.send(Message::Current(POLICY, Some(1))),
        [""; 0],
        "that is the choice before"
    );
    assert_eq!(tested.send(Message::Stale(POLICY)), [""; 0]);
    assert_eq!(tested.send(Message::Current(POLICY, Some(2))), ["cart 1"]);
}

#[test]
fn the_log_says_what_waits_for_long_and_that_it_does_not_any_more() {
    let mut tested = Tested::running();
    tested.send(Message::Stale(POLICY));
    assert_eq!(tested.protection.next_due(), None, "nothing waits");
    tested.apply(Kind::HTTPRoute, "cart", 1);
    let due = tested.protection.next_due().unwrap();
    assert_eq!((due - tested.now, tested.protection.next_news(tested.now)), (LONG, None));
    assert_eq!(tested.protection.next_news(due), Some(true));
    assert_eq!((tested.protection.next_due(), tested.protection.next_news(due)), (None, None));
    tested.send(Message::Current(POLICY, None));
    assert_eq!(tested.protection.next_news(due), Some(false));
    assert_eq!(tested.protection.next_news(due), None);

    // One that waits for a moment is not worth a line.
    tested.send(Message::Stale(POLICY));
    tested.apply(Kind::HTTPRoute, "cart", 2);
    tested.send(Message::Current(POLICY, None));
    assert_eq!(tested.protection.next_news(due + LONG), None);
}

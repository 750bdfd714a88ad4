mod budget;
mod orders;
mod protecting;

use super::*;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::time::Duration;

fn secret(name: &str) -> ObjectKey {
    ObjectName::new("shop", name).of(Kind::Secret)
}

/// One of another namespace is called "far".
fn gateway(name: &str) -> ObjectKey {
    let namespace = if name == "far" { "far" } else { "shop" };
    ObjectName::new(namespace, name).of(Kind::Gateway)
}

fn metadata(key: &ObjectKey, version: u64) -> ObjectMeta {
    ObjectMeta {
        name: Some((*key.name.name).to_owned()),
        namespace: Some((*key.name.namespace).to_owned()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    }
}

/// A Gateway as its watch sends it.
fn naming(key: &ObjectKey, generation: u64, names: &[&str]) -> Event {
    let reference = |name: &&str| json!({ "name": name, "namespace": "shop" });
    let references: Vec<Value> = names.iter().map(reference).collect();
    let tls = json!({ "certificateRefs": references });
    let listener = json!({ "name": "a", "port": 443, "protocol": "HTTPS", "tls": tls });
    let spec = json!({ "gatewayClassName": "heliograph", "listeners": [listener] });
    let mut metadata = metadata(key, generation);
    metadata.generation = Some(i64::try_from(generation).unwrap());
    Event::Applied(Kind::Gateway.read(metadata, &mut json!({ "spec": spec })).unwrap())
}

/// A Secret as its watch sends it.
fn existing(key: &ObjectKey, version: u64) -> Event {
    Event::Applied(Kind::Secret.read(metadata(key, version), &mut json!({})).unwrap())
}

/// The same, made at a time.
fn existing_since(key: &ObjectKey, version: u64, created: u64) -> Event {
    let mut metadata = metadata(key, version);
    let time = format!("2026-01-01T00:{:02}:{:02}Z", created / 60, created % 60);
    metadata.creation_timestamp = serde_json::from_value(json!(time)).unwrap();
    Event::Applied(Kind::Secret.read(metadata, &mut json!({})).unwrap())
}

/// A Secret as it is fetched. Its content is its version.
fn content(key: &ObjectKey, version: u64) -> Fetched {
    content_of(key, version, 1)
}

/// The same, with at least so many bytes.
fn content_of(key: &ObjectKey, version: u64, bytes: usize) -> Fetched {
    let mut object = Kind::Secret.read(metadata(key, version), &mut json!({})).unwrap();
    if let Object::Secret(secret) = &mut object {
        let data = [("tls.crt".to_owned(), ByteString(format!("{version:0bytes$}").into_bytes()))];
        std::sync::Arc::make_mut(secret).data = Some(data.into());
    }
    Fetched { version: version.to_string(), object: Ok(object) }
}

/// In place of the version of what is withheld.
const WITHHELD: u64 = u64::MAX;

/// What the translator knows.
#[derive(Debug, Default)]
struct Downstream {
    /// Gateways with their generation and what they name, and Secrets with their version.
    objects: BTreeMap<ObjectKey, (u64, BTreeSet<ObjectKey>)>,
    /// How much content they have.
    bytes: BTreeMap<ObjectKey, u64>,
    unread: BTreeSet<ObjectName>,
    log: Vec<String>,
}

impl Downstream {
    fn apply_output(&mut self, output: Output) {
        for input in output.inputs {
            match input {
                Input::Batch(events) => events.into_iter().for_each(|event| self.apply(event)),
                Input::Unread(_, names) => {
                    let words: Vec<&str> = names.iter().map(|name| &*name.name).collect();
                    self.log.push(format!("unread {}", words.join(",")));
                    self.unread = names;
                }
                Input::Synced => self.log.push("synced".to_owned()),
                Input::Fresh(asking) => self.log.push(format!("fresh {asking}")),
            }
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Applied(object) => {
                let version = match &object {
                    withheld if withheld.is_withheld() => WITHHELD,
                    Object::Secret(secret) => {
                        let bytes = &secret.data.as_ref().expect("its content is there")["tls.crt"];
                        String::from_utf8(bytes.0.clone()).unwrap().parse().unwrap()
                    }
                    other => other.metadata().generation.unwrap().try_into().unwrap(),
                };
                let key = object.key();
                match version {
                    WITHHELD => self.log.push(format!("{} withheld", key.name.name)),
                    _ => self.log.push(format!("{} {version}", key.name.name)),
                }
                self.bytes.insert(key.clone(), object.content_bytes());
                self.objects.insert(key, (version, object.named_content()));
            }
            Event::Deleted(key) => {
                self.log.push(format!("no {}", key.name.name));
                self.bytes.remove(&key);
                assert!(self.objects.remove(&key).is_some(), "{key} was never told");
            }
        }
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

/// Contents, and what receives its output.
struct Bench {
    contents: Contents,
    downstream: Downstream,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::with_budget(u64::MAX)
    }

    fn with_budget(most: u64) -> Self {
        let contents = Contents::new(most);
        Self { contents, downstream: Downstream::default(), now: Instant::now() }
    }

    fn receive_batch(&mut self, events: Vec<Event>) -> Vec<String> {
        self.receive(Input::Batch(events))
    }

    fn receive(&mut self, input: Input) -> Vec<String> {
        let output = self.contents.receive(input);
        self.downstream.apply_output(output);
        self.downstream.take_log()
    }

    /// Begins a fetch, which must be of this Secret.
    fn fetch(&mut self, name: &str) -> Fetch {
        let fetch = self.contents.next_fetch(self.now).expect("there is something to fetch");
        assert_eq!(fetch.key, secret(name));
        fetch
    }

    fn is_idle(&mut self) -> bool {
        self.contents.next_fetch(self.now).is_none()
    }

    fn answer(&mut self, fetch: &Fetch, version: u64) -> Vec<String> {
        self.answer_with(fetch, version, 1)
    }

    fn answer_with(&mut self, fetch: &Fetch, version: u64, bytes: usize) -> Vec<String> {
        let output = self.contents.fetched(fetch, content_of(&fetch.key, version, bytes));
        self.downstream.apply_output(output);
        self.downstream.take_log()
    }

    fn fail(&mut self, fetch: &Fetch, is_forbidden: bool) -> Vec<String> {
        let at = self.now + Duration::from_secs(1);
        let (_, output) = self.contents.failed(fetch, is_forbidden, |_| at);
        self.downstream.apply_output(output);
        self.downstream.take_log()
    }
}

#[test]
fn a_gateway_is_told_with_what_it_names_and_nothing_waits_for_it() {
    let (edge, other) = (gateway("edge"), gateway("other"));
    let mut bench = Bench::new();
    assert_eq!(bench.receive_batch(vec![existing(&secret("pair"), 1)]), [""; 0]);
    assert!(bench.is_idle(), "nobody names it");
    let heard =
        bench.receive_batch(vec![naming(&edge, 1, &["pair", "none"]), naming(&other, 1, &[])]);
    assert_eq!(heard, ["other 1"], "one that names nothing does not wait");
    let fetch = bench.fetch("pair");
    assert!(bench.is_idle());
    assert_eq!(bench.answer(&fetch, 1), ["pair 1", "edge 1"]);
    assert_eq!(bench.contents.counts(Kind::Secret).loaded, 1);

    // An object whose contents are known does not wait.
    assert_eq!(bench.receive_batch(vec![naming(&other, 2, &["pair"])]), ["other 2"]);
    assert_eq!(bench.receive_batch(vec![naming(&edge, 2, &["none"])]), ["edge 2"]);
    assert_eq!(bench.receive_batch(vec![Event::Deleted(other)]), ["no other", "no pair"]);
    assert_eq!(bench.contents.counts(Kind::Secret).loaded, 0);
    assert_eq!(bench.receive_batch(vec![Event::Deleted(edge)]), ["no edge"]);
    assert!(bench.contents.named.is_empty() && bench.contents.referrers.is_empty());
}

#[test]
fn a_version_that_waits_is_replaced_by_the_next_and_the_one_before_counts_meanwhile() {
    let (edge, mut bench) = (gateway("edge"), Bench::new());
    bench.receive_batch(vec![
        existing(&secret("a"), 1),
        existing(&secret("b"), 1),
        existing(&secret("c"), 1),
    ]);
    bench.receive_batch(vec![naming(&edge, 1, &["a"])]);
    let fetch = bench.fetch("a");
    assert_eq!(bench.answer(&fetch, 1), ["a 1", "edge 1"]);
    assert_eq!(bench.receive_batch(vec![naming(&edge, 2, &["b"])]), [""; 0]);
    let late = bench.fetch("b");
    assert_eq!(bench.receive_batch(vec![naming(&edge, 3, &["c"])]), [""; 0]);
    assert_eq!(bench.answer(&late, 1), [""; 0], "nobody names it any more");
    let fetch = bench.fetch("c");
    assert_eq!(bench.answer(&fetch, 1), ["c 1", "edge 3", "no a"]);
    assert!(bench.is_idle());
}

#[test]
fn a_change_is_fetched_and_the_last_content_counts_until_then() {
    let (edge, pair, mut bench) = (gateway("edge"), secret("pair"), Bench::new());
    bench.receive_batch(vec![existing(&pair, 1), naming(&edge, 1, &["pair"])]);
    let fetch = bench.fetch("pair");
    assert_eq!(bench.receive_batch(vec![existing(&pair, 2)]), [""; 0]);
    assert_eq!(
        bench.answer(&fetch, 1),
        ["pair 1", "edge 1"],
        "it may be old, and is the newest that is known"
    );
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&fetch, 3), ["pair 3"]);
    assert_eq!(bench.receive_batch(vec![existing(&pair, 3)]), [""; 0]);
    assert!(bench.is_idle(), "the fetch was faster than the watch");
    assert_eq!(bench.receive_batch(vec![Event::Deleted(pair)]), ["no pair"]);
}

/// The answer may be about the one that is gone.
#[test]
fn an_answer_does_not_bring_back_what_a_watch_says_is_gone() {
    let (edge, pair, mut bench) = (gateway("edge"), secret("pair"), Bench::new());
    bench.receive_batch(vec![existing(&pair, 1), naming(&edge, 1, &["pair"])]);
    let late = bench.fetch("pair");
    assert_eq!(bench.receive_batch(vec![Event::Deleted(pair.clone())]), ["edge 1"]);
    bench.receive_batch(vec![existing(&pair, 2)]);
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&late, 1), [""; 0]);
    assert_eq!(bench.answer(&fetch, 2), ["pair 2"]);
}

#[test]
fn what_fails_is_tried_again_and_holds_up_what_names_it_alone() {
    let (edge, other, mut bench) = (gateway("edge"), gateway("other"), Bench::new());
    bench.receive_batch(vec![existing(&secret("bad"), 1), existing(&secret("good"), 1)]);
    bench.receive_batch(vec![naming(&edge, 1, &["bad"]), naming(&other, 1, &["good"])]);
    let fetch = bench.fetch("bad");
    assert_eq!(bench.fail(&fetch, false), [""; 0]);
    let fetch = bench.fetch("good");
    assert_eq!(bench.answer(&fetch, 1), ["good 1", "other 1"]);
    assert!(bench.is_idle());
    bench.now = bench.contents.next_due().unwrap();
    let fetch = bench.fetch("bad");
    let output = bench.contents.fetched(&fetch, content(&fetch.key, 1));
    assert_eq!(output.reports, [(secret("bad"), FetchReport::NotFailing)]);
    bench.downstream.apply_output(output);
    assert_eq!(bench.downstream.take_log(), ["bad 1", "edge 1"]);
}

#[test]
fn what_cannot_be_read_is_said_and_holds_up_nothing() {
    let (edge, pair, mut bench) = (gateway("edge"), secret("pair"), Bench::new());
    bench.receive_batch(vec![existing(&pair, 1), naming(&edge, 1, &["pair"])]);
    let fetch = bench.fetch("pair");
    let unreadable = |version: &str| Fetched {
        version: version.to_owned(),
        object: Err(Unreadable::new("data: it is not of the form that a Secret has")),
    };
    let output = bench.contents.fetched(&fetch, unreadable("1"));
    let is_kept = |output: &Output| match &output.reports[..] {
        [(_, FetchReport::Unreadable(remark))] => remark.is_kept,
        other => panic!("{other:?}"),
    };
    assert!(!is_kept(&output));
    bench.downstream.apply_output(output);
    assert_eq!(bench.downstream.take_log(), ["edge 1"]);
    bench.receive_batch(vec![existing(&pair, 2)]);
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&fetch, 2), ["pair 2"]);
    bench.receive_batch(vec![existing(&pair, 3)]);
    let fetch = bench.fetch("pair");
    let output = bench.contents.fetched(&fetch, unreadable("3"));
    assert!(is_kept(&output) && output.inputs.is_empty(), "what was read before counts");
}

#[test]
fn who_asks_whether_all_is_known_waits_for_the_fetches_of_that_moment() {
    let (edge, pair, mut bench) = (gateway("edge"), secret("pair"), Bench::new());
    bench.receive_batch(vec![naming(&edge, 1, &["pair"])]);
    bench.receive_batch(vec![existing(&pair, 1)]);
    assert_eq!(bench.receive(Input::Synced), [""; 0]);
    assert_eq!(bench.contents.awaited(), [Kind::Secret].into());
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&fetch, 1), ["pair 1", "synced"], "{:?}", bench.contents);
    assert_eq!(bench.contents.awaited(), BTreeSet::new());
    assert_eq!(bench.receive(Input::Fresh(1)), ["fresh 1"]);

    bench.receive_batch(vec![existing(&pair, 2)]);
    let fetch = bench.fetch("pair");
    bench.receive_batch(vec![existing(&pair, 3)]);
    assert_eq!(bench.receive(Input::Fresh(2)), [""; 0]);
    assert_eq!(bench.answer(&fetch, 2), ["pair 2"], "that was begun too early");
    let fetch = bench.fetch("pair");
    bench.receive_batch(vec![existing(&pair, 4)]);
    assert_eq!(bench.answer(&fetch, 3), ["pair 3", "fresh 2"], "what came later is not waited for");

    let fetch = bench.fetch("pair");
    assert_eq!(bench.receive(Input::Fresh(3)), [""; 0]);
    assert_eq!(bench.fail(&fetch, false), [""; 0]);
    assert_eq!(bench.receive_batch(vec![Event::Deleted(pair)]), ["no pair", "fresh 3"]);
}

/// As of a kind that may not be listed any more: what is known is all that can be. But who knows nothing yet waits.
#[test]
fn who_may_not_fetch_any_more_leads_with_what_it_has() {
    let (edge, mut bench) = (gateway("edge"), Bench::new());
    bench.receive_batch(vec![existing(&secret("pair"), 1), naming(&edge, 1, &["pair"])]);
    bench.receive(Input::Synced);
    let fetch = bench.fetch("pair");
    assert_eq!(bench.fail(&fetch, true), [""; 0]);
    bench.now = bench.contents.next_due().unwrap();
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&fetch, 1), ["pair 1", "edge 1", "synced"]);

    bench.receive_batch(vec![existing(&secret("new"), 1)]);
    bench.receive_batch(vec![naming(&edge, 2, &["new"]), naming(&gateway("late"), 1, &["new"])]);
    assert_eq!(bench.receive(Input::Fresh(1)), [""; 0]);
    let fetch = bench.fetch("new");
    // The Gateway of which nothing is known is not taken for one that is gone.
    assert_eq!(bench.fail(&fetch, true), ["unread late", "fresh 1"]);
    assert_eq!(bench.receive(Input::Fresh(2)), ["fresh 2"]);
    let fetch = bench.fetch("new");
    assert_eq!(bench.answer(&fetch, 1), ["new 1", "edge 2", "late 1", "no pair", "unread "]);
}

#[test]
fn a_gateway_that_can_be_read_again_is_spared_until_it_is_told() {
    let (edge, pair, mut bench) = (gateway("edge"), secret("pair"), Bench::new());
    let unread = |names: &[&str]| {
        let names = names.iter().map(|name| ObjectName::new("shop", name)).collect();
        Input::Unread(Kind::Gateway, names)
    };
    bench.receive_batch(vec![existing(&pair, 1)]);
    assert_eq!(bench.receive(unread(&["edge", "other"])), ["unread edge,other"]);
    bench.receive_batch(vec![naming(&edge, 1, &["pair"])]);
    assert_eq!(bench.receive(unread(&["other"])), [""; 0]);
    let fetch = bench.fetch("pair");
    assert_eq!(bench.answer(&fetch, 1), ["pair 1", "edge 1", "unread other"]);
}

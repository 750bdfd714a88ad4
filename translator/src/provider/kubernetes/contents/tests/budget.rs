//! What does not fit into the budget of its namespace.

use super::*;

/// Secrets of one namespace, made one after the other, and what of them the API would answer.
struct Shelf {
    bench: Bench,
    /// The bytes of each, by name.
    bytes: BTreeMap<&'static str, usize>,
    fetches: usize,
}

impl Shelf {
    /// All of 10 bytes, and a Gateway that names them, with a budget of 25 bytes for each namespace.
    fn new(names: &[&'static str]) -> Self {
        let bytes = names.iter().map(|name| (*name, 10)).collect();
        let mut shelf = Self { bench: Bench::with_budget(25), bytes, fetches: 0 };
        let made = (1..).zip(names);
        shelf
            .bench
            .receive_batch(made.map(|(at, name)| existing_since(&secret(name), 1, at)).collect());
        shelf.name(1, names);
        shelf
    }

    fn name(&mut self, generation: u64, names: &[&str]) {
        self.bench.receive_batch(vec![naming(&gateway("edge"), generation, names)]);
    }

    /// Answers every fetch until there is none. Returns how many there were.
    fn answer_all(&mut self) -> usize {
        let before = self.fetches;
        while let Some(fetch) = self.bench.contents.next_fetch(self.bench.now) {
            self.fetches += 1;
            let bytes = self.bytes[&*fetch.key.name.name];
            self.bench.answer_with(&fetch, 1, bytes);
            assert!(self.fetches < 1000, "the same is fetched again and again");
        }
        self.fetches - before
    }

    /// What is loaded, and what is withheld.
    fn loaded_and_withheld(&self) -> (Vec<&str>, Vec<&str>) {
        let (mut loaded, mut withheld) = (Vec::new(), Vec::new());
        for (key, (version, _)) in &self.bench.downstream.objects {
            if key.kind == Kind::Secret {
                let names = if *version == WITHHELD { &mut withheld } else { &mut loaded };
                names.push(&*key.name.name);
            }
        }
        (loaded, withheld)
    }
}

#[test]
fn a_namespace_beyond_its_budget_keeps_its_oldest_and_what_does_not_fit_is_not_fetched() {
    let mut shelf = Shelf::new(&["d", "c", "b", "a"]);
    assert_eq!(shelf.answer_all(), 3, "of the youngest it is clear that it does not fit");
    assert_eq!(shelf.loaded_and_withheld(), (vec!["c", "d"], vec!["a", "b"]));
    assert!(shelf.bench.downstream.objects.contains_key(&gateway("edge")), "nothing waits for it");
    assert_eq!(shelf.bench.contents.counts(Kind::Secret), Count { loaded: 2, withheld: 2 });
}

#[test]
fn other_namespaces_keep_everything() {
    let mut shelf = Shelf::new(&["a", "b", "c"]);
    let others: Vec<ObjectKey> =
        ["x", "y"].iter().map(|name| ObjectName::new("other", name).of(Kind::Secret)).collect();
    let references: Vec<Value> =
        others.iter().map(|it| json!({ "name": *it.name.name, "namespace": "other" })).collect();
    let tls = json!({ "certificateRefs": references });
    let listener = json!({ "name": "a", "port": 443, "protocol": "HTTPS", "tls": tls });
    let spec = json!({ "gatewayClassName": "heliograph", "listeners": [listener] });
    let mut metadata = metadata(&ObjectName::new("other", "edge").of(Kind::Gateway), 1);
    metadata.generation = Some(1);
    let gateway = Kind::Gateway.read(metadata, &mut json!({ "spec": spec })).unwrap();
    shelf.bench.receive_batch(others.iter().map(|it| existing(it, 1)).collect());
    shelf.bench.receive_batch(vec![Event::Applied(gateway)]);
    shelf.bytes.extend([("x", 12), ("y", 12)]);
    shelf.answer_all();
    assert_eq!(shelf.loaded_and_withheld(), (vec!["x", "y", "a", "b"], vec!["c"]));
}

#[test]
fn when_there_is_room_again_the_next_is_fetched_once() {
    let mut shelf = Shelf::new(&["a", "b", "c", "d", "e"]);
    assert_eq!(shelf.answer_all(), 3);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["a", "b"], vec!["c", "d", "e"]));

    // One is deleted: the next of the row is fetched, and the one after, which does not fit.
    shelf.bench.receive_batch(vec![Event::Deleted(secret("a"))]);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["b"], vec!["c", "d", "e"]), "until it is there");
    assert_eq!(shelf.answer_all(), 2);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["b", "c"], vec!["d", "e"]));

    // One is not named any more.
    shelf.name(2, &["c", "d", "e"]);
    assert_eq!(shelf.answer_all(), 2);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["c", "d"], vec!["e"]));

    // One becomes smaller.
    shelf.bytes.insert("c", 5);
    shelf.bench.receive_batch(vec![existing_since(&secret("c"), 2, 3)]);
    assert_eq!(shelf.answer_all(), 2);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["c", "d", "e"], vec![]));

    // One becomes larger.
    shelf.bytes.insert("d", 20);
    shelf.bench.receive_batch(vec![existing_since(&secret("d"), 2, 4)]);
    assert_eq!(shelf.answer_all(), 1);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["c", "d"], vec!["e"]));
}

#[test]
fn of_what_does_not_fit_only_the_first_is_fetched_when_it_changes() {
    let mut shelf = Shelf::new(&["a", "b", "c", "d"]);
    shelf.answer_all();
    assert_eq!(shelf.loaded_and_withheld(), (vec!["a", "b"], vec!["c", "d"]));
    shelf.bytes.extend([("c", 5), ("d", 5)]);
    shelf.bench.receive_batch(vec![existing_since(&secret("d"), 2, 4)]);
    assert_eq!(shelf.answer_all(), 0, "the older one does not fit");
    shelf.bench.receive_batch(vec![existing_since(&secret("c"), 2, 3)]);
    assert_eq!(shelf.answer_all(), 2);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["a", "b", "c"], vec!["d"]));
}

/// Otherwise a tenant could name all Secrets of another one, and leave no room for those that the other one uses.
#[test]
fn what_another_namespace_names_does_not_take_the_room_of_what_its_own_names() {
    let mut shelf = Shelf::new(&["a", "b", "c", "d"]);
    shelf.name(2, &["c", "d"]);
    shelf.bench.receive_batch(vec![naming(&gateway("far"), 1, &["a", "b"])]);
    shelf.answer_all();
    assert_eq!(shelf.loaded_and_withheld(), (vec!["c", "d"], vec!["a", "b"]));
    shelf.name(3, &["d"]);
    shelf.answer_all();
    assert_eq!(shelf.loaded_and_withheld(), (vec!["a", "d"], vec!["b"]));
}

#[test]
fn what_cannot_be_read_is_not_withheld() {
    let mut shelf = Shelf::new(&["a", "b", "c"]);
    shelf.answer_all();
    shelf.bench.receive_batch(vec![Event::Deleted(secret("a"))]);
    let fetch = shelf.bench.fetch("c");
    let object = Err(Unreadable::new("data: it is not of the form that a Secret has"));
    let output = shelf.bench.contents.fetched(&fetch, Fetched { version: "2".to_owned(), object });
    assert!(matches!(&output.reports[..], [(_, FetchReport::Unreadable(it))] if !it.is_kept));
    shelf.bench.downstream.apply_output(output);
    assert_eq!(shelf.loaded_and_withheld(), (vec!["b"], vec![]));
}

/// Nothing waits for what does not fit, whatever the API answers.
#[test]
fn a_fetch_that_fails_is_given_up_when_there_is_no_room_any_more() {
    let mut shelf = Shelf::new(&["a", "b", "c"]);
    shelf.bytes.insert("b", 20);
    let (a, b) = (shelf.bench.fetch("a"), shelf.bench.fetch("b"));
    let c = shelf.bench.fetch("c");
    shelf.bench.fail(&c, false);
    shelf.bench.receive(Input::Synced);
    shelf.bench.answer_with(&a, 1, 10);
    let log = shelf.bench.answer_with(&b, 1, 20);
    assert_eq!(log, ["b withheld", "c withheld", "edge 1", "synced"]);
    assert!(shelf.bench.is_idle() && shelf.bench.contents.next_due().is_none());
}

use super::*;

const POLICY: Kind = Kind::BackendTLSPolicy;

/// A policy that names ConfigMaps.
fn policy(generation: i64, maps: &[&str]) -> Event {
    let key = ObjectName::new("shop", "tls").of(POLICY);
    let metadata = ObjectMeta { generation: Some(generation), ..metadata(&key, 1) };
    let reference = |name: &&str| json!({ "group": "", "kind": "ConfigMap", "name": name });
    let references: Vec<Value> = maps.iter().map(reference).collect();
    let validation = json!({ "hostname": "a", "caCertificateRefs": references });
    let spec = json!({ "targetRefs": [], "validation": validation });
    Event::Applied(POLICY.read(metadata, &mut json!({ "spec": spec })).unwrap())
}

fn map(name: &str) -> ObjectKey {
    ObjectName::new("shop", name).of(Kind::ConfigMap)
}

fn existing_map(name: &str) -> Event {
    Event::Applied(Kind::ConfigMap.read(metadata(&map(name), 1), &mut json!({})).unwrap())
}

/// While it waits, what it protects is open; without what it names, its target is closed.
#[test]
fn a_new_policy_waits_for_one_fetch_and_an_edited_one_for_all() {
    let mut bench = Bench::new();
    bench.receive_batch(vec![existing_map("bad"), existing_map("worse"), policy(1, &["bad"])]);
    assert_eq!(bench.contents.new_protecting().len(), 1);
    let fetch = bench.contents.next_fetch(bench.now).unwrap();
    assert_eq!(fetch.key, map("bad"));
    assert_eq!(bench.fail(&fetch, false), ["tls 1"]);
    assert_eq!(bench.contents.new_protecting().len(), 0);
    assert!(bench.contents.next_due().is_some(), "it is fetched again");

    assert_eq!(bench.receive_batch(vec![policy(2, &["worse"])]), [""; 0]);
    assert_eq!(bench.contents.new_protecting().len(), 0, "a version of it is in force");
    let fetch = bench.contents.next_fetch(bench.now).unwrap();
    assert_eq!(bench.fail(&fetch, false), [""; 0]);
}

#[test]
fn a_new_policy_that_names_several_waits_for_each() {
    let mut bench = Bench::new();
    bench.receive_batch(vec![
        existing_map("bad"),
        existing_map("good"),
        policy(1, &["bad", "good"]),
    ]);
    let first = bench.contents.next_fetch(bench.now).unwrap();
    let second = bench.contents.next_fetch(bench.now).unwrap();
    assert_eq!(bench.fail(&first, true), [""; 0]);
    let object = Kind::ConfigMap.read(metadata(&second.key, 1), &mut json!({}));
    let fetched = Fetched { version: "1".to_owned(), object };
    let output = bench.contents.fetched(&second, fetched);
    let Some(Input::Batch(events)) = output.inputs.into_iter().next() else { panic!() };
    let kinds: Vec<Kind> = events.iter().map(|event| event.key().kind).collect();
    assert_eq!(kinds, [Kind::ConfigMap, POLICY]);
}

use super::*;
use crate::scenario::Span;
use heliograph_envoy::Message;
use std::collections::BTreeSet;
use std::time::Duration;

fn list(values: &[&str]) -> OneOrMore {
    OneOrMore::More(values.iter().map(|value| (*value).to_owned()).collect())
}

fn share(text: &str) -> Share {
    text.parse().unwrap()
}

#[test]
fn every_beginning_has_all_groups_by_their_share() {
    let slow = Conduct::StopsReading(Span(Duration::ZERO));
    let groups = vec![
        Group { share: share("75%"), ..Group::default() },
        Group { share: share("25%"), conduct: slow.clone(), ..Group::default() },
    ];
    let population = Population::new(groups, Protocols::Delta, vec!["a/b".to_owned()]);
    let people: Vec<_> = population.take(100).collect();
    for count in [4, 8, 40, 100] {
        let slow = people.iter().take(count).filter(|person| person.conduct == slow).count();
        assert_eq!(slow, count / 4, "of the first {count}");
    }
}

#[test]
fn all_combinations_occur_and_each_is_one_node() {
    let group = Group {
        zone: list(&["a", "b", "c"]),
        version: list(&["1.39.0", "1.40.0"]),
        labels: [("app".to_owned(), list(&["x", "y"]))].into(),
        ..Group::default()
    };
    assert_eq!(group.check(), Ok(()));
    let fleets = vec!["a/b".to_owned()];
    let people: Vec<_> = Population::new(vec![group], Protocols::Mixed, fleets).take(24).collect();
    let kinds: BTreeSet<_> = people.iter().map(|person| person.node.encode_to_vec()).collect();
    assert_eq!(kinds.len(), 12);
    assert!(Arc::ptr_eq(&people[0].node, &people[12].node));
    assert_eq!(people[0].node.cluster, "a/b");
    let sotw = people.iter().filter(|it| it.protocol == Protocol::StateOfTheWorld).count();
    assert_eq!(sotw, 12);
}

#[test]
fn clients_belong_to_fleets_in_turn() {
    let fleets = vec!["a/0".to_owned(), "a/1".to_owned(), "a/2".to_owned()];
    let people: Vec<_> = Population::new(vec![], Protocols::Sotw, fleets).take(7).collect();
    let clusters: Vec<_> = people.iter().map(|person| person.node.cluster.as_str()).collect();
    assert_eq!(clusters, ["a/0", "a/1", "a/2", "a/0", "a/1", "a/2", "a/0"]);
    assert_eq!(people[6].fleet, 0);
    assert_eq!(&*people[6].name, "client-000006");
}

#[test]
fn nodes_are_as_large_as_they_should_be() {
    let size = |node| {
        let group = Group { node, ..Group::default() };
        node::build(&group, 0, "loadtest/fleet-0000").encoded_len()
    };
    assert!(size(NodeSize::Bare) < 200);
    assert!((55_000..67_000).contains(&size(NodeSize::Real)), "{}", size(NodeSize::Real));
}

#[test]
fn what_is_no_version_is_refused() {
    for version in ["1.40", "new", "1.2.x", ""] {
        let group = Group { version: OneOrMore::One(version.to_owned()), ..Group::default() };
        assert!(group.check().is_err_and(|reason| reason.contains(version)));
    }
}

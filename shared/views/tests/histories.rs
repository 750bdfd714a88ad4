//! What holds of views whatever the history of a snapshot and its rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Locality;
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use heliograph_snapshot::{
    Change, FleetName, Head, Internal, Resource, ResourceType, Section, Snapshot,
};
use heliograph_views::{
    Admission, Audience, Class, Client, Operator, Preference, Proxy, Requirement, Rules, Treatment,
    Variant, ZONE, advance, derive,
};
use proptest::prelude::*;
use std::sync::Arc;

const KINDS: [ResourceType; 3] =
    [ResourceType::Cluster, ResourceType::Endpoints, ResourceType::Listener];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// A change of a snapshot.
#[derive(Clone, Debug)]
enum Step {
    Resource(usize, u8, Option<u8>),
    Treatment(usize, u8, Option<(u8, u8)>),
    Audience(u8, Option<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let resource = (0..KINDS.len(), 0..60u8, prop::option::weighted(0.8, 0..4u8))
        .prop_map(|(kind, name, content)| Step::Resource(kind, name, content));
    let treatment = (0..KINDS.len(), 0..60u8, prop::option::weighted(0.7, (0..5u8, 0..3u8)))
        .prop_map(|(kind, name, what)| Step::Treatment(kind, name, what));
    let audience = (0..3u8, prop::option::weighted(0.8, 0..3u8))
        .prop_map(|(id, zone)| Step::Audience(id, zone));
    let step = prop_oneof![6 => resource, 3 => treatment, 1 => audience];
    prop::collection::vec(prop::collection::vec(step, 0..12), 1..12)
}

fn change(step: &Step) -> Change {
    match step {
        Step::Resource(kind, name, content) => match content {
            Some(content) => Change::Set(KINDS[*kind], resource(KINDS[*kind], *name, *content)),
            None => Change::Remove(KINDS[*kind], name_of(*name)),
        },
        Step::Treatment(kind, name, what) => {
            let found = treatment(what.unwrap_or_default()).resource(KINDS[*kind], &name_of(*name));
            match what {
                Some(_) => Change::SetInternal(Internal::Rules, Arc::new(found)),
                None => Change::RemoveInternal(Internal::Rules, found.name),
            }
        }
        Step::Audience(id, zone) => {
            let found = audience(zone.unwrap_or_default()).resource(&id.to_string());
            match zone {
                Some(_) => Change::SetInternal(Internal::Rules, Arc::new(found)),
                None => Change::RemoveInternal(Internal::Rules, found.name),
            }
        }
    }
}

fn name_of(name: u8) -> Arc<str> {
    format!("name-{name}").into()
}

/// Endpoints in some of the zones; other types are any bytes.
fn resource(kind: ResourceType, name: u8, content: u8) -> Arc<Resource> {
    let body: Bytes = match kind {
        ResourceType::Endpoints => endpoints(&ZONES[..usize::from(content)]),
        _ => vec![content].into(),
    };
    Arc::new(Resource::new(name_of(name), body))
}

fn endpoints(zones: &[&str]) -> Bytes {
    let group = |zone: &&str| LocalityLbEndpoints {
        locality: Some(Locality { zone: (*zone).to_owned(), ..Default::default() }),
        lb_endpoints: vec![LbEndpoint::default()],
        ..Default::default()
    };
    let endpoints = zones.iter().map(group).collect();
    ClusterLoadAssignment { endpoints, ..Default::default() }.encode_to_vec().into()
}

fn treatment((what, id): (u8, u8)) -> Treatment {
    let audience = id.to_string();
    let preference = |audience| Preference { audience, labels: vec![ZONE.to_owned()] };
    match what {
        0 => Treatment { preferences: vec![preference(String::new())], ..Default::default() },
        1 => Treatment { preferences: vec![preference(audience)], ..Default::default() },
        2 => {
            let admissions = vec![Admission { audiences: vec![audience] }];
            Treatment { admissions, ..Default::default() }
        }
        3 => {
            let variants = vec![Variant { audience, body: Bytes::from_static(b"another") }];
            Treatment { variants, ..Default::default() }
        }
        _ => Treatment::default(),
    }
}

fn audience(zone: u8) -> Audience {
    let requirement = Requirement {
        key: ZONE.to_owned(),
        operator: Operator::In.into(),
        values: vec![ZONES[usize::from(zone)].to_owned()],
    };
    Audience { labels: vec![requirement], ..Default::default() }
}

fn client(zone: &str) -> Client {
    let labels = [(ZONE.to_owned(), zone.to_owned())].into();
    Client { proxy: Proxy { labels, ..Default::default() }, ..Default::default() }
}

/// What a history comes to, one snapshot after each group of its steps.
fn history(groups: &[Vec<Step>]) -> Vec<Arc<Snapshot>> {
    let mut snapshot = Snapshot::empty(FleetName::new("shop", "web"));
    let mut history = vec![Arc::new(snapshot.clone())];
    for (number, steps) in groups.iter().enumerate() {
        let head = Head { sequence: number as u64 + 1, ..Head::default() };
        snapshot = snapshot.with(head, steps.iter().map(change));
        history.push(Arc::new(snapshot.clone()));
    }
    history
}

fn rules(snapshot: &Snapshot) -> Rules {
    Rules::of(snapshot.internal(Internal::Rules))
}

proptest! {
    #[test]
    fn step_by_step_is_the_same_as_at_once(groups in steps(), zone in 0..3usize) {
        let history = history(&groups);
        let client = client(ZONES[zone]);
        let mut known = rules(&history[0]);
        let mut class = known.class(&client);
        let mut view = derive(&history[0], &known, &class);
        for pair in history.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            let [old, new] = [before, after].map(|it| it.internal(Internal::Rules));
            let asked = known.advance(old, new);
            prop_assert_eq!(&known, &rules(after));
            let now = known.class(&client);
            prop_assert!(asked || now == class, "nobody is asked again, and the answer is another");
            view = if now == class {
                advance(before, &view, after, &known, &now)
            } else {
                derive(after, &known, &now)
            };
            class = now;
            let at_once = derive(after, &known, &class);
            prop_assert!(view.same_content(&at_once) || known.is_empty());
            for kind in ResourceType::ALL {
                prop_assert_eq!(view.tree(kind).address(), at_once.tree(kind).address());
            }
            prop_assert_eq!(view.head, after.head);
        }
    }

    #[test]
    fn what_no_rule_touches_is_the_same_value(groups in steps(), zone in 0..3usize) {
        let history = history(&groups);
        let base = history.last().unwrap();
        let rules = rules(base);
        let view = derive(base, &rules, &rules.class(&client(ZONES[zone])));
        for kind in ResourceType::ALL {
            let treated = |resource: &Resource| {
                let name = format!("{kind}/{}", resource.name);
                base.internal(Internal::Rules).get(&name).is_some()
            };
            for resource in base.tree(kind).iter().filter(|resource| !treated(resource)) {
                prop_assert!(Arc::ptr_eq(resource, view.get(kind, &resource.name).unwrap()));
            }
        }
    }

    #[test]
    fn rules_never_reach_a_view(groups in steps(), zone in 0..3usize) {
        let history = history(&groups);
        let base = history.last().unwrap();
        let rules = rules(base);
        prop_assume!(!rules.is_empty());
        let view = derive(base, &rules, &rules.class(&client(ZONES[zone])));
        for internal in Internal::ALL {
            prop_assert!(view.section(Section::Internal(internal)).is_empty());
        }
    }
}

/// Shown by what is the same value as before, and so was not made again.
#[test]
fn one_changed_resource_among_many_costs_one() {
    let names = 0..60u8;
    let resources = names.clone().map(|name| Step::Resource(1, name, Some(3)));
    let treatments = names.clone().map(|name| Step::Treatment(1, name, Some((0, 0))));
    let first = resources.chain(treatments).collect();
    let history = history(&[first, vec![Step::Resource(1, 7, Some(2))]]);
    let (before, after) = (&history[1], &history[2]);
    let rules = rules(after);
    let class = rules.class(&client("b"));
    let known = derive(before, &rules, &class);
    let view = advance(before, &known, after, &rules, &class);
    for name in names.map(name_of) {
        let [old, new] = [&known, &view].map(|it| it.get(ResourceType::Endpoints, &name).unwrap());
        assert!(!Arc::ptr_eq(old, before.get(ResourceType::Endpoints, &name).unwrap()));
        assert_eq!(Arc::ptr_eq(old, new), &*name != "name-7", "{name}");
    }
}

#[test]
fn without_rules_the_view_is_the_snapshot() {
    let base = &history(&[vec![Step::Resource(0, 1, Some(1))]])[1];
    assert!(Arc::ptr_eq(base, &derive(base, &rules(base), &Class::default())));
}

#[test]
fn clients_that_no_rule_tells_apart_are_of_one_class() {
    let base = &history(&[vec![Step::Audience(0, Some(0)), Step::Resource(0, 1, Some(1))]])[1];
    let rules = rules(base);
    assert_eq!(rules.class(&client("b")), rules.class(&client("c")));
    assert_ne!(rules.class(&client("a")), rules.class(&client("b")));
}

#[test]
fn each_zone_comes_first_for_its_own_and_the_others_after_it() {
    let steps = vec![Step::Resource(1, 1, Some(3)), Step::Treatment(1, 1, Some((0, 0)))];
    let base = &history(&[steps])[1];
    let rules = rules(base);
    let priorities = |zone: &str| -> Vec<(String, u32)> {
        let view = derive(base, &rules, &rules.class(&client(zone)));
        let found = view.get(ResourceType::Endpoints, "name-1").unwrap();
        let found = ClusterLoadAssignment::decode(found.body.clone()).unwrap();
        let group = |it: LocalityLbEndpoints| (it.locality.unwrap_or_default().zone, it.priority);
        found.endpoints.into_iter().map(group).collect()
    };
    let told = |zones: &[(&str, u32)]| -> Vec<(String, u32)> {
        zones.iter().map(|(zone, priority)| ((*zone).to_owned(), *priority)).collect()
    };
    assert_eq!(priorities("a"), told(&[("a", 0), ("b", 1), ("c", 1)]));
    assert_eq!(priorities("b"), told(&[("b", 0), ("a", 1), ("c", 1)]));
    assert_eq!(priorities("elsewhere"), told(&[("a", 0), ("b", 0), ("c", 0)]));
}

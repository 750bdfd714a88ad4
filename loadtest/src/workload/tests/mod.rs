mod envoy;

use super::*;
use heliograph_client::references;
use heliograph_snapshot::Internal;

fn some() -> Resources {
    Resources { clusters: 60, listeners: 3, routes: 20, secrets: 4, ..Resources::default() }
}

fn update(number: u32, kind: UpdateKind) -> Update {
    Update { number, kind, reach: Reach::EveryFleet }
}

/// The marks of a type that are not those of the beginning.
fn marks(snapshot: &Snapshot, kind: ResourceType) -> Vec<u32> {
    let marks = snapshot.tree(kind).iter().filter_map(|it| mark(kind, &it.body));
    marks.filter(|number| *number > 0).collect()
}

#[test]
fn it_is_the_same_in_every_process() {
    let run = || {
        let mut workload = Workload::new(&some(), 2);
        workload.change(update(1, UpdateKind::Endpoint));
        workload.change(update(2, UpdateKind::Full));
        workload.change(update(3, UpdateKind::Route));
        workload
    };
    let (one, other) = (run(), run());
    for (one, other) in one.snapshots().iter().zip(other.snapshots()) {
        assert!(one.same_content(other));
        assert_eq!((&one.fleet, one.head), (&other.fleet, other.head));
    }
    let roots = |fleet: usize| one.snapshots()[fleet].roots();
    assert_eq!(roots(0), roots(1), "fleets hold the same");
}

#[test]
fn sizes_are_as_asked() {
    let sizes = |resources: &Resources, kind| -> Vec<usize> {
        let workload = Workload::new(resources, 1);
        workload.snapshots()[0].tree(kind).iter().map(|it| it.body.len()).collect()
    };
    let all_near = |sizes: &[usize], wanted: usize| {
        assert!(!sizes.is_empty());
        for size in sizes {
            assert!(size.abs_diff(wanted) <= wanted / 10, "{size} is not {wanted}");
        }
    };
    all_near(&sizes(&some(), ResourceType::Cluster), 400);
    all_near(&sizes(&some(), ResourceType::Endpoints), 250);
    for wanted in [200, 500, 3_000, 40_000] {
        let resources = Resources { clusters: 5, cluster_bytes: wanted, ..Resources::default() };
        all_near(&sizes(&resources, ResourceType::Cluster), wanted);
    }
    let bare = Resources { clusters: 5, cluster_bytes: 0, ..Resources::default() };
    assert!(sizes(&bare, ResourceType::Cluster).iter().all(|size| *size < 100));
    let names = Workload::new(&some(), 1);
    let names = names.snapshots()[0].tree(ResourceType::Cluster).iter().map(|it| it.name.len());
    assert!(names.into_iter().all(|length| (30..=40).contains(&length)));
}

#[test]
fn nothing_refers_to_what_is_not_there() {
    let mut workload = Workload::new(&some(), 1);
    workload.change(update(1, UpdateKind::Full));
    let snapshot = &workload.snapshots()[0];
    let mut referred = BTreeMap::<_, usize>::new();
    for kind in ResourceType::ALL {
        for resource in snapshot.tree(kind).iter() {
            for (kind, name) in references(kind, &resource.body) {
                assert!(snapshot.get(kind, &name).is_some(), "{kind} {name}");
                *referred.entry(kind).or_default() += 1;
            }
        }
    }
    use ResourceType::{Cluster, Endpoints, Route, Secret};
    assert_eq!(referred, [(Secret, 60), (Cluster, 20), (Endpoints, 60), (Route, 3)].into());
    let lengths = ResourceType::ALL.map(|kind| snapshot.tree(kind).len());
    assert_eq!(lengths, [4, 60, 60, 0, 3, 3]);
}

#[test]
fn a_change_shows_in_what_it_changed_and_nowhere_else() {
    use ResourceType::{Cluster, Endpoints, Route};
    let mut workload = Workload::new(&some(), 1);
    let first = workload.snapshots()[0].clone();
    assert!(ResourceType::ALL.into_iter().all(|kind| marks(&first, kind).is_empty()));
    for number in [1, 2, 61, Workload::LAST] {
        let after = workload.change(update(number, UpdateKind::Endpoint))[0].clone();
        assert_eq!(after.head.sequence, 1 + u64::from(number));
        assert!(marks(&after, Endpoints).contains(&number));
        assert_eq!(after.tree(Cluster).differences(first.tree(Cluster)), []);
    }
    let before = workload.snapshots()[0].clone();
    let after = workload.change(update(70, UpdateKind::Route))[0].clone();
    assert_eq!(after.tree(Route).differences(before.tree(Route)).len(), 1);
    assert_eq!(marks(&after, Route), [70]);
    let after = workload.change(update(71, UpdateKind::Full))[0].clone();
    for (kind, length) in [(Cluster, 60), (Endpoints, 60), (Route, 3)] {
        assert_eq!(marks(&after, kind), vec![71; length]);
        assert!(UpdateKind::Full.seen_in().contains(&kind));
    }
}

#[test]
fn a_change_reaches_every_fleet_or_the_next() {
    let mut workload = Workload::new(&some(), 3);
    let every = workload.change(update(1, UpdateKind::Endpoint));
    assert_eq!(every.len(), 3);
    for number in 2..8 {
        let update = Update { number, kind: UpdateKind::Endpoint, reach: Reach::OneFleet };
        let changed = workload.change(update).to_vec();
        let name = format!("loadtest/fleet-{:04}", number % 3);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].fleet.as_str(), name);
    }
    let heads: Vec<_> = workload.snapshots().iter().map(|it| it.head.sequence - 1).collect();
    assert_eq!(heads, [6, 7, 5]);
}

#[test]
fn heads_begin_where_a_store_says() {
    let mut workload = Workload::new(&some(), 2);
    let base = Head { epoch: 2, fence: 77, sequence: 10 };
    workload.start_at(base);
    assert!(workload.snapshots().iter().all(|snapshot| snapshot.head == base));
    let changed = workload.change(update(4, UpdateKind::Endpoint));
    assert_eq!(changed[0].head, Head { sequence: 14, ..base });
}

#[test]
fn without_resources_there_is_nothing_to_change() {
    let nothing = Resources { clusters: 0, ..Resources::default() };
    let mut workload = Workload::new(&nothing, 1);
    for kind in [UpdateKind::Endpoint, UpdateKind::Route, UpdateKind::Full] {
        assert!(workload.touched(update(1, kind)).is_nothing());
        workload.change(update(1, kind));
    }
    assert_eq!(workload.snapshots()[0].roots(), BTreeMap::new());
    assert!(Workload::new(&nothing, 0).snapshots().is_empty());
}

/// In every fleet, and after every change.
#[test]
fn clients_are_told_apart_by_what_they_prefer() {
    let by_zone = Resources { preferred_by: vec!["zone".to_owned()], ..some() };
    let mut workload = Workload::new(&by_zone, 2);
    let rules = |workload: &Workload| {
        let count = |it: &Arc<Snapshot>| it.internal(Internal::Rules).len();
        workload.snapshots().iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(rules(&workload), [60, 60]);
    let update = Update { number: 1, kind: UpdateKind::Full, reach: Reach::EveryFleet };
    workload.change(update);
    assert_eq!(rules(&workload), [60, 60]);
    assert_eq!(rules(&Workload::new(&some(), 1)), [0]);
}

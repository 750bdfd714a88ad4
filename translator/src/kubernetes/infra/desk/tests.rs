use super::*;
use heliograph_gateway::World;
use heliograph_gateway::infra::{Infra, Proxies};
use heliograph_gateway::infra::{ProxyIdentity, RunAs};
use heliograph_gateway::objects::{Document, parse};
use heliograph_model::{InfraPort, TransportPort};

fn fleet() -> FleetName {
    FleetName::new("shop", "web")
}

fn infra(port: u16) -> Arc<Infra> {
    Arc::new(Infra {
        fleet: fleet(),
        ports: vec![InfraPort::new(TransportPort::tcp(port))],
        proxies: Some(Proxies {
            owner: FleetOwner::Gateway(ObjectName::new("shop", "web")),
            uid: "1".to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: Vec::new(),
            config: Default::default(),
        }),
    })
}

fn desk() -> Desk {
    Desk::new(ProxySettings {
        image: "envoy".to_owned(),
        host: "distributor".to_owned(),
        port: 18000,
        ca_bundle: None,
        ca_file: None,
        identity: ProxyIdentity::None,
        user: RunAs::default(),
        group: RunAs::default(),
    })
}

fn report(infra: Option<Arc<Infra>>) -> Report {
    let infra = infra.into_iter().map(|infra| (infra.fleet.clone(), infra)).collect();
    Report { infra, complete: true, ..Report::default() }
}

/// Nothing is to run for the Gateway, because of this.
fn unwanted(elsewhere: bool) -> Report {
    let mut report = report(None);
    let key = ObjectName::new("shop", "web").of(Kind::Gateway);
    let ignored = Ignored { ignored: "it is not ours".to_owned(), elsewhere };
    report.statuses.insert(key.clone(), Arc::new(Status::Ignored(ignored)));
    report.changed.push(key);
    report
}

fn listed(desk: &mut Desk) {
    for part in Part::ALL {
        desk.note(part, Event::Init);
        desk.note(part, Event::InitDone);
    }
}

/// What the API server would tell once the steps are taken.
fn take(desk: &mut Desk, steps: Vec<Step>) {
    for step in steps {
        if let Step::Apply(rendered) = step {
            let object = serde_json::from_value(rendered.object).unwrap();
            desk.note(rendered.part, Event::Apply(object));
        }
    }
}

fn kinds(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.part().kind()).collect()
}

#[test]
fn nothing_is_done_before_all_is_known() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    assert!(desk.next(now).is_none());
    desk.hear(&Report { complete: false, ..report(Some(infra(80))) });
    assert!(desk.next(now).is_none());
    desk.hear(&report(Some(infra(80))));
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ServiceAccount", "ConfigMap", "Service", "Deployment"]);
}

#[test]
fn a_part_that_cannot_be_watched_holds_up_no_other() {
    let (mut desk, now) = (desk(), Instant::now());
    desk.hear(&report(Some(infra(80))));
    assert!(desk.next(now).is_none(), "nothing is listed");
    desk.note(Part::Service, Event::Init);
    desk.note(Part::Service, Event::InitDone);
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

/// As when somebody takes its labels away.
#[test]
fn a_part_that_is_gone_is_applied_again() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    assert_eq!(desk.next(now), None);
    let mut remove = |part, namespace: &str| {
        let metadata = json!({ "name": "heliograph-web", "namespace": namespace });
        let object = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        desk.note(part, Event::Delete(object));
        desk.next(now)
    };
    assert_eq!(remove(Part::Service, "sho"), None, "that is not there");
    assert_eq!(remove(Part::Service, "shops"), None, "that is not there");
    assert_eq!(remove(Part::DaemonSet, "shop"), None, "that is not there");
    let (_, steps) = remove(Part::Service, "shop").unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

/// As when another one begins to lead: what there is is told part by part, and object by object.
#[test]
fn what_is_wanted_and_half_told_is_left_alone() {
    let (mut first, now) = (desk(), Instant::now());
    listed(&mut first);
    first.hear(&report(Some(infra(80))));
    let (_, there) = first.next(now).unwrap();

    let mut next = desk();
    next.hear(&report(Some(infra(80))));
    for step in &there {
        let Step::Apply(rendered) = step else { panic!("{step:?}") };
        let object: DynamicObject = serde_json::from_value(rendered.object.clone()).unwrap();
        next.note(rendered.part, Event::Init);
        next.note(rendered.part, Event::InitApply(object));
        let half = next.next(now);
        assert_eq!(half, None, "{} is not told whole", rendered.part.kind());
        next.note(rendered.part, Event::InitDone);
        assert_eq!(next.next(now), None);
    }
}

#[test]
fn what_is_as_it_should_be_is_left_alone_and_drift_is_not() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    assert!(desk.next(now).is_none(), "it is being worked on");
    let service = steps.iter().find_map(|step| match step {
        Step::Apply(rendered) if rendered.part == Part::Service => Some(rendered.clone()),
        _ => None,
    });
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    assert!(desk.next(now).is_none());

    let mut drifted = service.unwrap().object;
    drifted["spec"]["type"] = json!("ClusterIP");
    desk.note(Part::Service, Event::Apply(serde_json::from_value(drifted).unwrap()));
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

#[test]
fn one_changed_gateway_is_one_piece_of_work() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    desk.next(now);
    desk.hear(&report(Some(infra(8080))));
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"], "a port more replaces no pod");
}

#[test]
fn what_runs_goes_when_another_controller_has_the_gateway_and_not_before() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    desk.hear(&report(None));
    assert!(desk.next(now).is_none(), "the Gateway is deleted, or cannot be read");
    desk.hear(&unwanted(false));
    assert!(desk.next(now).is_none(), "its class is missing");
    let mut report = unwanted(true);
    report.changed.push(ObjectName::new("shop", "web").of(Kind::Gateway));
    desk.hear(&report);
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ServiceAccount", "ConfigMap", "Service", "Deployment"]);
    assert!(steps.iter().all(|step| matches!(step, Step::Delete { .. })));
}

#[test]
fn a_copy_of_ours_with_another_name_is_somebody_elses() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&unwanted(true));
    let copy = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "copy", "namespace": "shop", "uid": "1",
            "annotations": { names::GATEWAY_ANNOTATION: "web" },
            "labels": { names::FLEET_NAMESPACE_LABEL: "shop" },
        },
    });
    desk.note(Part::Service, Event::Apply(serde_json::from_value(copy.clone()).unwrap()));
    assert!(desk.next(now).is_none());
    let mut ours = copy;
    ours["metadata"]["name"] = json!("heliograph-web");
    ours["metadata"]["labels"][names::FLEET_NAMESPACE_LABEL] = json!("elsewhere");
    desk.note(Part::Service, Event::Apply(serde_json::from_value(ours.clone()).unwrap()));
    assert!(desk.next(now).is_none(), "it was copied from another namespace");
    ours["metadata"]["labels"][names::FLEET_NAMESPACE_LABEL] = json!("shop");
    desk.note(Part::Service, Event::Apply(serde_json::from_value(ours).unwrap()));
    assert!(desk.next(now).is_some());
}

#[test]
fn new_authorities_are_for_all_and_replace_no_pod() {
    let (mut desk, now) = (desk(), Instant::now());
    desk.set_ca_bundle("old".to_owned());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    assert!(desk.next(now).is_none());
    desk.set_ca_bundle("new".to_owned());
    let (_, steps) = desk.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ConfigMap"]);
}

#[test]
fn a_failure_is_tried_again_later() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, _) = desk.next(now).unwrap();
    desk.done(&fleet, Err("no".to_owned()), now);
    assert!(desk.next(now).is_none());
    let again = desk.next_retry().unwrap();
    assert!(again > now && desk.next(again).is_some());
    assert_eq!(desk.next_retry(), None, "it is being worked on");
}

#[test]
fn a_gateway_of_which_nothing_can_be_told_keeps_what_it_has() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&report(Some(infra(80))));
    let (fleet, steps) = desk.next(now).unwrap();
    take(&mut desk, steps);
    desk.done(&fleet, Ok(()), now);
    let refused = Infra { proxies: None, ports: vec![], ..(*infra(80)).clone() };
    desk.hear(&report(Some(Arc::new(refused))));
    assert!(desk.next(now).is_none());
}

/// What is wanted for Gateways of these names, without their statuses.
fn wanted(names: &[&str]) -> Report {
    let infra = names.iter().map(|name| {
        let owner = FleetOwner::Gateway(ObjectName::new("shop", name));
        let mut infra = (*infra(80)).clone();
        infra.fleet = owner.fleet();
        infra.proxies.as_mut().unwrap().owner = owner;
        (infra.fleet.clone(), Arc::new(infra))
    });
    Report { infra: infra.collect(), complete: true, ..Report::default() }
}

/// Takes what steps there are, and returns for which fleets, and those that are refused.
fn work(desk: &mut Desk, now: Instant) -> (Vec<String>, Vec<String>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    while let Some((fleet, steps)) = desk.next(now) {
        match desk.obstacle(&fleet, &steps) {
            None => {
                take(desk, steps);
                desk.done(&fleet, Ok(()), now);
                taken.push(fleet.to_string());
            }
            Some(why) => {
                refused.push(format!("{fleet}: {}", why.split(' ').nth(1).unwrap()));
                desk.done(&fleet, Err(why), now);
            }
        }
    }
    (taken, refused)
}

#[test]
fn of_gateways_whose_names_come_to_the_same_one_has_it_and_the_other_waits() {
    let dotted = names::object_name(&FleetOwner::Gateway(ObjectName::new("shop", "a.b")));
    let long = "z".repeat(253);
    let account = names::account_name(&FleetOwner::Gateway(ObjectName::new("shop", &long)));
    for (one, other) in [
        ("a.b", dotted.strip_prefix("heliograph-").unwrap()),
        (&*long, &*names::label_value(&long)),
        (&*long, account.strip_prefix("heliograph-").unwrap()),
    ] {
        let (first, second) = if one < other { (one, other) } else { (other, one) };
        let (mut desk, now) = (desk(), Instant::now());
        listed(&mut desk);
        let fleet = |name: &str| format!("shop/{name}");
        let refused = |name: &str, by: &str| format!("shop/{name}: {by}");

        // Both are new: the same one has it, in whatever order they are looked at.
        desk.hear(&wanted(&[one, other]));
        let did = work(&mut desk, now);
        assert_eq!(did, (vec![fleet(first)], vec![refused(second, first)]));
        assert_eq!(desk.failing(), 1);

        // It goes, and the other one has its turn.
        desk.hear(&wanted(&[second]));
        let later = now + LONGEST_PAUSE;
        assert_eq!(work(&mut desk, later), (vec![], vec![refused(second, first)]), "it still runs");
        for part in Part::ALL {
            desk.note(part, Event::Init);
            desk.note(part, Event::InitDone);
        }
        let later = later + LONGEST_PAUSE;
        assert_eq!(work(&mut desk, later), (vec![fleet(second)], vec![]));

        // Who runs stays, whatever comes.
        desk.hear(&wanted(&[one, other]));
        assert_eq!(work(&mut desk, later), (vec![], vec![refused(first, second)]));
    }
}

#[test]
fn gateways_that_are_gone_leave_nothing() {
    let (mut desk, now) = (desk(), Instant::now());
    listed(&mut desk);
    desk.hear(&wanted(&["web", "a.b"]));
    work(&mut desk, now);
    desk.hear(&wanted(&[]));
    listed(&mut desk);
    assert!(desk.rivals.is_empty(), "{:?}", desk.rivals);
}

const CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: edge}
spec:
  controllerName: heliograph.dev/gateway-controller
  parametersRef: {group: heliograph.dev, kind: ProxyConfig, name: edge, namespace: infra}
";
const APART: &str = "
apiVersion: heliograph.dev/v1alpha1
kind: ProxyConfig
metadata: {name: edge, namespace: infra}
spec: {}
";
const TOGETHER: &str = "
apiVersion: heliograph.dev/v1alpha1
kind: ProxyConfig
metadata: {name: edge, namespace: infra}
spec: {mergeGateways: true}
";
const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop, uid: '1'}
spec:
  gatewayClassName: edge
  listeners: [{name: http, port: 80, protocol: HTTP}]
";

/// What follows from these objects, all of which are news.
fn report_of(objects: &[&str]) -> Report {
    let mut world = World::new();
    for document in objects.iter().flat_map(|object| parse(object)) {
        let Document::Object(object) = document else { panic!("{document:?}") };
        world.apply(heliograph_gateway::Event::Applied(object));
    }
    world.settle();
    let mut report = report(None);
    report.infra =
        world.infra().map(|infra| (infra.fleet.clone(), Arc::new(infra.clone()))).collect();
    for (key, status) in world.statuses() {
        report.statuses.insert(key.clone(), Arc::new(status.clone()));
        report.changed.push(key.clone());
    }
    report
}

/// Hears that, and does all there is to do. Returns for which fleets, and whether that is to make or to delete.
fn follow(desk: &mut Desk, report: &Report) -> Vec<(String, &'static str)> {
    // Whoever begins reads all.
    desk.read = u64::MAX;
    desk.hear(report);
    let (mut did, now) = (Vec::new(), Instant::now());
    while let Some((fleet, steps)) = desk.next(now) {
        let deletes = steps.iter().filter(|step| matches!(step, Step::Delete { .. })).count();
        let what = if deletes == steps.len() { "delete" } else { "make" };
        assert!(deletes == 0 || what == "delete", "{steps:?}");
        did.push((fleet.to_string(), what));
        for step in &steps {
            if let Step::Delete { part, name, .. } = step {
                desk.drop_one(*part, &fleet, name.clone());
            }
        }
        take(desk, steps);
        desk.done(&fleet, Ok(()), now);
    }
    did
}

#[test]
fn what_gateways_share_is_made_once_and_goes_when_none_of_them_does() {
    let mut desk = desk();
    listed(&mut desk);
    let did = |fleet: &str, what| (fleet.to_owned(), what);
    assert_eq!(follow(&mut desk, &report_of(&[CLASS, APART, GATEWAY])), [did("shop/web", "make")]);
    assert_eq!(
        follow(&mut desk, &report_of(&[CLASS, TOGETHER, GATEWAY])),
        [did("infra/class:edge", "make"), did("shop/web", "delete")]
    );
    let shared = "infra/class:edge";
    assert_eq!(follow(&mut desk, &report_of(&[CLASS, GATEWAY])), [], "nothing can be told");
    assert_eq!(follow(&mut desk, &report_of(&[GATEWAY])), [], "the class may come back");
    assert_eq!(follow(&mut desk, &report_of(&[CLASS, TOGETHER])), [did(shared, "delete")]);
    assert_eq!(follow(&mut desk, &report_of(&[CLASS, TOGETHER, GATEWAY])), [did(shared, "make")]);
    assert_eq!(follow(&mut desk, &report_of(&[GATEWAY])), []);
    assert_eq!(
        follow(&mut desk, &report_of(&[])),
        [did(shared, "delete")],
        "nothing names the class"
    );
    assert_eq!(follow(&mut desk, &report_of(&[CLASS, TOGETHER, GATEWAY])), [did(shared, "make")]);
    assert_eq!(
        follow(&mut desk, &report_of(&[CLASS, APART, GATEWAY])),
        [did(shared, "delete"), did("shop/web", "make")]
    );
}

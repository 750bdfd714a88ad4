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

fn state() -> ReconcileState {
    ReconcileState::new(ProxySettings {
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

fn listed(state: &mut ReconcileState) {
    for part in Part::ALL {
        state.apply_event(part, Event::Init);
        state.apply_event(part, Event::InitDone);
    }
}

/// What the API server would tell once the steps are taken.
fn apply_steps(state: &mut ReconcileState, steps: Vec<Step>) {
    for step in steps {
        if let Step::Apply(rendered) = step {
            let object = serde_json::from_value(rendered.object).unwrap();
            state.apply_event(rendered.part, Event::Apply(object));
        }
    }
}

fn kinds(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.part().kind()).collect()
}

#[test]
fn nothing_is_done_before_all_is_known() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    assert!(state.next(now).is_none());
    state.update_wanted(&Report { complete: false, ..report(Some(infra(80))) });
    assert!(state.next(now).is_none());
    state.update_wanted(&report(Some(infra(80))));
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ServiceAccount", "ConfigMap", "Service", "Deployment"]);
}

#[test]
fn a_part_that_cannot_be_watched_holds_up_no_other() {
    let (mut state, now) = (state(), Instant::now());
    state.update_wanted(&report(Some(infra(80))));
    assert!(state.next(now).is_none(), "nothing is listed");
    state.apply_event(Part::Service, Event::Init);
    state.apply_event(Part::Service, Event::InitDone);
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

/// As when its labels are removed.
#[test]
fn a_part_that_is_gone_is_applied_again() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    assert_eq!(state.next(now), None);
    let mut remove = |part, namespace: &str| {
        let metadata = json!({ "name": "heliograph-web", "namespace": namespace });
        let object = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        state.apply_event(part, Event::Delete(object));
        state.next(now)
    };
    assert_eq!(remove(Part::Service, "sho"), None, "that is not there");
    assert_eq!(remove(Part::Service, "shops"), None, "that is not there");
    assert_eq!(remove(Part::DaemonSet, "shop"), None, "that is not there");
    let (_, steps) = remove(Part::Service, "shop").unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

/// As when another translator begins to lead: the existing objects arrive part by part, and object by object.
#[test]
fn what_is_wanted_and_half_told_is_left_alone() {
    let (mut first, now) = (state(), Instant::now());
    listed(&mut first);
    first.update_wanted(&report(Some(infra(80))));
    let (_, there) = first.next(now).unwrap();

    let mut next = state();
    next.update_wanted(&report(Some(infra(80))));
    for step in &there {
        let Step::Apply(rendered) = step else { panic!("{step:?}") };
        let object: DynamicObject = serde_json::from_value(rendered.object.clone()).unwrap();
        next.apply_event(rendered.part, Event::Init);
        next.apply_event(rendered.part, Event::InitApply(object));
        let half = next.next(now);
        assert_eq!(half, None, "{} is not told whole", rendered.part.kind());
        next.apply_event(rendered.part, Event::InitDone);
        assert_eq!(next.next(now), None);
    }
}

#[test]
fn what_is_as_it_should_be_is_left_alone_and_drift_is_not() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    assert!(state.next(now).is_none(), "it is being worked on");
    let service = steps.iter().find_map(|step| match step {
        Step::Apply(rendered) if rendered.part == Part::Service => Some(rendered.clone()),
        _ => None,
    });
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    assert!(state.next(now).is_none());

    let mut drifted = service.unwrap().object;
    drifted["spec"]["type"] = json!("ClusterIP");
    state.apply_event(Part::Service, Event::Apply(serde_json::from_value(drifted).unwrap()));
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"]);
}

#[test]
fn one_changed_gateway_is_one_piece_of_work() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    state.next(now);
    state.update_wanted(&report(Some(infra(8080))));
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["Service"], "a port more replaces no pod");
}

#[test]
fn what_runs_goes_when_another_controller_has_the_gateway_and_not_before() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    state.update_wanted(&report(None));
    assert!(state.next(now).is_none(), "the Gateway is deleted, or cannot be read");
    state.update_wanted(&unwanted(false));
    assert!(state.next(now).is_none(), "its class is missing");
    let mut report = unwanted(true);
    report.changed.push(ObjectName::new("shop", "web").of(Kind::Gateway));
    state.update_wanted(&report);
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ServiceAccount", "ConfigMap", "Service", "Deployment"]);
    assert!(steps.iter().all(|step| matches!(step, Step::Delete { .. })));
}

#[test]
fn a_copy_of_ours_with_another_name_is_somebody_elses() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&unwanted(true));
    let copy = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "copy", "namespace": "shop", "uid": "1",
            "annotations": { names::GATEWAY_ANNOTATION: "web" },
            "labels": { names::FLEET_NAMESPACE_LABEL: "shop" },
        },
    });
    state.apply_event(Part::Service, Event::Apply(serde_json::from_value(copy.clone()).unwrap()));
    assert!(state.next(now).is_none());
    let mut ours = copy;
    ours["metadata"]["name"] = json!("heliograph-web");
    ours["metadata"]["labels"][names::FLEET_NAMESPACE_LABEL] = json!("elsewhere");
    state.apply_event(Part::Service, Event::Apply(serde_json::from_value(ours.clone()).unwrap()));
    assert!(state.next(now).is_none(), "it was copied from another namespace");
    ours["metadata"]["labels"][names::FLEET_NAMESPACE_LABEL] = json!("shop");
    state.apply_event(Part::Service, Event::Apply(serde_json::from_value(ours).unwrap()));
    assert!(state.next(now).is_some());
}

#[test]
fn new_authorities_are_for_all_and_replace_no_pod() {
    let (mut state, now) = (state(), Instant::now());
    state.set_ca_bundle("old".to_owned());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    assert!(state.next(now).is_none());
    state.set_ca_bundle("new".to_owned());
    let (_, steps) = state.next(now).unwrap();
    assert_eq!(kinds(&steps), ["ConfigMap"]);
}

#[test]
fn a_failure_is_tried_again_later() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, _) = state.next(now).unwrap();
    state.done(&fleet, Err("no".to_owned()), now);
    assert!(state.next(now).is_none());
    let again = state.next_retry().unwrap();
    assert!(again > now && state.next(again).is_some());
    assert_eq!(state.next_retry(), None, "it is being worked on");
}

#[test]
fn a_gateway_of_which_nothing_can_be_told_keeps_what_it_has() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&report(Some(infra(80))));
    let (fleet, steps) = state.next(now).unwrap();
    apply_steps(&mut state, steps);
    state.done(&fleet, Ok(()), now);
    let refused = Infra { proxies: None, ports: vec![], ..(*infra(80)).clone() };
    state.update_wanted(&report(Some(Arc::new(refused))));
    assert!(state.next(now).is_none());
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
fn work(state: &mut ReconcileState, now: Instant) -> (Vec<String>, Vec<String>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    while let Some((fleet, steps)) = state.next(now) {
        match state.obstacle(&fleet, &steps) {
            None => {
                apply_steps(state, steps);
                state.done(&fleet, Ok(()), now);
                taken.push(fleet.to_string());
            }
            Some(why) => {
                refused.push(format!("{fleet}: {}", why.split(' ').nth(1).unwrap()));
                state.done(&fleet, Err(why), now);
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
        let (mut state, now) = (state(), Instant::now());
        listed(&mut state);
        let fleet = |name: &str| format!("shop/{name}");
        let refused = |name: &str, by: &str| format!("shop/{name}: {by}");

        // Both are new: the same one has it, in whatever order they are handled.
        state.update_wanted(&wanted(&[one, other]));
        let did = work(&mut state, now);
        assert_eq!(did, (vec![fleet(first)], vec![refused(second, first)]));
        assert_eq!(state.failing(), 1);

        // It goes, and the other one has its turn.
        state.update_wanted(&wanted(&[second]));
        let later = now + BACKOFF.longest;
        assert_eq!(
            work(&mut state, later),
            (vec![], vec![refused(second, first)]),
            "it still runs"
        );
        for part in Part::ALL {
            state.apply_event(part, Event::Init);
            state.apply_event(part, Event::InitDone);
        }
        let later = later + BACKOFF.longest;
        assert_eq!(work(&mut state, later), (vec![fleet(second)], vec![]));

        // Who runs stays, whatever comes.
        state.update_wanted(&wanted(&[one, other]));
        assert_eq!(work(&mut state, later), (vec![], vec![refused(first, second)]));
    }
}

#[test]
fn gateways_that_are_gone_leave_nothing() {
    let (mut state, now) = (state(), Instant::now());
    listed(&mut state);
    state.update_wanted(&wanted(&["web", "a.b"]));
    work(&mut state, now);
    state.update_wanted(&wanted(&[]));
    listed(&mut state);
    assert!(state.fleets_by_identifier.is_empty(), "{:?}", state.fleets_by_identifier);
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

/// Receives a report, and takes all steps. Returns the fleets, and whether each was made or deleted.
fn follow(state: &mut ReconcileState, report: &Report) -> Vec<(String, &'static str)> {
    // A new leader reads everything.
    state.read = u64::MAX;
    state.update_wanted(report);
    let (mut did, now) = (Vec::new(), Instant::now());
    while let Some((fleet, steps)) = state.next(now) {
        let deletes = steps.iter().filter(|step| matches!(step, Step::Delete { .. })).count();
        let what = if deletes == steps.len() { "delete" } else { "make" };
        assert!(deletes == 0 || what == "delete", "{steps:?}");
        did.push((fleet.to_string(), what));
        for step in &steps {
            if let Step::Delete { part, name, .. } = step {
                state.drop_one(*part, &fleet, name.clone());
            }
        }
        apply_steps(state, steps);
        state.done(&fleet, Ok(()), now);
    }
    did
}

#[test]
fn what_gateways_share_is_made_once_and_goes_when_none_of_them_does() {
    let mut state = state();
    listed(&mut state);
    let did = |fleet: &str, what| (fleet.to_owned(), what);
    assert_eq!(follow(&mut state, &report_of(&[CLASS, APART, GATEWAY])), [did("shop/web", "make")]);
    assert_eq!(
        follow(&mut state, &report_of(&[CLASS, TOGETHER, GATEWAY])),
        [did("infra/class:edge", "make"), did("shop/web", "delete")]
    );
    let shared = "infra/class:edge";
    assert_eq!(follow(&mut state, &report_of(&[CLASS, GATEWAY])), [], "nothing can be told");
    assert_eq!(follow(&mut state, &report_of(&[GATEWAY])), [], "the class may come back");
    assert_eq!(follow(&mut state, &report_of(&[CLASS, TOGETHER])), [did(shared, "delete")]);
    assert_eq!(follow(&mut state, &report_of(&[CLASS, TOGETHER, GATEWAY])), [did(shared, "make")]);
    assert_eq!(follow(&mut state, &report_of(&[GATEWAY])), []);
    assert_eq!(
        follow(&mut state, &report_of(&[])),
        [did(shared, "delete")],
        "nothing names the class"
    );
    assert_eq!(follow(&mut state, &report_of(&[CLASS, TOGETHER, GATEWAY])), [did(shared, "make")]);
    assert_eq!(
        follow(&mut state, &report_of(&[CLASS, APART, GATEWAY])),
        [did(shared, "delete"), did("shop/web", "make")]
    );
}

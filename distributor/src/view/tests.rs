use super::*;
use heliograph_distributor_protocol::NodeFields;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::node::UserAgentVersionType;
use heliograph_envoy::envoy::config::core::v3::{BuildVersion, Locality, Node};
use heliograph_envoy::envoy::r#type::v3::SemanticVersion;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_envoy::google::protobuf::{Struct, Value};
use heliograph_snapshot::{Change, FleetName, Resource, ResourceType};
use heliograph_views::{Admission, Audience, Operator, Requirement, Treatment};
use prometheus::IntCounter;

fn classes() -> (Arc<Classes>, IntCounter) {
    let class_limit_exceeded = IntCounter::new("class_limit_exceeded", "in a test").unwrap();
    (Arc::new(Classes::new(class_limit_exceeded.clone())), class_limit_exceeded)
}

/// A listener for each of so many racks alone.
fn racks(count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for rack in 0..count {
        let name = format!("rack-{rack}");
        let audience = Audience { labels: vec![requirement("rack", &name)], ..Audience::default() };
        let admission = Admission { audiences: vec![name.clone()] };
        let treatment = Treatment { admissions: vec![admission], ..Treatment::default() };
        let rules = [audience.resource(&name), treatment.resource(ResourceType::Listener, &name)];
        changes.extend(rules.map(|rule| Change::SetInternal(Internal::Rules, Arc::new(rule))));
        let listener = Resource::new(name, "body".into());
        changes.push(Change::Set(ResourceType::Listener, Arc::new(listener)));
    }
    changes
}

fn requirement(key: &str, value: &str) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In.into(),
        values: vec![value.to_owned()],
    }
}

fn list(node: &str, rack: &str) -> Change {
    let labels = [("rack".to_owned(), rack.to_owned())].into();
    let proxy = heliograph_views::Proxy { labels, ..Default::default() };
    Change::SetInternal(Internal::Directory, Arc::new(proxy.resource(node)))
}

fn info(node: &str) -> ClientInfo {
    ClientInfo { node: node.to_owned(), ..ClientInfo::default() }
}

/// Of a node that says which rack it is in.
fn claims(rack: &str) -> NodeClaims {
    let value = |kind| Value { kind: Some(kind) };
    let of = |key: &str, value| Struct { fields: [(key.to_owned(), value)].into() };
    let labels = value(Kind::StructValue(of("rack", value(Kind::StringValue(rack.to_owned())))));
    claims_of(&Node { metadata: Some(of("labels", labels)), ..Default::default() })
}

fn claims_of(node: &Node) -> NodeClaims {
    NodeClaims::of(&NodeFields::scan(&node.encode_to_vec()).unwrap())
}

fn snapshot(changes: Vec<Change>) -> Arc<Snapshot> {
    Arc::new(Snapshot::empty(FleetName::new("shop", "web")).with(Head::default(), changes))
}

fn listeners(view: &View) -> Vec<String> {
    let names = (0..3).map(|rack| format!("rack-{rack}"));
    names.filter(|name| view.version(ResourceType::Listener, name).is_some()).collect()
}

#[test]
fn clients_of_a_class_share_its_view_and_it_goes_with_the_last() {
    let (classes, _) = classes();
    let base = snapshot([racks(2), vec![list("a", "rack-0"), list("b", "rack-0")]].concat());
    let views = Views::new(base, classes.clone());
    let (mut one, mut other) = (ClassHandle::default(), ClassHandle::default());
    let [first, second] = [("a", &mut one), ("b", &mut other)]
        .map(|(node, class_handle)| views.of(&info(node), class_handle));
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(listeners(&first), ["rack-0"]);
    assert_eq!(classes.len(), 1);
    drop((one, other));
    assert_eq!(classes.len(), 0);
}

#[test]
fn a_class_sees_the_last_good_of_what_is_its_own() {
    let (classes, _) = classes();
    let kind = ResourceType::Listener;
    let [rejected, good] =
        ["body", "good"].map(|body| Arc::new(Resource::new("rack-0", body.into())));
    let (bad, last) = (rejected.version, good.version);
    let entry = heliograph_views::Quarantined { kind, rejected, good, lifted: false };
    let entry = Change::SetInternal(Internal::Quarantine, Arc::new(entry.resource()));
    let base = snapshot([racks(2), vec![list("a", "rack-0"), list("b", "rack-1"), entry]].concat());
    let views = Views::new(base, classes);
    let [own, other] = ["a", "b"].map(|node| views.of(&info(node), &mut ClassHandle::default()));
    assert_eq!(own.version(kind, "rack-0"), Some(last));
    assert!(own.has(kind, "rack-0", Some(bad)), "who has it keeps it");
    assert!(!other.has(kind, "rack-0", Some(bad)) && other.version(kind, "rack-0").is_none());
}

#[test]
fn who_is_listed_otherwise_sees_otherwise() {
    let (classes, _) = classes();
    let base = snapshot([racks(2), vec![list("a", "rack-0")]].concat());
    let views = Views::new(base.clone(), classes);
    let mut class_handle = ClassHandle::default();
    assert_eq!(listeners(&views.of(&info("a"), &mut class_handle)), ["rack-0"]);
    let moved = Arc::new(base.with(Head::default(), [list("a", "rack-1")]));
    let views = views.next(moved, SystemTime::UNIX_EPOCH);
    assert_eq!(listeners(&views.of(&info("a"), &mut class_handle)), ["rack-1"]);
    let without = Arc::new(
        base.with(Head::default(), [Change::RemoveInternal(Internal::Directory, "a".into())]),
    );
    assert!(
        listeners(&views.next(without, SystemTime::UNIX_EPOCH).of(&info("a"), &mut class_handle))
            .is_empty()
    );
}

#[test]
fn the_directory_counts_before_what_a_client_says() {
    let (classes, _) = classes();
    let claims = claims("rack-1");
    let views = Views::new(snapshot([racks(2), vec![list("a", "rack-0")]].concat()), classes);
    let listed = ClientInfo { node: "a".to_owned(), claims: claims.clone(), namespace: None };
    let stranger = ClientInfo { node: "b".to_owned(), claims, namespace: None };
    assert_eq!(listeners(&views.of(&listed, &mut ClassHandle::default())), ["rack-0"]);
    assert_eq!(listeners(&views.of(&stranger, &mut ClassHandle::default())), ["rack-1"]);
}

#[test]
fn too_many_classes_leave_the_others_the_view_of_none() {
    let (classes, class_limit_exceeded) = classes();
    let count = classes::MAX_CLASSES + 1;
    let listed = (0..count).map(|rack| list(&rack.to_string(), &format!("rack-{rack}")));
    let base = snapshot([racks(count), listed.collect()].concat());
    let views = Views::new(base, classes);
    let mut class_handles = Vec::new();
    for rack in 0..count {
        let mut class_handle = ClassHandle::default();
        let view = views.of(&info(&rack.to_string()), &mut class_handle);
        let own = view.version(ResourceType::Listener, &format!("rack-{rack}"));
        assert_eq!(own.is_some(), rack < classes::MAX_CLASSES, "{rack}");
        class_handles.push(class_handle);
    }
    assert_eq!(class_limit_exceeded.get(), 1);
    // A client that leaves makes room.
    class_handles.drain(..2);
    let last = classes::MAX_CLASSES;
    let view = views.of(&info(&last.to_string()), &mut ClassHandle::default());
    assert!(view.version(ResourceType::Listener, &format!("rack-{last}")).is_some());
}

#[test]
fn who_claims_to_be_of_many_classes_keeps_nobody_out_who_is_listed() {
    let (classes, class_limit_exceeded) = classes();
    let half = classes::MAX_CLAIMED_CLASSES;
    let listed = (half..2 * half).map(|rack| list(&rack.to_string(), &format!("rack-{rack}")));
    let views = Views::new(snapshot([racks(3 * half), listed.collect()].concat()), classes);
    let own = |info: &ClientInfo, rack: usize, class_handles: &mut Vec<ClassHandle>| {
        let mut class_handle = ClassHandle::default();
        let view = views.of(info, &mut class_handle);
        class_handles.push(class_handle);
        view.version(ResourceType::Listener, &format!("rack-{rack}")).is_some()
    };
    let stranger =
        |rack: usize| ClientInfo { claims: claims(&format!("rack-{rack}")), ..info("stranger") };
    let mut class_handles = Vec::new();
    for rack in 0..half {
        assert!(own(&stranger(rack), rack, &mut class_handles), "{rack}");
    }
    assert!(
        !own(&stranger(3 * half - 1), 3 * half - 1, &mut class_handles),
        "half of them is enough"
    );
    assert_eq!(class_limit_exceeded.get(), 1);
    // One place is that of those who have none.
    for rack in half..2 * half - 1 {
        assert!(own(&info(&rack.to_string()), rack, &mut class_handles), "{rack}");
        assert!(own(&stranger(rack), rack, &mut class_handles), "a class that is there is for all");
    }
    assert_eq!(class_limit_exceeded.get(), 1);
}

#[test]
fn without_rules_nobody_has_a_class() {
    let (classes, _) = classes();
    let views = Views::new(snapshot(vec![list("a", "rack-0")]), classes.clone());
    let (mut one, mut other) = (ClassHandle::default(), ClassHandle::default());
    assert!(Arc::ptr_eq(&views.of(&info("a"), &mut one), &views.of(&info("b"), &mut other)));
    assert_eq!(classes.len(), 0);
}

#[test]
fn a_version_and_a_place_are_taken_from_the_node() {
    let version = SemanticVersion { major_number: 1, minor_number: 31, patch: 2 };
    let build = BuildVersion { version: Some(version), ..Default::default() };
    let node = Node {
        locality: Some(Locality { zone: "a".to_owned(), ..Default::default() }),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
        ..Default::default()
    };
    let client =
        ClientInfo { claims: claims_of(&node), ..ClientInfo::default() }.client(&snapshot(vec![]));
    let (client, is_listed) = client;
    assert!(!is_listed);
    assert_eq!(client.version, "1.31.2".parse().ok());
    assert_eq!(client.proxy.labels, [(heliograph_views::ZONE.to_owned(), "a".to_owned())].into());
    assert_eq!(client.identity, None);
}

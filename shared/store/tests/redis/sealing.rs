//! Secrets are not in Redis for who has no key, and keys can be changed without anybody being told.

use crate::raw::Raw;
use crate::servers::Server;
use crate::world::{
    Keys, Leader, Program, cluster, confidential, fleet, next_update, secret, set, until_at,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use heliograph_snapshot::{Change, FleetName, Internal, Resource, ResourceType, Section, Version};
use heliograph_store::keys::KeyRing;
use heliograph_store::{
    AckReport, FeedbackSender, FleetReport, History, Inspector, Reader, RejectionReport,
    StoreError, Update, Writer,
};
use rcgen::KeyPair;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const OBJECTS: &str = "heliograph:{default/one}:objects";
const HEAD: &str = "heliograph:{default/one}:head";

/// A server with a fleet that has a secret now and had another one before.
struct Scene {
    server: Server,
    keys: Keys,
    one: FleetName,
    program: Program,
    leader: Leader,
    raw: Raw,
}

impl Scene {
    async fn new(secrets: [&[u8]; 2]) -> Self {
        let (server, keys) = (Server::start(&[]).await, Keys::new());
        let program = Program::open(&server.url(), &keys);
        let mut leader = program.lead(1).await;
        let one = fleet("one");
        for (number, body) in secrets.into_iter().enumerate() {
            let changes = [cluster(&number.to_string()), secret(&leader.store, "tls", body)];
            leader.publish(&one, changes).await.unwrap();
        }
        let raw = Raw::of(&server).await;
        Self { server, keys, one, program, leader, raw }
    }

    async fn rotate(&self, id: &str) {
        self.keys.write(&KeyRing::rotate(&self.keys.text(), id).unwrap());
        // The leader looks around every few seconds, and reads the file again.
        self.leader.store.inspect(vec![self.one.clone()]).await.unwrap();
    }
}

#[tokio::test]
async fn a_private_key_is_nowhere_in_redis() {
    let key = KeyPair::generate().unwrap();
    let (pem, der) = (key.serialize_pem(), key.serialize_der());
    let mut scene = Scene::new([pem.as_bytes(), &der]).await;
    let rejection = RejectionReport {
        kind: ResourceType::Secret,
        detail: "no".into(),
        resources: vec![("tls".into(), None)],
        count: 1,
    };
    let fleets =
        [(scene.one.clone(), FleetReport { rejections: vec![rejection], ..Default::default() })];
    let report =
        AckReport { replica: "replica".into(), fleets: fleets.into(), ..AckReport::default() };
    scene.program.store.send_report(report).await.unwrap();

    let everything = scene.raw.everything().await;
    let found = |needle: &[u8]| {
        everything.iter().any(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
    };
    assert!(found(b"tls"), "the names of secrets are there, so the search works");
    let mut needles =
        vec![pem.clone().into_bytes(), der.clone(), STANDARD.encode(&der).into_bytes()];
    needles.push(URL_SAFE_NO_PAD.encode(&der).into_bytes());
    needles.push(der[der.len() - 32..].to_vec());
    needles
        .extend(pem.lines().filter(|line| !line.is_empty()).map(|line| line.as_bytes().to_vec()));
    for needle in needles {
        assert!(!found(&needle), "{}", String::from_utf8_lossy(&needle));
    }
    // Nor can a guess be tried: neither address nor version is a hash that anybody can make.
    for guess in [pem.as_bytes(), &der] {
        assert!(!found(blake3::hash(guess).as_bytes()));
        let version = Version::of(guess);
        assert_ne!(
            scene.leader.held[&scene.one].get(ResourceType::Secret, "tls").unwrap().version,
            version
        );
    }
    let snapshot = scene.program.read(&scene.one).await.unwrap();
    assert_eq!(snapshot.get(ResourceType::Secret, "tls").unwrap().body, der);
    let history = scene.program.store.history(scene.one.clone()).await.unwrap();
    let before = scene.program.store.load(history[1].clone(), None).await.unwrap().snapshot;
    assert_eq!(before.get(ResourceType::Secret, "tls").unwrap().body, pem);
}

/// Whatever its type: a password in a cluster, one in the configuration of a filter, and one in a rule that no proxy is sent.
#[tokio::test]
async fn what_is_confidential_is_nowhere_in_redis() {
    const PASSWORDS: [&str; 4] = ["correct horse", "battery staple", "in a rule", "in a filter"];
    let mut scene = Scene::new([b"one", b"two"]).await;
    let (one, store) = (scene.one.clone(), scene.leader.store.clone());
    let (cluster, rules) = (ResourceType::Cluster, Section::from(Internal::Rules));
    let filter = ResourceType::ExtensionConfig;
    let open = "an open cluster ".repeat(100);
    for password in &PASSWORDS[..2] {
        let filler = password.repeat(100);
        let changes = [
            Change::Set(
                cluster,
                confidential(&store, cluster.into(), "small", password.as_bytes()),
            ),
            Change::Set(cluster, confidential(&store, cluster.into(), "large", filler.as_bytes())),
            set(cluster, "open", open.clone()),
            Change::Set(
                filter,
                confidential(&store, filter.into(), "filter", PASSWORDS[3].as_bytes()),
            ),
            Change::SetInternal(
                Internal::Rules,
                confidential(&store, rules, "a rule", PASSWORDS[2].as_bytes()),
            ),
        ];
        scene.leader.publish(&one, changes).await.unwrap();
    }
    let everything = scene.raw.everything().await;
    let found = |needle: &[u8]| {
        everything.iter().any(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
    };
    assert!(found(b"an open cluster"), "the search works");
    for password in PASSWORDS {
        assert!(!found(password.as_bytes()), "{password}");
        assert!(!found(blake3::hash(password.as_bytes()).as_bytes()), "the hash of {password}");
    }
    // Under another name the same content has another version, which is no hash that anybody can make.
    let twin = confidential(&store, cluster.into(), "twin", PASSWORDS[1].as_bytes());
    let snapshot = scene.program.read(&one).await.unwrap();
    let small = snapshot.get(cluster, "small").unwrap();
    assert_eq!(small.body, PASSWORDS[1]);
    assert!(small.version != twin.version && small.version != Version::of(&small.body));
    // What was marked is so again for who reads it, and nothing else is.
    assert!(small.is_confidential && snapshot.get(cluster, "large").unwrap().is_confidential);
    assert!(snapshot.internal(Internal::Rules).get("a rule").unwrap().is_confidential);
    assert!(snapshot.get(filter, "filter").unwrap().is_confidential);
    assert!(!snapshot.get(cluster, "open").unwrap().is_confidential);
    assert!(!snapshot.get(cluster, "cluster").unwrap().is_confidential);

    // The key changes, also for those of the history, and then the old one is not needed.
    scene.leader.clean(&one).await.unwrap();
    scene.rotate("second").await;
    let cleaned = store.clean(scene.leader.held[&one].clone()).await.unwrap();
    assert_eq!(cleaned.sealed_again, 2 + 2 * 2 + 1 + 1, "secrets, clusters, a rule and a filter");
    assert_eq!(store.clean(scene.leader.held[&one].clone()).await.unwrap().sealed_again, 0);
    scene.keys.write(&KeyRing::forget(&scene.keys.text(), "first").unwrap());
    let fresh = Program::open(&scene.server.url(), &scene.keys);
    let history = fresh.store.history(one.clone()).await.unwrap();
    for (record, password) in history.into_iter().zip([PASSWORDS[1], PASSWORDS[0]]) {
        let loaded = fresh.store.load(record, None).await.unwrap();
        assert!(loaded.unopened.is_empty());
        assert_eq!(loaded.snapshot.get(cluster, "small").unwrap().body, password);
    }
}

/// A new leader does not know what is sealed, and finds it by what the records say.
#[tokio::test]
async fn a_new_leader_seals_again_what_is_confidential_in_an_earlier_step() {
    let mut scene = Scene::new([b"one", b"two"]).await;
    let (one, cluster) = (scene.one.clone(), ResourceType::Cluster);
    let body = confidential(&scene.leader.store, cluster.into(), "cluster", b"correct horse");
    scene.leader.publish(&one, [Change::Set(cluster, body)]).await.unwrap();
    // From here on nothing of it is confidential.
    scene.leader.publish(&one, [crate::world::cluster("open")]).await.unwrap();
    scene.keys.write(&KeyRing::rotate(&scene.keys.text(), "second").unwrap());
    let program = Program::open(&scene.server.url(), &scene.keys);
    program.lead(2).await;
    let record = program.record(&one).await.unwrap();
    assert_eq!(record.partly_sealed, BTreeSet::new());
    let newest = program.store.load(record, None).await.unwrap().snapshot;
    assert_eq!(program.store.clean(newest).await.unwrap().sealed_again, 3, "two secrets and it");
}

/// Without a mark nothing would be sealed, and with a plain address a guess could be tried.
#[tokio::test]
async fn something_confidential_with_a_plain_address_is_not_written() {
    let mut scene = Scene::new([b"one", b"two"]).await;
    let plain = Resource::new("plain", "private".into()).confidential(true);
    let change = Change::Set(ResourceType::Cluster, Arc::new(plain));
    let refused = scene.leader.publish(&scene.one.clone(), [change]).await.unwrap_err();
    assert!(refused.to_string().contains("default/one: the cluster plain"), "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("private"));
}

#[tokio::test]
async fn a_secret_with_a_plain_address_is_not_written() {
    let mut scene = Scene::new([b"one", b"two"]).await;
    let plain = crate::world::set(ResourceType::Secret, "plain", "private");
    let refused = scene.leader.publish(&scene.one.clone(), [plain]).await.unwrap_err();
    assert!(refused.to_string().contains("default/one: the secret plain"), "{refused}");
    assert!(!refused.is_temporary());
    assert!(!format!("{refused} {refused:?}").contains("private"));
}

#[tokio::test]
async fn keys_change_and_nobody_is_told() {
    let mut scene = Scene::new([b"older secret", b"newer secret"]).await;
    let one = scene.one.clone();
    let mut subscription = scene.program.subscribe();
    until_at(&mut subscription, scene.leader.head(2)).await;
    assert!(matches!(next_update(&mut subscription).await, Update::Synced));
    scene.leader.clean(&one).await.unwrap();
    let (head, before) = (scene.raw.get(HEAD).await, scene.raw.hash(OBJECTS).await);

    scene.rotate("second").await;
    let cleaned = scene.leader.store.clean(scene.leader.held[&one].clone()).await.unwrap();
    assert_eq!(cleaned.sealed_again, 2, "the secret of the history too");
    assert_eq!(
        scene.leader.store.clean(scene.leader.held[&one].clone()).await.unwrap().sealed_again,
        0
    );
    assert_eq!(scene.program.metric("resealed_total"), 2);
    let after = scene.raw.hash(OBJECTS).await;
    assert_eq!(scene.raw.get(HEAD).await, head);
    assert!(before.keys().eq(after.keys()), "no address changes");
    let changed: BTreeMap<_, _> =
        after.iter().filter(|(at, value)| before[*at] != **value).collect();
    assert_eq!(changed.len(), 2, "and nothing but the two secrets does");

    scene.keys.write(&KeyRing::forget(&scene.keys.text(), "first").unwrap());
    let fresh = Program::open(&scene.server.url(), &scene.keys);
    for (place, body) in [b"newer secret", b"older secret"].into_iter().enumerate() {
        let record = fresh.store.history(one.clone()).await.unwrap()[place].clone();
        let loaded = fresh.store.load(record, None).await.unwrap();
        assert!(loaded.unopened.is_empty());
        assert_eq!(loaded.snapshot.get(ResourceType::Secret, "tls").unwrap().body, &body[..]);
    }
    // The reader heard nothing of it: the next it hears is the next change.
    scene.leader.publish(&one, [cluster("next")]).await.unwrap();
    let Update::Published(snapshot, _) = next_update(&mut subscription).await else { panic!() };
    assert_eq!(snapshot.head, scene.leader.head(3));
}

/// A new leader does not know what was sealed with which key, and looks.
#[tokio::test]
async fn a_new_leader_seals_again_what_the_last_one_did_not() {
    let scene = Scene::new([b"older secret", b"newer secret"]).await;
    scene.keys.write(&KeyRing::rotate(&scene.keys.text(), "second").unwrap());
    let program = Program::open(&scene.server.url(), &scene.keys);
    program.lead(2).await;
    let record = program.record(&scene.one).await.unwrap();
    let newest = program.store.load(record, None).await.unwrap().snapshot;
    // Its head is of the term before, because nothing changed.
    assert_eq!(program.store.clean(newest.clone()).await.unwrap().sealed_again, 2);
    assert_eq!(program.store.clean(newest).await.unwrap().sealed_again, 0);
    // The last one, if it is still there, does nothing any more.
    scene.keys.write(&KeyRing::rotate(&scene.keys.text(), "third").unwrap());
    scene.leader.store.inspect(Vec::new()).await.unwrap();
    let refused = scene.leader.store.clean(scene.leader.held[&scene.one].clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
}

#[tokio::test]
async fn who_lacks_the_key_gets_everything_else_until_it_has_it() {
    let mut scene = Scene::new([b"older secret", b"newer secret"]).await;
    let one = scene.one.clone();
    let elsewhere = scene.keys.copy();
    scene.rotate("second").await;
    scene.leader.store.clean(scene.leader.held[&one].clone()).await.unwrap();

    let reader = Program::open(&scene.server.url(), &elsewhere);
    let record = reader.record(&one).await.unwrap();
    let loaded = reader.store.load(record, None).await.unwrap();
    assert_eq!(loaded.unopened, [Arc::<str>::from("tls")]);
    assert!(loaded.snapshot.get(ResourceType::Secret, "tls").is_none());
    assert_eq!(loaded.snapshot.get(ResourceType::Cluster, "cluster").unwrap().body, "1");

    let mut subscription = reader.subscribe();
    let partial = until_at(&mut subscription, scene.leader.head(2)).await;
    assert_eq!(partial.tree(ResourceType::Secret).len(), 0);
    assert!(matches!(next_update(&mut subscription).await, Update::Synced));
    assert_eq!(subscription.unopened(), 1);

    elsewhere.write(&scene.keys.text());
    let whole = until_at(&mut subscription, scene.leader.head(2)).await;
    assert_eq!(whole.get(ResourceType::Secret, "tls").unwrap().body, "newer secret");
    assert_eq!(subscription.unopened(), 0);
    assert_eq!(reader.metric("sealing_keys"), 2);
    assert_eq!(reader.metric("damaged_objects_total"), 0);
    scene.leader.publish(&one, [cluster("next")]).await.unwrap();
    until_at(&mut subscription, scene.leader.head(3)).await;
}

/// A sealed secret is of use only where it belongs.
#[tokio::test]
async fn a_sealed_secret_opens_nowhere_else() {
    let mut scene = Scene::new([b"older secret", b"newer secret"]).await;
    let (one, two) = (scene.one.clone(), fleet("two"));
    let store = scene.leader.store.clone();
    scene.leader.publish(&two, [secret(&store, "tls", b"newer secret")]).await.unwrap();
    let secrets = ResourceType::Secret.into();
    let address = scene.program.store.address_of_sealed(secrets, "tls", b"newer secret").0;
    let other = scene.raw.hash("heliograph:{default/two}:objects").await;
    let ours = scene.raw.hash(OBJECTS).await;
    assert_ne!(other[address.as_slice()], ours[address.as_slice()]);
    scene.raw.set_field(OBJECTS, &address, &other[address.as_slice()]).await;
    crate::world::damaged(scene.program.read(&one).await);
    // Nor is it taken where it is not sealed.
    scene.raw.set_field(OBJECTS, &address, b"HG\x01\x05newer secret").await;
    crate::world::damaged(scene.program.read(&one).await);
}

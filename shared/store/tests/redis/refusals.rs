//! Servers that take no writes: the reason is said, readers notice nothing, and it passes without a restart.

use crate::servers::{Certificates, Server, until};
use crate::world::{Keys, Program, cluster, fleet, next_record, unavailable, until_synced};
use heliograph_store::redis::link::RedisArgs;
use heliograph_store::{History, Reader, StoreArgs, Writer};
use prometheus::Registry;
use std::fs;

#[tokio::test]
async fn a_redis_that_is_out_of_memory() {
    let server = Server::start(&[]).await;
    let limit = async |limit: &str| {
        server.query::<()>(&["CONFIG", "SET", "maxmemory", limit]).await.unwrap()
    };
    let broken = async || limit("1").await;
    refuses(&server, broken, async || limit("0").await, "out_of_memory", "raise its maxmemory")
        .await;
}

#[tokio::test]
async fn a_redis_whose_disk_is_full() {
    let server = Server::start(&["save 3600 1"]).await;
    let broken = async || server.break_disk().await;
    let repaired = async || server.repair_disk().await;
    refuses(&server, broken, repaired, "disk_full", "free or repair its disk").await;
}

#[tokio::test]
async fn a_redis_that_became_a_replica() {
    let server = Server::start(&[]).await;
    // Of a server that is away, so that it keeps what it has.
    let broken = async || server.query::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    let repaired = async || server.query::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    refuses(&server, broken, repaired, "read_only", "point --store at the master").await;
}

async fn refuses(
    server: &Server,
    broken: impl AsyncFnOnce(),
    repaired: impl AsyncFnOnce(),
    outcome: &str,
    advice: &str,
) {
    let keys = Keys::new();
    let (program, reader) =
        (Program::open(&server.url(), &keys), Program::open(&server.url(), &keys));
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    let mut watch = reader.store.watch();
    assert_eq!(until_synced(&mut *watch).await[&one].head, leader.head(1));

    broken().await;
    // The upload is refused, and where there is nothing to upload, the commit.
    let change = leader.draft(&one, [cluster("second")]);
    let unchanged = leader.draft(&one, []);
    for (draft, operation) in [(change.clone(), "upload"), (unchanged, "commit")] {
        let line = unavailable(program.store.publish(draft).await);
        assert!(line.starts_with("Redis at 127.0.0.1:") && line.contains(advice), "{line}");
        assert!(!line.contains('\n'), "{line}");
        let metric = format!("operations_total{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
        assert_eq!(program.metric(&metric), 1, "{metric}");
    }
    let line = unavailable(program.store.claim(Some(2)).await);
    assert!(line.contains(advice), "{line}");
    let snapshot = reader.read(&one).await.unwrap();
    assert!(snapshot.same_content(&leader.held[&one]));

    repaired().await;
    leader.insist(change).await;
    assert_eq!(next_record(&mut *watch).await.head, leader.head(2));
}

/// Everything that a program says on its command line: TLS with a client's certificate, user and password from files.
#[tokio::test]
async fn tls_and_users_together() {
    let (certificates, strangers, keys) = (Certificates::new(), Certificates::new(), Keys::new());
    let server =
        Server::start_tls(&certificates, &["user default off", "user ann on >secret ~* &* +@all"])
            .await;
    let folder = tempfile::tempdir().unwrap();
    let (user, password) = (folder.path().join("user"), folder.path().join("password"));
    fs::write(&user, "ann\n").unwrap();
    fs::write(&password, "wrong\n").unwrap();
    let (cert, key) = certificates.client();
    let args = StoreArgs {
        redis: RedisArgs {
            store: Some(server.tls_url().parse().unwrap()),
            store_ca: Some(certificates.ca()),
            store_cert: Some(cert),
            store_key: Some(key),
            store_username_file: Some(user),
            store_password_file: Some(password.clone()),
            ..RedisArgs::default()
        },
        store_keys: Some(keys.path()),
        store_prefix: "heliograph".to_owned(),
        store_history: 10,
    };
    let program = args.open(&Registry::new()).unwrap();
    let line = unavailable(program.claim(Some(1)).await);
    assert!(line.contains("check --store-username-file and --store-password-file"), "{line}");
    assert!(!line.contains("wrong"), "{line}");
    fs::write(&password, "secret").unwrap();
    until("the right password is used", async || program.claim(Some(1)).await.is_ok()).await;

    let mut trusting = args.clone();
    trusting.redis.store_ca = Some(strangers.ca());
    let misled = trusting.open(&Registry::new()).unwrap();
    let line = unavailable(misled.term().await);
    assert!(line.contains("check --store-ca"), "{line}");

    let mut watch = args.open(&Registry::new()).unwrap().watch();
    until_synced(&mut *watch).await;
    let mut leader = crate::world::Leader::of(&program, program.claim(Some(2)).await.unwrap());
    leader.publish(&fleet("one"), [cluster("first")]).await.unwrap();
    assert_eq!(next_record(&mut *watch).await.head, leader.head(1));
}

//! The users of `examples/redis/users.acl` may do what their programs do, and nothing else.

use crate::servers::{Cluster, Server, until, until_found};
use crate::world::{
    Keys, Leader, Program, cluster, endpoints, fleet, pin, secret, settings, until_synced,
};
use heliograph_store::keys::KeyRing;
use heliograph_store::redis::RedisOptions;
use heliograph_store::{
    AckReport, FeedbackReader, FeedbackSender, History, Inspector, PinOrder, Presence, Reader,
    Replicas, StoreError, Writer,
};
use std::time::{Duration, SystemTime};

/// A user, and the rest of its line.
struct User {
    name: String,
    rules: Vec<String>,
}

const BELL: &str = "heliograph:{index}:bell";
/// What is needed in a Cluster alone.
const OF_CLUSTERS: [&str; 4] = ["+hsetnx", "+spublish", "+ssubscribe", "+cluster|slots"];

fn users() -> Vec<User> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/redis/users.acl");
    let text = std::fs::read_to_string(path).unwrap();
    let user = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        assert_eq!(words.next().as_deref(), Some("user"));
        User { name: words.next().unwrap(), rules: words.collect() }
    };
    let users: Vec<_> = text.lines().map(user).collect();
    let names: Vec<_> = users.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(names, ["translator", "distributor", "operator"]);
    users
}

impl User {
    /// Its password, as the file says that it has to be replaced.
    fn password(&self) -> String {
        format!("{}-PASSWORD", self.name.to_uppercase())
    }

    /// The places of the rules without which the program cannot do its work.
    fn needed(&self, in_cluster: bool) -> Vec<usize> {
        let of_clusters = |rule: &str| {
            OF_CLUSTERS.contains(&rule) || self.name == "translator" && rule == "+ping"
        };
        let rules = self.rules.iter().enumerate();
        let needed =
            rules.filter(|(_, rule)| rule.starts_with('+') && of_clusters(rule) == in_cluster);
        needed.map(|(place, _)| place).collect()
    }

    /// Makes it a user of this server, without one of its rules.
    async fn enter(&self, server: &Server, without: Option<usize>) {
        let rules = self.rules.iter().enumerate().map(|(place, rule)| {
            // Of the last rule of a selector its end stays.
            let end = &rule[rule.find(')').unwrap_or(rule.len())..];
            if Some(place) == without { end } else { rule }
        });
        let mut words = vec!["ACL", "SETUSER", self.name.as_str(), "reset"];
        words.extend(rules.filter(|rule| !rule.is_empty()));
        server.query::<()>(&words).await.unwrap();
        server.query::<()>(&["ACL", "LOG", "RESET"]).await.unwrap();
        server.query::<()>(&["CONFIG", "RESETSTAT"]).await.unwrap();
        // As a server that was restarted knows none.
        server.query::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
    }

    fn url(&self, url: &str) -> String {
        let (scheme, places) = url.split_once("://").unwrap();
        format!("{scheme}://{}:{}@{places}", self.name, self.password())
    }

    async fn play(&self, stage: &Stage<'_>) -> Result<(), StoreError> {
        let second = Duration::from_secs(1);
        let settings = settings(&self.url(&stage.url)).with_timeouts(second, second);
        let options = RedisOptions { grace: Duration::ZERO, ..RedisOptions::default() };
        let program = Program::open_with(settings, &stage.keys, options);
        match self.name.as_str() {
            "translator" => translate(&program, stage).await,
            "distributor" => distribute(&program, stage).await,
            _ => operate(&program, stage).await,
        }
    }
}

/// Servers with a fleet, a replica that is there, and a report of one that is gone.
struct Stage<'a> {
    url: String,
    servers: Vec<&'a Server>,
    keys: Keys,
}

impl<'a> Stage<'a> {
    async fn new(url: String, servers: &[&'a Server]) -> Self {
        for server in servers {
            // A replica is emptied by its master.
            let _ = server.query::<()>(&["FLUSHALL"]).await;
        }
        let stage = Self { url, servers: servers.to_vec(), keys: Keys::new() };
        let tester = stage.tester();
        let mut leader = tester.lead(1).await;
        for body in ["first", "second"] {
            let changes = [cluster(body), secret(&leader.store, "tls", body.as_bytes())];
            leader.publish(&fleet("one"), changes).await.unwrap();
        }
        let report = AckReport { replica: "gone".into(), ..AckReport::default() };
        tester.store.send_report(report).await.unwrap();
        let presence = Presence { replica: "other".into(), ..Presence::default() };
        tester.store.send_presence(presence).await.unwrap();
        for server in &stage.servers {
            let _ = server.query::<()>(&["DEL", "heliograph:ack:{acks}:gone"]).await;
        }
        stage
    }

    fn tester(&self) -> Program {
        Program::open(&self.url.replace("://", "://tester:any@"), &self.keys)
    }

    /// How often a user was refused something.
    async fn refusals(&self) -> usize {
        let mut count = 0;
        for server in &self.servers {
            let log: Vec<redis::Value> = server.query(&["ACL", "LOG"]).await.unwrap();
            count += log.len();
        }
        count
    }

    async fn has_listener(&self) -> bool {
        for server in &self.servers {
            for command in ["NUMSUB", "SHARDNUMSUB"] {
                let told = server.query::<(String, u64)>(&["PUBSUB", command, BELL]).await;
                if told.is_ok_and(|(_, listeners)| listeners > 0) {
                    return true;
                }
            }
        }
        false
    }

    /// Until a listener listens, and has found out that a silent connection lives.
    async fn until_listener(&self) {
        until("somebody listens", async || self.has_listener().await).await;
        until("somebody pings", async || {
            for server in &self.servers {
                if server.field(&["INFO", "commandstats"], "cmdstat_ping").await.is_some() {
                    return true;
                }
            }
            false
        })
        .await;
    }
}

/// All that a translator does.
async fn translate(program: &Program, stage: &Stage<'_>) -> Result<(), StoreError> {
    let store = &program.store;
    let claim = store.claim(None).await?;
    let (one, two) = (fleet("one"), fleet("two"));
    let record = claim.records[&one].clone();
    let mut leader = Leader::of(store, claim);
    let found = store.load(record, None).await?.snapshot;
    leader.held.insert(one.clone(), found);
    leader.publish(&one, [cluster("third")]).await?;
    leader.publish(&one, [endpoints("fourth")]).await?;
    let mut orphaned = leader.draft(&one, [cluster("crashed")]);
    orphaned.expected = Some(leader.head(99));
    let _ = store.publish(orphaned).await;
    let record = store.history(one.clone()).await?.remove(0);
    store.restore_order(one.clone(), pin(leader.term.fence as u64, &record)).await?;
    stage
        .keys
        .write(&KeyRing::rotate(&stage.keys.text(), &format!("k{}", leader.term.fence)).unwrap());
    store.inspect(vec![one.clone()]).await?;
    let cleaned = store.clean(leader.held[&one].clone()).await?;
    assert!(cleaned.sealed_again > 0);
    assert!(leader.clean(&one).await? > 0);
    store.read_reports().await?;
    // As one that stands by.
    let mut watch = store.watch();
    until_synced(&mut *watch).await;
    stage.until_listener().await;
    leader.publish(&two, [cluster("first")]).await?;
    let old = SystemTime::now() - Duration::from_secs(30 * 24 * 3600);
    leader.retire(&two, old).await?;
    store.claim(None).await?;
    Ok(())
}

/// All that a distributor does.
async fn distribute(program: &Program, stage: &Stage<'_>) -> Result<(), StoreError> {
    let mut watch = program.store.watch();
    let found = until_synced(&mut *watch).await;
    stage.until_listener().await;
    program.store.load(found[&fleet("one")].clone(), None).await?;
    let report = AckReport { replica: "replica".into(), ..AckReport::default() };
    program.store.send_report(report).await?;
    let presence = Presence { replica: "replica".into(), ..Presence::default() };
    program.store.send_presence(presence).await?;
    program.store.read_presences().await.map(|_| ())
}

/// All that an operator does.
async fn operate(program: &Program, stage: &Stage<'_>) -> Result<(), StoreError> {
    let (store, one) = (&program.store, fleet("one"));
    store.inspect(vec![one.clone()]).await?;
    store.read_presences().await?;
    let history = store.history(one.clone()).await?;
    store.load(history[0].clone(), None).await?;
    let mut watch = store.watch();
    until_synced(&mut *watch).await;
    stage.until_listener().await;
    let number = PinOrder::next_number(store, store, &one, SystemTime::now()).await?;
    store.order(one, pin(number, &history[1])).await?;
    let term = store.term().await?;
    store.adopt(term).await.map(|_| ())
}

async fn plays(url: String, servers: &[&Server], in_cluster: bool) {
    for user in users() {
        for without in std::iter::once(None).chain(user.needed(in_cluster).into_iter().map(Some)) {
            let (outcome, refusals) = until_found("the users do their work", async || {
                let (outcome, refusals) = play(&user, without, &url, servers).await;
                // Who was not answered in time, and was refused nothing, has not shown what he may do.
                let is_late = matches!(outcome, Err(StoreError::Unavailable(_))) && refusals == 0;
                (!is_late).then_some((outcome, refusals))
            })
            .await;
            let Some(place) = without else {
                outcome.unwrap();
                assert_eq!(refusals, 0, "{} was refused something", user.name);
                continue;
            };
            // Each rule is needed, so that none is there for nothing and none can get lost.
            assert!(refusals > 0, "{} does not need {}: {outcome:?}", user.name, user.rules[place]);
        }
    }
}

/// What came of it, and how much was refused. With a rule too few it ends with the first refusal.
async fn play(
    user: &User,
    without: Option<usize>,
    url: &str,
    servers: &[&Server],
) -> (Result<(), StoreError>, usize) {
    let stage = Stage::new(url.to_owned(), servers).await;
    for server in servers {
        user.enter(server, without).await;
    }
    let outcome = if without.is_none() {
        user.play(&stage).await
    } else {
        tokio::select! {
            outcome = user.play(&stage) => outcome,
            () = until("it is refused", async || stage.refusals().await > 0) => Ok(()),
        }
    };
    (outcome, stage.refusals().await)
}

#[tokio::test]
async fn the_users_can_do_their_work_in_a_single_server() {
    let server = Server::start(&[]).await;
    plays(server.url(), &[&server], false).await;
}

#[tokio::test]
async fn the_users_can_do_their_work_in_a_cluster() {
    let cluster = Cluster::start().await;
    let servers: Vec<_> = cluster.nodes.iter().collect();
    plays(cluster.url(), &servers, true).await;
}

#[tokio::test]
async fn the_users_can_do_nothing_else() {
    let server = Server::start(&[]).await;
    let users = users();
    let everybody = [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG GET *",
        "ACL LIST",
        "SHUTDOWN",
        "SAVE",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "CLIENT KILL TYPE normal",
        "MONITOR",
        "RANDOMKEY",
        "DBSIZE",
        "GET other:{default/one}:head",
        "HGETALL other:{index}:heads",
        "GET heliograph",
        "SET other 1",
        "SUBSCRIBE other",
        "SSUBSCRIBE other",
        "PUBLISH other 1",
    ];
    let readers = [
        "SET heliograph:{default/one}:head 1",
        "HSET heliograph:{default/one}:objects a 1",
        "HDEL heliograph:{default/one}:objects a",
        "DEL heliograph:{default/one}:head",
        "UNLINK heliograph:{default/one}:objects",
        "LPUSH heliograph:{default/one}:history 1",
        "HSET heliograph:{index}:heads a 1",
        "SET heliograph:{index}:clock 1",
        "PUBLISH heliograph:{index}:bell 1",
        "EVAL redis.call('SET',KEYS[1],1) 1 heliograph:{default/one}:head",
        "RENAME heliograph:{index}:pins a",
        "GET heliograph:ack:{acks}:replica",
    ];
    let distributor = [
        "HSET heliograph:{index}:pins a 1",
        "HDEL heliograph:{index}:pins a",
        "SET heliograph:{index}:term 1",
        "EVAL return 0",
        "DEL heliograph:ack:{acks}:replica",
        "SET heliograph:ack:other 1",
        "DEL heliograph:replica:{replicas}:replica",
        "SET heliograph:replica:other 1",
    ];
    let operator = [
        "SET heliograph:ack:{acks}:replica 1",
        "SET heliograph:replica:{replicas}:replica 1",
        "DEL heliograph:{index}:term",
        "HSET heliograph:{index}:term a 1",
    ];
    for user in &users {
        user.enter(&server, None).await;
        let client = redis::Client::open(user.url(&server.url())).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let own: &[&str] = match user.name.as_str() {
            "translator" => &[],
            "distributor" => &distributor,
            _ => &operator,
        };
        let readers: &[&str] = if user.name == "translator" { &[] } else { &readers };
        for line in everybody.iter().chain(readers).chain(own) {
            let mut words = line.split(' ');
            let mut command = redis::cmd(words.next().unwrap());
            command.arg(words.collect::<Vec<_>>());
            let answer = command.query_async::<redis::Value>(&mut connection).await;
            let refused = answer.as_ref().is_err_and(|error| error.code() == Some("NOPERM"));
            assert!(refused, "{} may {line}: {answer:?}", user.name);
        }
    }
}

//! An operator rolls a fleet back, and then Redis loses its data, the leader changes, or both.

// Which order did damage.
#![allow(clippy::print_stdout)]

use crate::scene::fleet;
use crate::servers::{until, until_found};
use crate::site::{Site, at_every_site};
use crate::world::{World, answer, comes_true};
use heliograph_snapshot::FleetName;
use heliograph_store::{History, Inspector, PinOrder, Reader, Record};
use redis::cmd;
use std::sync::Arc;
use std::time::SystemTime;

const PINS: &str = "heliograph:{index}:pins";
const UNORDERED: &str = "heliograph_store_refused_records_total{reason=\"unordered\"}";
const PINNED: &str = "heliograph_translator_pinned_fleets";

at_every_site! {
    a_rollback_holds_in_every_order_of_losses_and_leaders,
    a_rollback_holds_where_redis_and_the_leader_are_lost_at_once,
    a_standby_holds_on_where_redis_and_the_leader_are_lost_at_once,
    a_pin_that_is_put_back_after_its_release_holds_nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    RollBack,
    LoseRedis,
    ChangeLeader,
}

use Deed::{ChangeLeader, LoseRedis, RollBack};

const ORDERS: [[Deed; 3]; 6] = [
    [RollBack, LoseRedis, ChangeLeader],
    [RollBack, ChangeLeader, LoseRedis],
    [LoseRedis, RollBack, ChangeLeader],
    [LoseRedis, ChangeLeader, RollBack],
    [ChangeLeader, RollBack, LoseRedis],
    [ChangeLeader, LoseRedis, RollBack],
];

async fn a_rollback_holds_in_every_order_of_losses_and_leaders(site: Site) {
    let mut world = site.world().await;
    for deeds in ORDERS {
        println!("{deeds:?}");
        let mut rollback = Rollback::prepare(&mut world).await;
        for deed in deeds {
            world.churn(3);
            match deed {
                RollBack => {
                    rollback.order(&world).await;
                }
                LoseRedis => {
                    let before = newest(&world).await;
                    site.empty().await;
                    until_newer(&world, &before).await;
                }
                ChangeLeader => {
                    drop(world.succeed().await);
                    until_leading(&world).await;
                }
            }
        }
        rollback.holds(&mut world).await;
        rollback.release(&mut world).await;
    }
    world.end().await;
}

/// The leader that knows of the order cannot write it again. The next one learns it from distributors, which do not
/// serve a head that undoes it.
async fn a_rollback_holds_where_redis_and_the_leader_are_lost_at_once(site: Site) {
    let mut world = site.world().await;
    let mut rollback = Rollback::prepare(&mut world).await;
    rollback.order(&world).await;
    world.way.cut();
    site.empty().await;
    world.churn(3);
    drop(world.succeed().await);
    comes_true("every distributor and its reader refuse to undo it", || {
        world.replicas.iter().all(|replica| replica.metric(UNORDERED) >= 2.0)
    })
    .await;
    rollback.holds(&mut world).await;
    rollback.release(&mut world).await;
    world.end().await;
}

/// Neither Redis nor the leader can tell of the order. Who stood by has read it, and what it holds: so distributors have
/// nothing to refuse, endpoints are published, and a distributor that starts afterwards serves the same.
async fn a_standby_holds_on_where_redis_and_the_leader_are_lost_at_once(site: Site) {
    let mut world = site.world().await;
    world.stand_by().await;
    let mut rollback = Rollback::prepare(&mut world).await;
    let order = rollback.order(&world).await;
    for stood_by in ["before the order was given", "after the order was restored"] {
        println!("a translator that stood by {stood_by}");
        if world.standby.is_none() {
            world.stand_by().await;
        }
        world.standby().until_loaded(order).await;
        let (before, sent) = (newest(&world).await, world.log.held_responses("edge"));
        world.way.cut();
        site.empty().await;
        world.churn(3);
        let address = world.move_endpoints();
        // Some time passes until a Lease has run out.
        world.standby().until_compared().await;
        drop(world.elect().await);
        until_newer(&world, &before).await;
        for envoy in world.envoys.iter().filter(|envoy| envoy.name.contains("edge")) {
            envoy.until_endpoint(&address).await;
            assert!(envoy.is_marked(rollback.good), "{} has lost what is held", envoy.name);
        }
        rollback.holds(&mut world).await;
        assert_eq!(world.log.held_responses("edge"), sent, "its proxies are sent endpoints alone");
        let refused = world.replicas.iter().map(|replica| replica.metric(UNORDERED));
        assert!(refused.sum::<f64>() == 0.0, "distributors refuse what the standby publishes");
    }
    world.add_replica().await;
    world.add_envoys(world.replicas.len() - 1);
    for envoy in world.envoys.iter().filter(|envoy| envoy.name.contains("edge")) {
        envoy.until_all_marked(rollback.good).await;
    }
    rollback.holds(&mut world).await;
    rollback.release(&mut world).await;
    world.end().await;
}

async fn a_pin_that_is_put_back_after_its_release_holds_nothing(site: Site) {
    let mut world = site.world().await;
    let mut rollback = Rollback::prepare(&mut world).await;
    rollback.order(&world).await;
    let edge = fleet("edge");
    let get = cmd("HGET").arg(PINS).arg(edge.as_str()).take();
    let replayed: Vec<u8> = site.ask(PINS, &get).await;
    rollback.release(&mut world).await;
    site.ask::<()>(PINS, cmd("HSET").arg(PINS).arg(edge.as_str()).arg(replayed)).await;
    let refused = "heliograph_store_refused_records_total{reason=\"older\"}";
    comes_true("the leader refuses it", || world.leader.metric(refused) >= 1.0).await;
    drop(world.succeed().await);
    comes_true("and so does the next", || world.leader.metric(refused) >= 1.0).await;
    world.settle().await;
    world.end().await;
}

/// What the fleet `edge` is rolled back to, and from.
struct Rollback {
    to: Arc<Record>,
    good: u32,
    /// Whether the order in force goes back to that, rather than to what there was.
    is_good: bool,
}

impl Rollback {
    /// A good change, and then another one.
    async fn prepare(world: &mut World) -> Self {
        let good = world.mark();
        let all: Vec<_> = (0..world.replicas.len()).collect();
        world.until_marked(&all, good).await;
        let to = until_found("there is a history", async || {
            let history = async || world.leader.store.history(fleet("edge")).await;
            answer("the history", history).await.unwrap().first().cloned()
        })
        .await;
        let bad = world.mark();
        world.until_marked(&all, bad).await;
        Self { to, good, is_good: false }
    }

    /// Until every proxy has what the fleet is held at. Where Redis lost its data, its history begins anew, with what holds
    /// the bad change: what is asked for is not there, and an operator would look for another way. Here the fleet is held
    /// at what there is.
    /// Returns the number of the order.
    async fn order(&mut self, world: &World) -> u64 {
        let store = &world.leader.store;
        let edge = fleet("edge");
        let at = until_found("there is a history", async || {
            let history = async || store.history(edge.clone()).await;
            let history = answer("the history", history).await.unwrap();
            let mut wanted = history.iter().filter(|step| step.head == self.to.head);
            wanted.next().or(history.first()).cloned()
        })
        .await;
        self.is_good = at.head == self.to.head;
        let number = give(store, Some(at)).await;
        comes_true("the leader obeys", || world.leader.metric(PINNED) >= 1.0).await;
        if self.is_good {
            for envoy in world.envoys.iter().filter(|envoy| envoy.name.contains("edge")) {
                envoy.until_all_marked(self.good).await;
            }
        }
        until("it is published so", async || {
            let newest = async || store.newest(vec![edge.clone()]).await;
            let newest = answer("the newest", newest).await.unwrap();
            newest.get(&edge).is_some_and(|record| record.pin.number == number)
        })
        .await;
        number
    }

    /// Changes reach the other fleet, and not this one; the leader says who holds it.
    async fn holds(&self, world: &mut World) {
        let later = world.mark();
        for replica in &world.replicas {
            replica.until_read(&[fleet("inner")], later).await;
        }
        for envoy in world.envoys.iter().filter(|envoy| envoy.name.contains("inner")) {
            envoy.until_marked(later).await;
        }
        comes_true("the leader holds it", || world.leader.metric(PINNED) >= 1.0).await;
        let edges = world.envoys.iter().filter(|envoy| envoy.name.contains("edge"));
        for envoy in edges {
            assert!(!envoy.is_marked(later), "{} has what is held back", envoy.name);
            assert!(!self.is_good || envoy.is_marked(self.good), "{} has another", envoy.name);
        }
        let store = &world.leader.store;
        let edge = fleet("edge");
        until("the order is in the store", async || {
            let order = ordered(store, &edge).await;
            order.is_some_and(|order| order.at.is_some() && &*order.by == "ann")
        })
        .await;
    }

    async fn release(&self, world: &mut World) {
        let _ = give(&world.leader.store, None).await;
        comes_true("the leader obeys", || world.leader.metric(PINNED) == 0.0).await;
        world.settle().await;
    }
}

/// Returns the number of the order.
async fn give(store: &(impl History + Reader), at: Option<Arc<Record>>) -> u64 {
    let (edge, now) = (fleet("edge"), SystemTime::now());
    let next = async || PinOrder::next_number(store, store, &edge, now).await;
    let number = answer("the next number", next).await.unwrap();
    let order =
        PinOrder { number, at, time: now, by: "ann".into(), reason: "checkout is broken".into() };
    let given = answer("the order", async || store.order(edge.clone(), order.clone()).await).await;
    if let Err(refused) = given {
        // The answer to an earlier attempt may have been lost.
        let ordered = ordered(store, &edge).await.map(|order| order.number);
        assert_eq!(ordered, Some(number), "{refused}");
    }
    number
}

/// What an operator ordered of a fleet, as the store has it.
async fn ordered(store: &impl Inspector, fleet: &FleetName) -> Option<PinOrder> {
    let inspection = async || store.inspect(vec![fleet.clone()]).await;
    answer("the orders", inspection).await.unwrap().orders.remove(fleet)
}

type Heads = Vec<(FleetName, Option<heliograph_snapshot::Head>)>;

async fn newest(world: &World) -> Heads {
    world.fleets().into_iter().map(|fleet| (fleet.clone(), world.log.newest(&fleet))).collect()
}

async fn until_newer(world: &World, before: &Heads) {
    comes_true("all is published again", || {
        before.iter().all(|(fleet, before)| world.log.newest(fleet) > *before)
    })
    .await;
}

/// Until the leader has read what there is. Before, what the fleet is held at is only in Redis and in distributors, as in
/// [`a_rollback_holds_where_redis_and_the_leader_are_lost_at_once`].
async fn until_leading(world: &World) {
    let metric = |name: &str| world.leader.metric(&format!("heliograph_translator_{name}"));
    comes_true("it leads", || metric("claimed") >= 1.0 && metric("pending_fleets") == 0.0).await;
}

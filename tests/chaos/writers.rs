//! Writers that are not alone: paused ones, rivals, and tokens that start low again.

use crate::scene::fleet;
use crate::servers::until_found;
use crate::site::{Site, at_every_site};
use crate::world::{World, answer, comes_true};
use heliograph_snapshot::Head;
use heliograph_store::{History, Term};

/// The bytes of a request that only a commit has.
const COMMIT: &[u8] = b"{index}:bell";

at_every_site! {
    a_writer_that_was_paused_before_its_commit_is_refused,
    of_two_writers_at_once_the_newer_token_wins,
    tokens_that_start_low_again_go_on_in_a_new_epoch,
}

/// As a leader that is stopped with SIGSTOP, at the worst moment: its objects are uploaded and its commit is on the way.
async fn a_writer_that_was_paused_before_its_commit_is_refused(site: Site) {
    let mut world = site.world().await;
    let own = world.log.newest(&fleet("edge")).unwrap().fence;
    world.way.stall_at(COMMIT);
    world.mark();
    world.way.until_stalled().await;
    let (paused, paused_way) = world.succeed().await;
    world.churn(5);
    world.settle().await;
    site.fail_over().await;
    world.settle().await;
    let before = published_by(&world, own);
    paused_way.repair();
    let reason = paused.until_ended().await;
    assert!(reason.contains("a newer term has begun"), "{reason}");
    assert_eq!(published_by(&world, own), before, "nothing of the paused one's was taken");
    world.end().await;
}

/// Of whoever has this token: the others may have had to repair something meanwhile.
fn published_by(world: &World, fence: u128) -> Vec<Head> {
    let heads = |fleet| world.log.published(fleet).into_keys().collect::<Vec<_>>();
    world.fleets().iter().flat_map(heads).filter(|head| head.fence == fence).collect()
}

async fn of_two_writers_at_once_the_newer_token_wins(site: Site) {
    let mut world = site.world().await;
    let (older, _older_way) = world.candidate(200).await;
    let (newer, newer_way) = world.candidate(201).await;
    // Each with something to write that the other has not.
    world.change(|scene| scene.change_endpoints());
    older.introduce(world.scene.all());
    world.change(|scene| scene.change_route());
    newer.introduce(world.scene.all());
    let former = std::mem::replace(&mut world.leader, newer);
    let _former_way = std::mem::replace(&mut world.way, newer_way);
    let (first, second) = tokio::join!(older.until_ended(), former.until_ended());
    for reason in [first, second] {
        assert!(reason.contains("a newer term has begun"), "{reason}");
    }
    world.settle().await;
    site.fail_over().await;
    world.settle().await;
    let term = answer("the term", async || world.leader.store.term().await).await;
    assert_eq!(term, Ok(Term { epoch: 0, fence: 201 }));
    world.end().await;
}

/// As after an etcd restore, or a move to another cluster.
async fn tokens_that_start_low_again_go_on_in_a_new_epoch(site: Site) {
    let mut world = site.world().await;
    let (low, _way) = world.candidate(7).await;
    low.introduce(world.scene.all());
    let reason = low.until_ended().await;
    assert!(reason.contains("`helio store adopt` lets this one continue"), "{reason}");
    world.settle().await;

    let store = world.leader.store.clone();
    let before = answer("the term", async || store.term().await).await.unwrap();
    let adopted = until_found("the new epoch", async || match store.adopt(before).await {
        Ok(adopted) => Some(adopted),
        // The answer may have been lost to what was done.
        Err(_) => store.term().await.ok().filter(|now| *now > before),
    })
    .await;
    assert!(adopted > before);
    let again = answer("a refusal", async || store.adopt(before).await).await;
    assert!(again.is_err(), "it was looked at before somebody else adopted");
    site.fail_over().await;
    let (low, way) = world.candidate(8).await;
    low.introduce(world.scene.all());
    let former = std::mem::replace(&mut world.leader, low);
    let _former_way = std::mem::replace(&mut world.way, way);
    former.until_ended().await;
    world.settle().await;
    comes_true("the low token writes", || {
        let newest = world.log.newest(&fleet("edge")).unwrap();
        (newest.epoch, newest.fence) == (adopted.epoch, 8)
    })
    .await;
    world.end().await;
}

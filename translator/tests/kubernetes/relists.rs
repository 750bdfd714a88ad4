//! Watches that break, on an API that breaks them.

use crate::faulty::{Faulty, Forbidden};
use crate::watches::Watched;
use heliograph_translator::provider::kubernetes::Scope;

async fn watched(api: &Faulty, routes: &[&str]) -> Watched {
    for route in routes {
        api.put_route(route, false);
    }
    let mut watched = Watched::start(api.client(), Scope::default());
    watched.until_synced().await;
    until("a watch", || api.watches() == 1).await;
    watched.log.clear();
    watched
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    crate::kubernetes::until(what, async || condition()).await;
}

#[tokio::test]
async fn a_watch_that_is_told_to_list_again_deletes_nothing_in_between() {
    let api = Faulty::new();
    let mut watched = watched(&api, &["a", "b", "c"]).await;
    let lists = api.lists();
    api.lose_route("b");
    api.put_route("d", false);
    api.hang_lists(true);
    api.expire_watches();
    until("it lists again", || api.lists() > lists).await;
    watched.receive_all();
    assert_eq!(watched.log, [""; 0], "nothing is deleted while the list is not complete");
    api.hang_lists(false);
    watched.until("the difference", |watched| !watched.has("HTTPRoute shop/b")).await;
    assert_eq!(watched.log, ["applied HTTPRoute shop/d", "deleted HTTPRoute shop/b"]);
    let counted = "watch_failures_total{kind=\"HTTPRoute\",reason=\"expired\"} 1";
    assert!(watched.metrics().contains(counted), "{}", watched.metrics());
    assert_eq!(watched.health.remarks(), [], "that happens every day");
}

#[tokio::test]
async fn a_watch_that_breaks_off_goes_on_where_it_was() {
    let api = Faulty::new();
    let mut watched = watched(&api, &["a"]).await;
    let lists = api.lists();
    api.drop_watches();
    until("a new watch", || api.watches() == 1).await;
    api.put_route("b", true);
    watched.until("the next change", |watched| watched.has("HTTPRoute shop/b")).await;
    assert_eq!(watched.log, ["applied HTTPRoute shop/b"]);
    assert_eq!(api.lists(), lists, "nothing is listed again");
}

/// A new leader makes sure that it knows everything: names and versions are compared, and what differs is fetched.
#[tokio::test]
async fn what_a_watch_did_not_tell_is_found_when_it_is_asked_for() {
    let api = Faulty::new();
    let mut watched = watched(&api, &["a", "b"]).await;
    api.lose_route("b");
    api.put_route("c", false);
    let asking = watched.refresh.ask();
    watched.until("fresh", |watched| watched.fresh >= asking).await;
    assert_eq!(watched.log, ["applied HTTPRoute shop/c", "deleted HTTPRoute shop/b"]);
}

/// A kind that may not be read any more does not keep a new leader from leading with what it knows.
#[tokio::test]
async fn who_may_not_read_a_kind_any_more_goes_on_with_what_it_has() {
    let api = Faulty::new();
    let mut watched = watched(&api, &["a"]).await;
    api.forbid(Forbidden::ListsAndWatches);
    until("a line", || watched.remarks("there is no permission to read httproutes")).await;
    let asking = watched.refresh.ask();
    watched.until("an answer", |watched| watched.fresh >= asking).await;
    assert_eq!(watched.log, [""; 0]);

    // Who may list, and not watch, is no better off, and is not told so again and again.
    api.forbid(Forbidden::Watches);
    let lists = api.probes();
    until("it is tried", || api.probes() > lists).await;
    assert!(
        watched.remarks("there is no permission to read httproutes"),
        "{:?}",
        watched.health.remarks()
    );
    api.forbid(Forbidden::Nothing);
    until("no line", || watched.health.remarks().is_empty()).await;
    until("a watch", || api.watches() == 1).await;
    api.put_route("b", true);
    watched.until("the next change", |watched| watched.has("HTTPRoute shop/b")).await;
}

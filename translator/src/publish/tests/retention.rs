//! What is kept of earlier versions is bounded over all fleets.

use super::*;
use crate::leave_out::Versions;
use std::sync::Weak;

const TABLE: usize = 16 << 10;
const FLEETS: usize = 16;
const MOST: usize = 8 * FLEETS * TABLE;

#[test]
fn many_fleets_keep_no_more_than_one() {
    let mut state = claimed(&[]).with_most_retained(MOST);
    state.want(&fleet("small"), vec![set("a", "1")], 1);
    state.complete();
    publish(&mut state, "small");
    let mut tables: Vec<Weak<Resource>> = Vec::new();
    // No proxy of theirs ever answers.
    for edit in 0..40 {
        for number in 0..FLEETS {
            let name = format!("large-{number:02}");
            let body = vec![edit; TABLE];
            let table = Arc::new(Resource::new("table", body.into()));
            tables.push(Arc::downgrade(&table));
            state.want(&fleet(&name), vec![Change::Set(ResourceType::Route, table)], 1);
            publish(&mut state, &name);
            let alive = tables.iter().filter(|table| table.strong_count() > 0).count();
            // The newest of each is there anyway.
            assert!(alive * TABLE <= MOST + FLEETS * TABLE, "{alive} tables");
        }
        state.want(&fleet("small"), vec![set("a", if edit % 2 == 0 { "2" } else { "3" })], 1);
        publish(&mut state, "small");
    }
    let versions = state.versions(&fleet("small")).unwrap();
    let first = Resource::new("a", "1".into()).version;
    assert!(
        versions.published_as(ResourceType::Cluster, "a", first).is_some(),
        "what has little keeps it"
    );
}

#[test]
fn a_fleet_that_is_gone_keeps_nothing() {
    let mut state = claimed(&[]);
    state.complete();
    let table = Arc::new(Resource::new("table", vec![1; TABLE].into()));
    let kept = Arc::downgrade(&table);
    state.want(&fleet("short"), vec![Change::Set(ResourceType::Route, table)], 1);
    publish(&mut state, "short");
    state.unwant(&fleet("short"));
    let retirement = step(&mut state);
    assert!(matches!(retirement, Step::Retire(_)), "{retirement:?}");
    succeed(&mut state, "short", retirement);
    assert_eq!(kept.strong_count(), 0);
}

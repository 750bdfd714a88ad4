//! What this replica tells the translator.

use crate::faulty::Faults;
use crate::world::*;
use heliograph_client::{Client, Protocol, State};
use heliograph_snapshot::ResourceType::Route;
use heliograph_store::{ACKS_EXPIRY, AckReport, FeedbackReader, FleetReport};
use std::sync::Arc;
use std::time::Duration;

/// Sooner than a report is repeated, so that what arrives in time was told because it changed.
const SOON: Duration = Duration::from_secs(ACKS_EXPIRY.as_secs() / 4);

/// The report of the fleet, once it is as wanted.
async fn reported(world: &World, wanted: impl Fn(&FleetReport) -> bool) -> (String, FleetReport) {
    let mut ticker = tokio::time::interval(Duration::from_millis(5));
    let looking = async {
        loop {
            let reports = world.store.inner().read_reports().await.unwrap();
            assert!(reports.len() <= 1, "one replica, one report: {reports:?}");
            for AckReport { replica, mut fleets, .. } in reports {
                if let Some(report) = fleets.remove(&fleet()).filter(|report| wanted(report)) {
                    return (replica, report);
                }
            }
            ticker.tick().await;
        }
    };
    tokio::time::timeout(SOON, looking).await.unwrap()
}

#[tokio::test]
async fn acknowledgements_and_rejections_are_reported_and_taken_back() {
    let mut world = World::start().await;
    let first = world.publish(&gateway("blue")).await;
    let easy = world.client(Protocol::Delta);
    let mut picky = world.options(Protocol::StateOfTheWorld);
    picky.rejects = Arc::new(|kind, name, body| {
        let led = body.windows(5).any(|part| part == b"green");
        (kind == Route && led).then(|| format!("{name} leads to green"))
    });
    let picky = Client::connect(picky).unwrap();
    let both = |report: &FleetReport| report.acknowledged == [(first, 2)].into();
    let (replica, report) = reported(&world, both).await;
    assert!(replica.starts_with("replica-7-") && replica.len() > "replica-7-".len(), "{replica}");
    assert_eq!((report.connected, report.rejections), (2, vec![]));

    let (_, table) = routes("table", "green");
    let second = world.publish(&gateway("green")).await;
    let (_, report) = reported(&world, |report| {
        !report.rejections.is_empty() && report.acknowledged.get(&second) == Some(&1)
    })
    .await;
    assert_eq!(report.connected, 2);
    let rejection = &report.rejections[0];
    assert_eq!(
        (rejection.kind, rejection.count, &*rejection.detail),
        (Route, 1, "table leads to green")
    );
    assert_eq!(rejection.resources, [("table".into(), Some(table.version))]);

    drop((easy, picky));
    let gone = |report: &FleetReport| report.connected == 0 && report.acknowledged.is_empty();
    let (_, report) = reported(&world, gone).await;
    assert_eq!(report.rejections.len(), 1, "it stands until it is healed");
}

#[tokio::test]
async fn a_store_that_takes_no_reports_harms_nobody() {
    let mut world = World::start().await;
    world.store.set(Faults { away: true, ..Faults::default() });
    let head = world.publish(&gateway("blue")).await;
    let client = world.client(Protocol::Delta);
    client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
    world.acknowledged(1).await;
    let failures = "heliograph_distributor_report_failures_total";
    assert!(comes_true(|| world.metric(failures) > 0).await);
    world.store.set(Faults::default());
    reported(&world, |report| report.acknowledged == [(head, 1)].into()).await;
}

use crate::Store;
use crate::writer::fleet;
use heliograph_snapshot::{Head, ResourceType, Version};
use heliograph_store::{AckReport, Dispute, FleetReport, RejectionReport, Voter, Voters};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) async fn reports_of_all_replicas_are_read_at_once(store: Arc<dyn Store>) {
    assert!(store.read_reports().await.unwrap().is_empty());
    let one = Head { epoch: 1, fence: 1 << 100, sequence: 3 };
    let rejection = RejectionReport {
        kind: ResourceType::Listener,
        detail: "error adding listener: no such filter".into(),
        resources: vec![("http".into(), Some(Version::of(b"http"))), ("gone".into(), None)],
        count: 2,
    };
    let report = FleetReport {
        connected: 5,
        acknowledged: [(one, 3), (Head::default(), 1)].into(),
        rejections: vec![rejection],
        disputes: vec![Dispute {
            kind: ResourceType::Listener,
            name: "http".into(),
            version: Version::of(b"http"),
            rejected: 2,
            accepted: 1,
            rejecting: vec![Voter(1), Voter(2)],
            accepting: vec![Voter(u64::MAX)],
        }],
        voters: Voters { count: 4, only: None },
        votes: [(one, Voters { count: 1, only: Some(Voter(7)) })].into(),
    };
    let full = AckReport {
        start: 1,
        sequence: u64::MAX,
        remembered: Vec::new(),
        replica: "distributor-1".into(),
        fleets: [(fleet("one"), report), (fleet("idle"), FleetReport::default())].into(),
        damaged: [(fleet("one"), one), (fleet("other"), Head::default())].into(),
    };
    let empty = AckReport { replica: "distributor-2".into(), ..AckReport::default() };
    for report in [&empty, &full] {
        store.send_report(report.clone()).await.unwrap();
    }
    assert_eq!(reports(&*store).await, [full.clone(), empty.clone()]);
    // A replica's word replaces its last.
    let changed = AckReport { fleets: BTreeMap::new(), ..full };
    store.send_report(changed.clone()).await.unwrap();
    assert_eq!(reports(&*store).await, [changed, empty]);
}

/// By replica.
async fn reports(store: &dyn Store) -> Vec<AckReport> {
    let mut reports = store.read_reports().await.unwrap();
    reports.sort_by(|one, other| one.replica.cmp(&other.replica));
    reports
}

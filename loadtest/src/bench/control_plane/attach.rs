use super::objects::{self, App, GATEWAY};
use super::status;
use super::testbed::{CONTROL_PLANE_TIMEOUT, Testbed, World};
use crate::bench::{Bench, BenchError, Contender, Figure, Results};
use crate::servers::{Kubernetes, ServersError};
use futures::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// When nothing more is written for so long, nothing more will be.
const QUIET_AFTER: Duration = Duration::from_secs(5);

/// Many routes on a Gateway that had none: the time until every status reports them as attached, and the number of
/// writes.
pub(super) async fn measure(
    bench: &Bench,
    contender: Contender,
    routes: usize,
    results: &mut Results,
) -> Result<(), BenchError> {
    // One is there before, so that the proxy can be seen to have a route.
    let mut testbed = Testbed::start(bench, contender, World::imagined(1, routes)).await?;
    let _proxy = testbed.proxy().await?;
    testbed.until_quiet(Duration::from_secs(5)).await?;
    let before = status::writes(&testbed.kubernetes).await?;
    let (_, version) = status::list(&testbed.kubernetes, &objects::gateways()).await?;
    let begun = Instant::now();
    let objects = (1..=routes).map(|app| App(app).route(GATEWAY, App(app)));
    let (created, settled) = tokio::join!(
        testbed.kubernetes.create_all(objects),
        settled(&testbed.kubernetes, &version, routes)
    );
    created?;
    let Settled { at, changes } = settled?;
    testbed.until_quiet(Duration::from_secs(3)).await?;
    let writes = status::writes(&testbed.kubernetes).await? - before;
    results.add(
        contender,
        vec![
            (Figure::AttachTime, at.duration_since(begun).as_secs_f64()),
            (Figure::AttachWrites, writes),
            (Figure::AttachIdleWrites, (writes - changes as f64).max(0.0)),
        ],
    );
    Ok(())
}

struct Settled {
    at: Instant,
    /// Statuses that became different.
    changes: usize,
}

async fn settled(
    kubernetes: &Kubernetes,
    version: &str,
    routes: usize,
) -> Result<Settled, ServersError> {
    let client = kubernetes.client();
    let params = WatchParams::default().timeout(290);
    let both = [watched(&client, "HTTPRoute"), watched(&client, "Gateway")];
    let mut streams = Vec::new();
    for api in &both {
        let events = api.watch(&params, version).await;
        streams.push(events.map_err(|error| ServersError::Api(error.to_string()))?.boxed());
    }
    let mut events = stream::select_all(streams);
    let (mut accepted, mut attached, mut changes) = (BTreeSet::new(), 0, 0);
    let mut at = None;
    loop {
        let limit = if at.is_some() { QUIET_AFTER } else { CONTROL_PLANE_TIMEOUT };
        let event = match tokio::time::timeout(limit, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Err(_) | Ok(None) => break,
            Ok(Some(Err(error))) => return Err(ServersError::Api(error.to_string())),
        };
        let WatchEvent::Modified(object) = event else { continue };
        changes += 1;
        let name = object.metadata.name.clone().unwrap_or_default();
        let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        let object = serde_json::to_value(&object).unwrap_or(Value::Null);
        if kind == "Gateway" {
            attached = status::attached(&object);
        } else if status::is_accepted(&object) {
            accepted.insert(name);
        }
        if at.is_none() && accepted.len() == routes && attached == routes as u64 + 1 {
            at = Some(Instant::now());
        }
    }
    let incomplete = || {
        let said = accepted.len();
        ServersError::Api(format!("{said} of {routes} routes are accepted, {attached} attached"))
    };
    Ok(Settled { at: at.ok_or_else(incomplete)?, changes })
}

fn watched(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "gateway.networking.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::all_with(client.clone(), &resource)
}

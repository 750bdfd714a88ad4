//! Fetches Secrets and ConfigMaps that objects name.

use super::api_failure::{ApiFailure, FailureReason};
use super::barrier::Barrier;
use super::contents::{Contents, Fetch, FetchReport, Fetched, Output};
use super::protection::{Message, Passed, Protection};
use super::served::Served;
use super::watch::{TLS_SECRETS, answer};
use super::watch_health::WatchHealth;
use crate::provider::Input;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use heliograph_gateway::objects::{Kind, ObjectKey, Unreadable};
use heliograph_shared::backoff::Backoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many fetches are open at most. Each may take as much memory as the API lets an object have.
const AT_ONCE: usize = 8;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// Moves what [`Protection`] and [`Contents`] decide: inputs from the watches to the translator, and fetches to the API.
pub(super) struct Fetcher {
    client: Client,
    inputs: mpsc::Sender<Input>,
    health: WatchHealth,
    barrier: Arc<Mutex<Barrier>>,
    protection: Protection,
    contents: Contents,
    open: FuturesUnordered<BoxFuture<'static, (Fetch, Result<Fetched, ApiFailure>)>>,
    /// The kinds of contents that objects wait for.
    awaited: BTreeSet<Kind>,
    /// The protecting kinds of which not everything is known.
    stale: BTreeSet<Kind>,
}

impl Fetcher {
    pub(super) fn new(
        client: Client,
        inputs: mpsc::Sender<Input>,
        health: WatchHealth,
        barrier: Arc<Mutex<Barrier>>,
        protection: Protection,
        content_bytes: u64,
    ) -> Self {
        Self {
            client,
            inputs,
            health,
            barrier,
            protection,
            contents: Contents::new(content_bytes),
            open: FuturesUnordered::new(),
            awaited: BTreeSet::new(),
            stale: BTreeSet::new(),
        }
    }

    /// Until the watches end, or the receiver is dropped.
    pub(super) async fn run(mut self, mut watched: mpsc::Receiver<Message>) {
        loop {
            while self.open.len() < AT_ONCE
                && let Some(fetch) = self.contents.next_fetch(Instant::now())
            {
                self.open.push(Box::pin(get(self.client.clone(), fetch)));
            }
            let due = self.contents.next_due().filter(|_| self.open.len() < AT_ONCE);
            let due = due.into_iter().chain(self.protection.next_due()).min();
            let mut output = tokio::select! {
                message = watched.recv() => match message {
                    Some(message) => {
                        let passed = self.protection.receive(message, Instant::now());
                        self.pass(passed)
                    }
                    None => return,
                },
                Some((fetch, answer)) = self.open.next() => self.answered(&fetch, answer),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    Output::default()
                }
            };
            let passed = self.protection.settle(|| self.contents.new_protecting());
            output.append(self.pass(passed));
            self.record(output.reports);
            for input in output.inputs {
                if self.inputs.send(input).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Passes objects that need not wait for policies on to `Contents`, where they wait for the contents that they name.
    fn pass(&mut self, Passed { inputs, waits }: Passed) -> Output {
        for (key, waits) in waits {
            self.health.record_waiting(key, waits);
        }
        let mut output = Output::default();
        for input in inputs {
            output.append(self.contents.receive(input));
        }
        output
    }

    fn answered(&mut self, fetch: &Fetch, answer: Result<Fetched, ApiFailure>) -> Output {
        let failure = match answer {
            Ok(fetched) => return self.contents.fetched(fetch, fetched),
            Err(failure) => failure,
        };
        let again_at = |failures| Instant::now() + BACKOFF.jittered(failures, fastrand::f64());
        let is_forbidden = failure.reason == FailureReason::Forbidden;
        let (failures, output) = self.contents.failed(fetch, is_forbidden, again_at);
        match failures {
            // A connection that breaks, and an object that is deleted meanwhile, are not worth a report.
            None | Some(1) => {}
            Some(_) => self.health.record_fetch_failure(&fetch.key, &failure),
        }
        output
    }

    fn record(&mut self, reports: Vec<(ObjectKey, FetchReport)>) {
        for (key, report) in reports {
            match report {
                FetchReport::Unreadable(remark) => self.health.record_object(&key, Some(remark)),
                FetchReport::Readable => self.health.record_object(&key, None),
                FetchReport::NotFailing => self.health.record_fetched(&key),
            }
        }
        for kind in Kind::ALL.iter().filter(|kind| kind.is_read_by_reference()) {
            self.health.count_fetched(*kind, self.contents.counts(*kind));
        }
        let stale: BTreeSet<Kind> = self.protection.stale().collect();
        if stale != self.stale {
            self.stale = stale.clone();
            self.health.record_stale(stale);
        }
        if let Some(waits) = self.protection.next_news(Instant::now()) {
            self.health.log_waiting(waits);
        }
        let mut awaited = self.contents.awaited();
        awaited.extend(self.protection.awaited());
        if awaited != self.awaited {
            self.awaited = awaited.clone();
            self.barrier.lock().fetching(awaited);
        }
    }
}

async fn get(client: Client, fetch: Fetch) -> (Fetch, Result<Fetched, ApiFailure>) {
    let kind = fetch.key.kind;
    let version = kind.api_version().unwrap_or_default();
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), version, kind.as_str()));
    let api: Api<Served> = Api::namespaced_with(client, &fetch.key.name.namespace, &resource);
    // A consistent read, so at least as new as the events of a watch.
    let served = answer(api.get(&fetch.key.name.name)).await;
    let fetched = served.and_then(|served| read(&fetch.key, served));
    (fetch, fetched)
}

fn read(key: &ObjectKey, mut served: Served) -> Result<Fetched, ApiFailure> {
    let kind = key.kind;
    if let (Kind::Secret, Ok(fields)) = (kind, &served.fields)
        && fields.get("type").and_then(Value::as_str) != Some(TLS_SECRETS)
    {
        // It was replaced by another one, and the watch will say that it is gone.
        return Err(ApiFailure::failed("it is of another type"));
    }
    served.forget_unused(kind);
    let version = served.metadata.resource_version.unwrap_or_default();
    // A change of anything else is no change.
    let metadata = ObjectMeta {
        name: Some((*key.name.name).to_owned()),
        namespace: Some((*key.name.namespace).to_owned()),
        ..ObjectMeta::default()
    };
    let object = served.fields.map_err(Unreadable::new).and_then(|fields| {
        let mut object = kind.read(metadata, &mut Value::Object(fields))?;
        object.cut_content();
        Ok(object)
    });
    Ok(Fetched { version, object })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::{Object, ObjectName};
    use serde_json::json;

    fn fetched(kind: Kind, object: Value) -> Result<Fetched, ApiFailure> {
        let key = ObjectName::new("shop", "pair").of(kind);
        read(&key, serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_change_of_metadata_is_no_change_of_the_content() {
        let secret = |version: &str, note: &str| {
            let metadata = json!({
                "name": "pair", "namespace": "shop", "resourceVersion": version, "annotations": { "note": note },
            });
            let data = json!({ "tls.crt": "Y3J0", "tls.key": "a2V5", "other": "bXVjaA==" });
            fetched(
                Kind::Secret,
                json!({ "metadata": metadata, "type": TLS_SECRETS, "data": data }),
            )
            .unwrap()
        };
        let (one, two) = (secret("1", "a"), secret("2", "b"));
        assert_eq!((one.version.as_str(), two.version.as_str()), ("1", "2"));
        let one = one.object.unwrap();
        assert_eq!(one, two.object.unwrap());
        let Object::Secret(secret) = one else { unreachable!() };
        assert_eq!(secret.data.as_ref().unwrap().len(), 2);
    }

    #[test]
    fn a_secret_that_became_one_of_another_type_is_not_read() {
        let secret = json!({ "metadata": {}, "type": "Opaque", "data": { "tls.key": "a2V5" } });
        assert!(fetched(Kind::Secret, secret).is_err());
        assert!(fetched(Kind::ConfigMap, json!({ "metadata": {} })).is_ok());
    }
}

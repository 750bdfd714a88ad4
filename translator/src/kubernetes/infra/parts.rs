//! The objects that run for Gateways, as the API server has them.

use super::api;
use crate::kubernetes::deployed::{Deployed, DeployedPart, DeployedVersions};
use crate::provider::kubernetes::WATCH_SECONDS;
use futures::stream::{self, BoxStream, StreamExt};
use heliograph_gateway::infra::{Part, names};
use heliograph_gateway::objects::ObjectName;
use heliograph_shared::backoff::Backoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

pub(super) type Events = BoxStream<'static, (Part, Result<Event<DynamicObject>, String>)>;

/// If more objects than this are to be read, all of them are listed.
const MOST_READS: usize = 32;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The objects of a part that the provider watches. They are listed once, and read when the provider has seen another version.
struct Reader {
    client: Client,
    part: Part,
    versions: watch::Receiver<DeployedVersions>,
    /// How many changes of these were read.
    read_changes: u64,
    /// How many lists of the provider there were when these were listed. None before.
    listed_after: Option<u64>,
    /// The versions that were read here.
    known: BTreeMap<ObjectName, String>,
    outdated: BTreeSet<ObjectName>,
    events: VecDeque<Event<DynamicObject>>,
    /// In a row.
    failures: u32,
}

/// Everything that has our labels, of every part.
pub(super) fn events(client: &Client, deployed: &Deployed) -> Events {
    let events = Part::ALL.map(|part| match deployed.of_part(part) {
        Some(deployed) => Reader::new(client.clone(), part, deployed).into_events(),
        None => watched(client, part),
    });
    stream::select_all(events).boxed()
}

fn watched(client: &Client, part: Part) -> Events {
    let config = watcher::Config::default().timeout(WATCH_SECONDS).labels(&names::selector());
    let events = watcher(api::all(client, part), config).default_backoff();
    events.map(move |event| (part, event.map_err(|error| error.to_string()))).boxed()
}

impl Reader {
    fn new(client: Client, part: Part, deployed: &DeployedPart) -> Self {
        Self {
            client,
            part,
            versions: deployed.subscribe(),
            read_changes: 0,
            listed_after: None,
            known: BTreeMap::new(),
            outdated: BTreeSet::new(),
            events: VecDeque::new(),
            failures: 0,
        }
    }

    fn into_events(self) -> Events {
        let next = |mut reader: Self| async move {
            let event = reader.next().await;
            Some(((reader.part, event), reader))
        };
        stream::unfold(self, next).boxed()
    }

    async fn next(&mut self) -> Result<Event<DynamicObject>, String> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if self.failures > 0 {
                sleep(BACKOFF.jittered(self.failures, fastrand::f64())).await;
            }
            let is_listed = self.catch_up();
            let answer = if !is_listed {
                self.list().await
            } else if let Some(name) = self.outdated.first().cloned() {
                self.read(name).await
            } else if self.events.is_empty() && self.versions.changed().await.is_err() {
                // The provider has ended, and the program ends with it.
                pending().await
            } else {
                Ok(())
            };
            match answer {
                Ok(()) => self.failures = 0,
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    return Err(error);
                }
            }
        }
    }

    /// Finds out what differs from what the provider has seen. Returns false if all must be listed.
    fn catch_up(&mut self) -> bool {
        let versions = self.versions.borrow_and_update();
        if self.listed_after != Some(versions.lists()) {
            return false;
        }
        let Some(changed) = versions.changed().since(self.read_changes) else { return false };
        for name in changed {
            match versions.get(name) {
                None => {
                    self.known.remove(name);
                    self.outdated.remove(name);
                    self.events.push_back(gone(name));
                }
                Some(version) if self.known.get(name).is_some_and(|known| known == version) => {}
                Some(_) => {
                    self.outdated.insert(name.clone());
                }
            }
        }
        self.read_changes = versions.changed().count();
        self.outdated.len() <= MOST_READS
    }

    /// Lists what there is. That is at least as new as what the provider has seen.
    async fn list(&mut self) -> Result<(), String> {
        let (lists, changes) = {
            let versions = self.versions.borrow_and_update();
            (versions.lists(), versions.changed().count())
        };
        let objects = api::list(&self.client, self.part).await?;
        self.listed_after = Some(lists);
        self.read_changes = changes;
        self.outdated.clear();
        self.known = objects.iter().map(known).collect();
        self.events.push_back(Event::Init);
        self.events.extend(objects.into_iter().map(Event::InitApply));
        self.events.push_back(Event::InitDone);
        Ok(())
    }

    async fn read(&mut self, name: ObjectName) -> Result<(), String> {
        let object = api::read(&self.client, self.part, &name).await?;
        self.outdated.remove(&name);
        let object = object.filter(|it| it.metadata.labels.as_ref().is_some_and(names::selects));
        self.events.push_back(match object {
            Some(object) => {
                self.known.extend([known(&object)]);
                Event::Apply(object)
            }
            None => {
                self.known.remove(&name);
                gone(&name)
            }
        });
        Ok(())
    }
}

/// It is not there any more, or no longer has our labels.
fn gone(name: &ObjectName) -> Event<DynamicObject> {
    let metadata = ObjectMeta {
        name: Some((*name.name).to_owned()),
        namespace: Some((*name.namespace).to_owned()),
        ..ObjectMeta::default()
    };
    Event::Delete(DynamicObject { types: None, metadata, data: Value::Null })
}

fn known(object: &DynamicObject) -> (ObjectName, String) {
    let metadata = &object.metadata;
    let name = ObjectName::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    );
    (name, metadata.resource_version.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests;

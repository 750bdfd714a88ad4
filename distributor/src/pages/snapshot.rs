use super::{HeadText, PageError, json, limit};
use crate::clients::{Client, Clients};
use crate::feed::{Fleet, Fleets};
use crate::view::ClassHandle;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use heliograph_envoy::{Any, json::to_json};
use heliograph_shared::admin::QueryParams;
use heliograph_snapshot::{FleetName, Resource, ResourceType, Snapshot, Version};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::{spawn_blocking, yield_now};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    r#type: Option<String>,
    name: Option<String>,
    /// As this client sees it.
    node: Option<String>,
    /// `TYPE/NAME` of the resource before the first.
    after: Option<String>,
    limit: Option<usize>,
    /// Whether to show the content of resources; default: true.
    content: Option<bool>,
}

#[derive(Serialize)]
struct Page {
    fleet: FleetName,
    head: HeadText,
    /// The class of clients that see it so, if it was asked for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// How many there are of each type in the whole snapshot.
    counts: BTreeMap<&'static str, usize>,
    resources: Vec<Row>,
    /// What to ask for to see more: `?after=` this.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct Row {
    r#type: ResourceType,
    name: Arc<str>,
    version: Version,
    bytes: usize,
    /// Which version the client has of it, if it was asked for one; absent if it has none, or none that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<Version>,
    /// The client rejected it.
    #[serde(skip_serializing_if = "is_not")]
    rejected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Value>,
    /// Its content is confidential, and is never shown.
    #[serde(skip_serializing_if = "is_not")]
    hidden: bool,
    /// Why it cannot be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The selected part of a snapshot.
struct Selection {
    kinds: Vec<ResourceType>,
    name: Option<String>,
    after: Option<(ResourceType, String)>,
    limit: usize,
    content: bool,
}

/// Resources are shown in this order.
type ResourceKey = (ResourceType, Arc<str>);

pub(super) const PATH: &str = "/snapshot/{namespace}/{name}";

const USUAL: usize = 100;
const MOST: usize = 1000;
/// As text, resources take some times more.
const MOST_BYTES: usize = 1 << 20;
/// How many clients are taken from the list at once. Streams that come and go wait for its lock.
const BATCH: usize = 256;

pub(super) fn page(fleets: Fleets, clients: Clients) -> MethodRouter {
    // One at a time: text of a large snapshot takes time and memory, which are for proxies.
    let turn = Arc::new(Semaphore::new(1));
    get(
        async move |Path((namespace, name)): Path<(String, String)>,
                    QueryParams(query): QueryParams<Query>| {
            let _turn = turn.acquire().await;
            let fleet = FleetName::new(&namespace, &name);
            respond(&fleets, &clients, fleet, query).await
        },
    )
}

async fn respond(
    fleets: &Fleets,
    clients: &Clients,
    name: FleetName,
    query: Query,
) -> Result<Response, PageError> {
    let Some(fleet) = fleets.get(&name) else {
        let name = name.as_str();
        return Err(PageError::not_found(format!(
            "no fleet {name:?} is in memory here: /fleets lists them"
        )));
    };
    let selection = Selection::of(&query)?;
    let client = match &query.node {
        None => None,
        Some(node) => match find(clients, &name, node).await {
            None => {
                let why = format!("no node {node:?} of {name} is connected here");
                return Err(PageError::not_found(why));
            }
            found => found,
        },
    };
    let shown = spawn_blocking(move || Page::of(&fleet, client.as_deref(), &selection)).await;
    match shown.map_err(PageError::failed)? {
        Some(page) => json(&page),
        None => Err(PageError::not_found(format!("{name} is retired"))),
    }
}

async fn find(clients: &Clients, fleet: &FleetName, node: &str) -> Option<Arc<Client>> {
    let mut after = 0;
    loop {
        let batch = clients.some_after(after, BATCH);
        after = batch.last()?.number;
        let mut batch = batch.into_iter();
        let found = batch.find(|client| client.fleet == *fleet && client.info.node == node);
        if found.is_some() {
            return found;
        }
        yield_now().await;
    }
}

impl Selection {
    fn of(query: &Query) -> Result<Self, PageError> {
        let kinds = match &query.r#type {
            None => ResourceType::ALL.to_vec(),
            Some(kind) => vec![kind_of(kind)?],
        };
        let after = query.after.as_deref().map(|key| match key.split_once('/') {
            Some((kind, name)) => Ok((kind_of(kind)?, name.to_owned())),
            None => Err(PageError::bad("after is TYPE/NAME of a resource")),
        });
        let (name, after) = (query.name.clone(), after.transpose()?);
        let content = query.content.unwrap_or(true);
        Ok(Self { kinds, name, after, limit: limit(query.limit, USUAL, MOST)?, content })
    }

    fn matches(&self, kind: ResourceType, name: &str) -> bool {
        let later = self.after.as_ref().is_none_or(|(of, last)| (kind, name) > (*of, &**last));
        later && self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// The first of those that are wanted, and whether there are more.
    fn of_snapshot(&self, snapshot: &Snapshot) -> (BTreeMap<ResourceKey, Arc<Resource>>, bool) {
        let (mut first, mut more) = (BTreeMap::new(), false);
        for kind in &self.kinds {
            // A snapshot has no order of names, and to sort all of them for each page would take more.
            for resource in snapshot.tree(*kind).iter() {
                if self.matches(*kind, &resource.name) {
                    first.insert((*kind, resource.name.clone()), resource.clone());
                }
                if first.len() > self.limit {
                    more = first.pop_last().is_some();
                }
            }
        }
        (first, more)
    }
}

impl Page {
    /// `None`: the fleet has nothing to show now.
    fn of(fleet: &Fleet, client: Option<&Client>, selection: &Selection) -> Option<Self> {
        let views = fleet.current()?;
        let mut class_handle = ClassHandle::default();
        let snapshot = match client {
            Some(client) => views.of(&client.info, &mut class_handle).snapshot().clone(),
            None => views.snapshot().clone(),
        };
        let kinds = snapshot.dialect().types();
        let counts = kinds.map(|kind| (kind.as_str(), snapshot.tree(kind).len())).collect();
        let (wanted, mut more) = selection.of_snapshot(&snapshot);
        let client_state = client.and_then(|client| client.status().client_state);
        let mut resources = Vec::new();
        let mut bytes = 0;
        for ((kind, _), resource) in wanted {
            let mut row = Row::of(kind, &resource);
            if let Some(client_state) = &client_state {
                row.held = client_state.held(kind, &resource.name);
                row.rejected = client_state.rejects(kind, &resource.name);
            }
            if selection.content {
                bytes += row.bytes;
                if bytes > MOST_BYTES && !resources.is_empty() {
                    more = true;
                    break;
                }
                row.show(&resource);
            }
            resources.push(row);
        }
        let last = resources.last().filter(|_| more);
        Some(Self {
            fleet: fleet.name.clone(),
            head: HeadText(snapshot.head),
            class: class_handle.class(),
            counts,
            next: last.map(|row| format!("{}/{}", row.r#type, row.name)),
            resources,
        })
    }
}

impl Row {
    fn of(kind: ResourceType, resource: &Resource) -> Self {
        Self {
            r#type: kind,
            name: resource.name.clone(),
            version: resource.version,
            bytes: resource.body.len(),
            held: None,
            rejected: false,
            resource: None,
            hidden: false,
            error: None,
        }
    }

    fn show(&mut self, resource: &Resource) {
        if !self.r#type.may_be_shown(resource) {
            self.hidden = true;
            return;
        }
        let (type_url, value) = (self.r#type.type_url().to_owned(), resource.body.clone());
        match to_json(&Any { type_url, value }) {
            Ok(json) => self.resource = Some(json),
            Err(error) => self.error = Some(error),
        }
    }
}

fn is_not(flag: &bool) -> bool {
    !flag
}

fn kind_of(text: &str) -> Result<ResourceType, PageError> {
    ResourceType::from_name(text).ok_or_else(|| {
        let all = ResourceType::ALL.map(ResourceType::as_str).join(", ");
        PageError::bad(format!("{text:?} is not a type: use {all}"))
    })
}

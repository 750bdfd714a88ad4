//! Random views for the model.

use crate::stream::*;
use heliograph_distributor_protocol::View;
use heliograph_snapshot::{Resource, ResourceType};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A view whose references are whole. Bodies say what they refer to and whether the client will take them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    clusters: [Option<Item>; 3],
    endpoints: [Option<u8>; 3],
    routes: [Option<Item>; 2],
    listeners: [Option<Item>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Item {
    content: u8,
    refers: u8,
    bad: bool,
}

fn item() -> impl Strategy<Value = Option<Item>> {
    let item = (0..3u8, 0..8u8, prop::bool::weighted(0.15));
    prop::option::weighted(
        0.7,
        item.prop_map(|(content, refers, bad)| Item { content, refers, bad }),
    )
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let endpoints = prop::option::weighted(0.8, 0..3u8);
    (
        [item(), item(), item()],
        [endpoints.clone(), endpoints.clone(), endpoints],
        [item(), item()],
        [item(), item()],
    )
        .prop_map(|(clusters, endpoints, routes, listeners)| Plan {
            clusters,
            endpoints,
            routes,
            listeners,
        })
}

impl Plan {
    pub(crate) fn view(&self, sequence: u64) -> Arc<View> {
        let mut resources = Vec::new();
        let body = |item: &Item, refers: Vec<String>| {
            format!(
                "{} {} {}",
                item.content,
                if item.bad { "bad" } else { "good" },
                refers.join(" ")
            )
        };
        let existing = |items: &[Option<Item>], mask: u8, prefix: &str| {
            let there =
                items.iter().enumerate().filter(|(n, item)| item.is_some() && mask & (1 << n) != 0);
            there.map(|(n, _)| format!("{prefix}{n}")).collect::<Vec<_>>()
        };
        for (n, item) in self.clusters.iter().enumerate() {
            let Some(item) = item else { continue };
            resources.push((Cluster, format!("c{n}"), body(item, vec![])));
            if let Some(content) = self.endpoints[n] {
                resources.push((Endpoints, format!("c{n}"), content.to_string()));
            }
        }
        for (n, item) in self.routes.iter().enumerate() {
            let Some(item) = item else { continue };
            let refers = existing(&self.clusters, item.refers, "c");
            resources.push((Route, format!("r{n}"), body(item, refers)));
        }
        for (n, item) in self.listeners.iter().enumerate() {
            let Some(item) = item else { continue };
            let refers = existing(&self.routes, item.refers, "r");
            resources.push((Listener, format!("l{n}"), body(item, refers)));
        }
        let resources: Vec<_> = resources
            .iter()
            .map(|(kind, name, body)| (*kind, name.as_str(), body.as_str()))
            .collect();
        view(sequence, &resources)
    }

    pub(crate) fn has(&self, kind: ResourceType, name: &str) -> bool {
        let number: usize = name[1..].parse().unwrap();
        match kind {
            Cluster => self.clusters[number].is_some(),
            Endpoints => self.clusters[number].is_some() && self.endpoints[number].is_some(),
            Listener => self.listeners[number].is_some(),
            Route => self.routes[number].is_some(),
            Secret => false,
        }
    }

    pub(crate) fn resources(&self) -> BTreeMap<(ResourceType, String), Arc<Resource>> {
        // Through a client that asks for everything by the wildcard, since a view shows itself to sessions only.
        let mut found = BTreeMap::new();
        for kind in [Cluster, Endpoints, Listener, Route] {
            let mut stream = Stream::new(Delta, self.view(1));
            let replies = stream.ask(kind, &["*"]);
            for reply in stream.settle(replies) {
                for resource in &reply.resources {
                    found.insert((kind, resource.name.to_string()), resource.clone());
                }
            }
        }
        found
    }
}

pub(crate) fn is_bad(resource: &Resource) -> bool {
    text(resource).split(' ').nth(1) == Some("bad")
}

pub(crate) fn refers(resource: &Resource) -> Vec<String> {
    text(resource).split(' ').skip(2).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn text(resource: &Resource) -> &str {
    std::str::from_utf8(&resource.body).unwrap()
}

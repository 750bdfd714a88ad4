//! Random views for the model.

use crate::stream::*;
use heliograph_distributor_protocol::{Substitute, View};
use heliograph_snapshot::{Resource, ResourceType, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A view whose references are whole. Bodies say what they refer to and whether the client will take them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    clusters: [Option<Item>; 3],
    endpoints: [Option<u8>; 3],
    extension_configs: [Option<Item>; 2],
    routes: [Option<Item>; 2],
    listeners: [Option<Item>; 2],
    /// The first of a type is at an older version, because others rejected its newest.
    spared: Option<Spared>,
}

/// The types that there are plans for, in the order in which an Envoy names them when it comes back.
pub(crate) const SERVED: [ResourceType; 5] = [Cluster, Endpoints, Listener, ExtensionConfig, Route];

#[derive(Clone, Copy, Debug)]
struct Spared {
    kind: ResourceType,
    newest: u8,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    content: u8,
    refers: u8,
    bad: bool,
}

fn item() -> impl Strategy<Value = Option<Item>> {
    let item = (0..3u8, 0..16u8, prop::bool::weighted(0.15));
    prop::option::weighted(
        0.7,
        item.prop_map(|(content, refers, bad)| Item { content, refers, bad }),
    )
}

fn spared() -> impl Strategy<Value = Spared> {
    let kind = prop_oneof![Just(Cluster), Just(ExtensionConfig), Just(Route), Just(Listener)];
    (kind, 0..3u8).prop_map(|(kind, newest)| Spared { kind, newest })
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let endpoints = prop::option::weighted(0.8, 0..3u8);
    (
        [item(), item(), item()],
        [endpoints.clone(), endpoints.clone(), endpoints],
        [item(), item()],
        [item(), item()],
        [item(), item()],
        prop::option::weighted(0.3, spared()),
    )
        .prop_map(|(clusters, endpoints, extension_configs, routes, listeners, spared)| Plan {
            clusters,
            endpoints,
            extension_configs,
            routes,
            listeners,
            spared,
        })
}

impl Plan {
    pub(crate) fn view(&self, sequence: u64) -> Arc<View> {
        let substitutes = self.substitute().into_iter().collect();
        view_with(sequence, &self.bodies(), substitutes)
    }

    /// What is held back, under which name.
    pub(crate) fn substitute(&self) -> Option<Substitute> {
        let Spared { kind, newest } = self.spared?;
        let (_, name, body) = self.bodies().into_iter().find(|(of, _, _)| *of == kind)?;
        let (_, rest) = body.split_once(' ')?;
        let (rejected, good) = (format!("{newest} {rest}"), Version::of(body.as_bytes()));
        let rejected = Arc::new(Resource::new(name, rejected.into()));
        (rejected.version != good).then_some(Substitute { kind, rejected, good })
    }

    fn bodies(&self) -> Vec<(ResourceType, String, String)> {
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
        for (n, item) in self.extension_configs.iter().enumerate() {
            let Some(item) = item else { continue };
            let refers = existing(&self.clusters, item.refers, "c");
            resources.push((ExtensionConfig, format!("x{n}"), body(item, refers)));
        }
        for (n, item) in self.routes.iter().enumerate() {
            let Some(item) = item else { continue };
            let refers = existing(&self.clusters, item.refers, "c");
            resources.push((Route, format!("r{n}"), body(item, refers)));
        }
        for (n, item) in self.listeners.iter().enumerate() {
            let Some(item) = item else { continue };
            let mut refers = existing(&self.routes, item.refers, "r");
            refers.extend(existing(&self.extension_configs, item.refers >> 2, "x"));
            resources.push((Listener, format!("l{n}"), body(item, refers)));
        }
        resources
    }

    pub(crate) fn has(&self, kind: ResourceType, name: &str) -> bool {
        let number: usize = name[1..].parse().unwrap();
        match kind {
            Cluster => self.clusters[number].is_some(),
            Endpoints => self.clusters[number].is_some() && self.endpoints[number].is_some(),
            ExtensionConfig => self.extension_configs[number].is_some(),
            Listener => self.listeners[number].is_some(),
            Route => self.routes[number].is_some(),
            Secret => false,
        }
    }

    pub(crate) fn resources(&self) -> BTreeMap<(ResourceType, String), Arc<Resource>> {
        // Through a client that asks for everything by the wildcard, since a view shows itself to sessions only.
        let mut found = BTreeMap::new();
        for kind in SERVED {
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

/// Of what type a name in a body is.
pub(crate) fn kind_of(name: &str) -> ResourceType {
    match name.as_bytes()[0] {
        b'c' => Cluster,
        b'r' => Route,
        _ => ExtensionConfig,
    }
}

fn text(resource: &Resource) -> &str {
    std::str::from_utf8(&resource.body).unwrap()
}

//! What golden tests share: reading a case, rendering a world, shuffling objects.

use heliograph_envoy::{Any, Message, json::to_json};
use heliograph_gateway::objects::{Document, Kind, Object, parse};
use heliograph_gateway::status::reasons::StatusPart;
use heliograph_gateway::{Event, World};
use heliograph_snapshot::{Internal, Resource, ResourceType};
use heliograph_views::{Audience, Proxy, Treatment};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Everything below this line of a case is made by the tests.
const MARK: &str = "#! everything below is made from what is above: UPDATE_GOLDEN=1 rewrites it\n";

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) objects: Vec<Object>,
    pub(crate) expected: String,
    path: PathBuf,
    input: String,
}

impl Case {
    pub(crate) fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "there are no golden cases");
        paths.into_iter().map(Self::read).collect()
    }

    pub(crate) fn world(&self) -> World {
        let mut world = World::new();
        for object in &self.objects {
            world.apply(Event::Applied(object.clone()));
        }
        world.settle();
        world
    }

    pub(crate) fn rewrite(&self, output: &str) {
        fs::write(&self.path, format!("{}{MARK}{output}", self.input)).unwrap();
    }

    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let objects = parse(input)
            .into_iter()
            .map(|document| match document {
                Document::Object(object) => object,
                other => panic!("{}: {other:?}", path.display()),
            })
            .collect();
        Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            objects,
            expected: expected.to_owned(),
            input: input.to_owned(),
            path,
        }
    }
}

/// The whole of a world as text: model, statuses, xDS.
pub(crate) fn render(world: &World) -> String {
    let fleets: Vec<Value> = world.fleets().map(|fleet| json!(fleet)).collect();
    let infra: Vec<Value> = world.infra().map(|infra| json!(infra)).collect();
    let routes: Map<String, Value> = world
        .routes()
        .map(|(key, hostnames, route)| {
            (key.to_string(), json!({"hostnames": hostnames, "does": route}))
        })
        .collect();
    let upstreams: Map<String, Value> = world
        .upstreams()
        .into_iter()
        .map(|(name, endpoints)| (name.to_string(), json!(endpoints.localities)))
        .collect();
    let statuses: Map<String, Value> =
        world.statuses().map(|(key, status)| (key.to_string(), json!(status))).collect();
    let mut xds = Map::new();
    for served in world.fleets() {
        let mut fleet = Map::new();
        for (kind, resource) in world.resources(&served.name) {
            let any = Any { type_url: kind.type_url().to_owned(), value: resource.body.clone() };
            let shown = json!({"version": resource.version, "resource": to_json(&any).unwrap()});
            let resources = fleet.entry(kind.as_str()).or_insert_with(|| json!({}));
            resources[&*resource.name] = shown;
        }
        xds.insert(served.name.to_string(), Value::Object(fleet));
    }
    let mut views = Map::new();
    for served in world.fleets() {
        let shown = world.internals(&served.name).map(|(part, rule)| {
            (
                format!("{part} {}", rule.name),
                json!({"version": rule.version, "says": describe(part, rule)}),
            )
        });
        let shown: Map<String, Value> = shown.collect();
        if !shown.is_empty() {
            views.insert(served.name.to_string(), Value::Object(shown));
        }
    }
    let policies: Map<String, Value> = world
        .policies()
        .map(|(id, targets, sections)| {
            (id.to_string(), json!({"targets": targets, "sections": sections}))
        })
        .collect();
    let mut model =
        json!({"fleets": fleets, "infra": infra, "routes": routes, "upstreams": upstreams});
    if !policies.is_empty() {
        model["policies"] = Value::Object(policies);
    }
    let sections = [
        ("model", model),
        ("status", Value::Object(statuses)),
        ("xds", Value::Object(xds)),
        ("views", Value::Object(views)),
    ];
    sections
        .into_iter()
        // Most cases have none.
        .filter(|(name, value)| *name != "views" || *value != json!({}))
        .map(|(name, value)| serde_saphyr::to_string(&json!({name: value})).unwrap())
        .map(|text| format!("---\n{text}"))
        .collect()
}

/// All conditions of a world as objects have them, and of what they are.
pub(crate) fn conditions(world: &World) -> Vec<(StatusPart, Value)> {
    let mut conditions = Vec::new();
    for (key, status) in world.statuses() {
        let (part, list) = match key.kind {
            Kind::GatewayClass => (StatusPart::GatewayClass, None),
            Kind::Gateway => (StatusPart::Gateway, None),
            Kind::ListenerSet => (StatusPart::ListenerSet, None),
            Kind::ViewPolicy => (StatusPart::ViewPolicy, None),
            Kind::BackendTLSPolicy => (StatusPart::BackendTlsPolicy, Some("ancestors")),
            kind if kind.is_optional() => (StatusPart::Policy, Some("ancestors")),
            kind if kind.is_route() => (StatusPart::Route, Some("parents")),
            _ => continue,
        };
        let status = json!(status);
        let mut add = |part, of: &Value| {
            let found = of["conditions"].as_array().into_iter().flatten();
            conditions.extend(found.map(|condition| (part, condition.clone())));
        };
        add(part, &status);
        let entries = list.map(|list| (part, &status[list]));
        for (part, list) in
            entries.into_iter().chain([(StatusPart::Listener, &status["listeners"])])
        {
            list.as_array().into_iter().flatten().for_each(|entry| add(part, entry));
        }
    }
    conditions
}

/// A rule or an entry of the directory, in lines.
fn describe(part: Internal, rule: &Resource) -> Vec<String> {
    let body = rule.body.clone();
    let said = match part {
        Internal::Directory => format!("{:#?}", Proxy::decode(body).unwrap()),
        // It follows from what proxies say, and never from objects.
        Internal::Quarantine => unreachable!(),
        Internal::Rules if rule.name.starts_with("audience/") => {
            format!("{:#?}", Audience::decode(body).unwrap())
        }
        Internal::Rules => {
            let mut treatment = Treatment::decode(body).unwrap();
            let kind = ResourceType::ALL
                .into_iter()
                .find(|kind| rule.name.starts_with(&format!("{kind}/")))
                .unwrap();
            let variants: Vec<String> = std::mem::take(&mut treatment.variants)
                .into_iter()
                .map(|variant| {
                    let any = Any { type_url: kind.type_url().to_owned(), value: variant.body };
                    format!("for {}: {}", variant.audience, to_json(&any).unwrap())
                })
                .collect();
            format!("{treatment:#?}\n{}", variants.join("\n"))
        }
    };
    said.lines().map(str::to_owned).collect()
}

pub(crate) fn first_difference(expected: &str, actual: &str) -> String {
    let lines = expected.lines().zip(actual.lines()).enumerate();
    for (number, (expected, actual)) in lines {
        if expected != actual {
            return format!(
                "  output line {}\n  expected {expected}\n  actual   {actual}",
                number + 1
            );
        }
    }
    format!("  {} lines expected, {} found", expected.lines().count(), actual.lines().count())
}

/// A small generator of orders: the same seed gives the same order everywhere.
pub(crate) struct Shuffle(u64);

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
        items
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

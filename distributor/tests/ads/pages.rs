//! What the admin port tells of clients and snapshots.

use crate::errors::request;
use crate::views::{connect, listed, prefer_own_zone, zoned};
use crate::wire::DELTA;
use crate::world::*;
use heliograph_client::{Client, Options, Protocol};
use heliograph_envoy::envoy::config::core::v3::{DataSource, data_source};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use heliograph_snapshot::ResourceType;
use heliograph_snapshot::ResourceType::Route;
use heliograph_views::ZONE;
use http::uri::PathAndQuery;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

/// The status and the body of a page.
async fn get(world: &World, path: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(world.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get_json(world: &World, path: &str) -> Value {
    let (status, body) = get(world, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The one client that a query finds, once it is as wanted.
async fn client_that(world: &World, query: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut ticker = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        loop {
            let page = get_json(world, &format!("/clients?format=json&{query}")).await;
            match page["clients"].as_array().unwrap().as_slice() {
                [client] if wanted(client) => return client.clone(),
                _ => ticker.tick().await,
            };
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.expect("no such client")
}

async fn lines(world: &World, query: &str) -> Vec<Value> {
    let (status, body) = get(world, &format!("/clients?format=lines{query}")).await;
    assert_eq!(status, 200, "{query}: {body}");
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn without_types(mut client: Value) -> Value {
    client.as_object_mut().unwrap().remove("types");
    client
}

async fn refused(world: &World, status: u16, path: &str, why: &str) {
    let (found, body) = get(world, path).await;
    assert_eq!(found, status, "{path}: {body}");
    assert!(body.contains(why) && body.lines().count() == 1, "{path}: {body}");
}

/// Asks for listeners and never answers.
async fn mute(world: &World, node: &str) -> Streaming<DeltaDiscoveryResponse> {
    let channel = Endpoint::from_shared(world.server.clone()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let mut first = request(fleet().as_str());
    first.type_url = ResourceType::Listener.type_url().to_owned();
    first.node.as_mut().unwrap().id = node.to_owned();
    let requests = futures::stream::iter([first]);
    let requests = futures::StreamExt::chain(requests, futures::stream::pending());
    let path = PathAndQuery::from_static(DELTA);
    grpc.streaming(tonic::Request::new(requests), path, codec).await.unwrap().into_inner()
}

#[tokio::test]
async fn every_client_is_listed_page_by_page_until_it_leaves() {
    let mut world = World::start().await;
    let head = world.publish(&gateway("blue")).await;
    // One that tries to look like two.
    let nodes = ["a", "b", "c", "d", "e\nf"];
    let clients = nodes.map(|node| connect(&world, Protocol::Delta, node));
    world.acknowledged(5).await;

    let mut found = Vec::new();
    let mut path = "/clients?format=json&limit=2".to_owned();
    loop {
        let page = get_json(&world, &path).await;
        found.extend(page["clients"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_u64() else { break };
        path = format!("/clients?format=json&limit=2&after={next}");
    }
    let numbers: Vec<_> = found.iter().map(|client| client["stream"].as_u64().unwrap()).collect();
    assert!(numbers.len() == 5 && numbers.is_sorted(), "{numbers:?}");
    let mut shown: Vec<_> = found.iter().map(|client| client["node"].as_str().unwrap()).collect();
    shown.sort_unstable();
    assert_eq!(shown, nodes);
    for client in &found {
        assert_eq!(client["fleet"], "default/gateway", "{client}");
        assert_eq!(client["state"], "synced", "{client}");
        assert_eq!(client["identity"], "anybody", "{client}");
        assert_eq!(client["protocol"], "delta", "{client}");
        assert_eq!(client["acknowledged"], head.to_string(), "{client}");
        assert!(client["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{client}");
        let types = client["types"].as_array().unwrap();
        assert_eq!(types.len(), 4, "{client}");
        for of_type in types {
            assert_eq!(of_type["acknowledged"], head.to_string(), "{client}");
            assert_eq!(of_type["outstanding"], 0, "{client}");
        }
    }
    let one = client_that(&world, "node=c&fleet=default/gateway&state=synced", |_| true).await;
    assert_eq!(one["node"], "c");
    for none in ["node=z", "fleet=default/other", "state=behind"] {
        let page = get_json(&world, &format!("/clients?format=json&{none}")).await;
        assert_eq!(page["clients"], Value::Array(vec![]), "{none}");
    }
    // As lines there are all at once, unless fewer are asked for, and each says the same but for the types.
    let whole: Vec<_> = found.iter().cloned().map(without_types).collect();
    assert_eq!(lines(&world, "").await, whole);
    assert_eq!(lines(&world, "&limit=2&after=1").await, whole[1..3]);
    assert_eq!(lines(&world, "&node=c").await, [without_types(one)]);
    assert_eq!(lines(&world, "&state=behind").await, [] as [Value; 0]);
    let (_, text) = get(&world, "/clients").await;
    assert_eq!(text.lines().count(), 6, "a head and a line each: {text}");
    assert!(text.contains("e\\nf"), "{text}");

    refused(&world, 400, "/clients?limit=0", "limit is a number from 1 to 1000").await;
    refused(&world, 400, "/clients?state=odd", "unknown variant `odd`").await;
    refused(&world, 400, "/clients?fleet=odd", "NAMESPACE/NAME").await;
    refused(&world, 400, "/clients?colour=red", "unknown field `colour`").await;
    refused(&world, 400, "/clients?after=x", "invalid digit").await;

    drop(clients);
    let mut ticker = tokio::time::interval(Duration::from_millis(20));
    let gone = async {
        while get_json(&world, "/clients?format=json").await["clients"] != Value::Array(vec![]) {
            ticker.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("a stream that ended is listed");
}

#[tokio::test]
async fn a_client_that_waits_rejects_or_keeps_silent_shows() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let lost = Options { fleet: "default/lost".to_owned(), ..world.options(Protocol::Delta) };
    let _lost = Client::connect(lost).unwrap();
    let found = client_that(&world, "fleet=default/lost", |it| it["state"] == "waiting").await;
    assert_eq!(found["types"], Value::Array(vec![]));

    let mut picky =
        Options { node_id: "picky".to_owned(), ..world.options(Protocol::StateOfTheWorld) };
    picky.rejects = Arc::new(|kind, _, body| {
        let led = body.windows(5).any(|part| part == b"green");
        (kind == Route && led).then(|| "not\ngreen".to_owned())
    });
    let _picky = Client::connect(picky).unwrap();
    world.acknowledged(1).await;
    world.publish(&gateway("green")).await;
    let found = client_that(&world, "state=rejecting", |_| true).await;
    assert_eq!((&found["node"], &found["protocol"]), (&"picky".into(), &"sotw".into()));
    assert_eq!(found["lastError"]["type"], "route");
    assert_eq!(found["lastError"]["detail"], "not\ngreen");
    assert_eq!(found["lastError"]["resources"], Value::Array(vec!["table".into()]));
    let (_, text) = get(&world, "/clients?state=rejecting").await;
    assert!(text.lines().count() == 2 && text.contains("route: not\\ngreen"), "{text}");
    // What it has and what it refused, beside what it is to have.
    let page = get_json(&world, "/snapshot/default/gateway?node=picky&content=false").await;
    let version = |color| routes("table", color).1.version.to_string();
    for resource in page["resources"].as_array().unwrap() {
        let is_refused = resource["type"] == "route";
        assert_eq!(resource["rejected"].as_bool().unwrap_or(false), is_refused, "{page}");
        let is_held = resource["held"] == resource["version"];
        assert_eq!(is_held, !is_refused, "{page}");
        assert!(resource.get("resource").is_none(), "its content was not asked for: {page}");
        if is_refused {
            assert_eq!(resource["version"], version("green"), "{page}");
            assert_eq!(resource["held"], version("blue"), "{page}");
        }
    }
    world.publish(&gateway("red")).await;
    client_that(&world, "node=picky", |it| it["state"] == "synced").await;

    let _mute = mute(&world, "mute").await;
    let found = client_that(&world, "node=mute", |it| it["state"] == "behind").await;
    assert_eq!(found["types"][0]["outstanding"], 1, "{found}");
    // Once it should have answered.
    client_that(&world, "node=mute", |it| it["state"] == "silent").await;
}

#[tokio::test]
async fn a_snapshot_is_shown_resource_by_resource_and_without_secrets() {
    let mut world = World::start().await;
    let source = |text: &str| {
        let specifier = Some(data_source::Specifier::InlineString(text.to_owned()));
        Some(DataSource { specifier, ..Default::default() })
    };
    let certificate = TlsCertificate {
        certificate_chain: source("the chain"),
        private_key: source("the key"),
        ..Default::default()
    };
    let certificate =
        Secret { name: "tls".to_owned(), r#type: Some(secret::Type::TlsCertificate(certificate)) };
    let sealed = (ResourceType::Secret, resource("tls", &certificate));
    let resources = [gateway("blue"), vec![cluster("green", 1), sealed]].concat();
    let head = world.publish(&resources).await;

    let page = get_json(&world, "/snapshot/default/gateway").await;
    assert_eq!(
        (&page["fleet"], &page["head"]),
        (&"default/gateway".into(), &Value::from(head.to_string()))
    );
    assert_eq!(page["counts"]["cluster"], 2);
    let all = page["resources"].as_array().unwrap();
    let names: Vec<_> =
        all.iter().map(|it| (it["type"].as_str().unwrap(), it["name"].as_str().unwrap())).collect();
    let expected = [
        ("secret", "tls"),
        ("cluster", "blue"),
        ("cluster", "green"),
        ("endpoints", "blue"),
        ("listener", "http"),
        ("route", "table"),
    ];
    assert_eq!(names, expected);
    let text = page.to_string();
    assert!(text.contains("the chain") && !text.contains("the key"), "{text}");
    assert_eq!(all[5]["resource"]["virtual_hosts"][0]["name"], "blue");
    assert_eq!(all[5]["version"], routes("table", "blue").1.version.to_string());

    let mut found = Vec::new();
    let mut path = "/snapshot/default/gateway?limit=1".to_owned();
    loop {
        let page = get_json(&world, &path).await;
        found.extend(page["resources"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/snapshot/default/gateway?limit=1&after={next}");
    }
    assert_eq!(&found, all);
    let page = get_json(&world, "/snapshot/default/gateway?type=cluster&name=green").await;
    assert_eq!(page["resources"], Value::Array(vec![all[2].clone()]));

    refused(&world, 404, "/snapshot/default/other", "no fleet").await;
    refused(&world, 404, "/snapshot/default", "there is no page").await;
    refused(&world, 404, "/snapshot/default/gateway?node=z", "no node \"z\"").await;
    refused(&world, 400, "/snapshot/default/gateway?type=odd", "is not a type: use secret").await;
    refused(&world, 400, "/snapshot/default/gateway?after=odd", "TYPE/NAME").await;
    refused(&world, 400, "/snapshot/default/gateway?limit=5000", "1 to 1000").await;
    refused(&world, 400, "/snapshot/default/gateway?kind=x", "unknown field `kind`").await;
    let (_, index) = get(&world, "/").await;
    for page in ["/clients ", "/fleets ", "/snapshot/NAMESPACE/NAME "] {
        assert!(index.contains(page), "{index}");
    }
    world.retire().await;
    // Retired and without a stream it is none of the fleets.
    let mut ticker = tokio::time::interval(Duration::from_millis(20));
    let gone = async {
        while get(&world, "/snapshot/default/gateway").await.0 != 404 {
            ticker.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("a retired fleet is shown");
}

#[tokio::test]
async fn what_is_confidential_is_never_shown() {
    let mut world = World::start().await;
    let (kind, marked) = cluster("marked", 1);
    let marked = (kind, marked.confidential(true));
    world.publish(&[gateway("blue"), vec![marked]].concat()).await;
    let page = get_json(&world, "/snapshot/default/gateway?type=cluster").await;
    let rows = page["resources"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["blue", "marked"]);
    assert!(rows[0]["resource"].is_object() && rows[0].get("hidden").is_none(), "{page}");
    assert!(rows[1].get("resource").is_none(), "{page}");
    assert_eq!(rows[1]["hidden"], true);
    assert!(rows[1]["bytes"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_snapshot_is_shown_as_one_client_sees_it() {
    let mut world = World::start().await;
    let rules = vec![prefer_own_zone(), listed("envoy-a", ZONE, "a"), listed("envoy-b", ZONE, "b")];
    world.publish_with(&zoned(), rules).await;
    let _clients = ["envoy-a", "envoy-b"].map(|node| connect(&world, Protocol::Delta, node));
    world.acknowledged(2).await;
    let page = async |query: &str| {
        get_json(&world, &format!("/snapshot/default/gateway?type=endpoints{query}")).await
    };
    let first = |page: &Value| {
        let groups = page["resources"][0]["resource"]["endpoints"].as_array().unwrap().clone();
        let first = groups.iter().filter(|group| group.get("priority").is_none());
        first
            .map(|group| group["locality"]["zone"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(first(&page("").await), ["a", "b", "c"], "as it is");
    for (node, zone) in [("envoy-a", "a"), ("envoy-b", "b")] {
        let seen = page(&format!("&node={node}")).await;
        assert_eq!(first(&seen), [zone]);
        let class = seen["class"].as_str().unwrap();
        let found = client_that(&world, &format!("node={node}"), |_| true).await;
        assert_eq!(found["class"], class);
        assert!(class.ends_with(&format!("={zone}")), "{class}");
    }
}

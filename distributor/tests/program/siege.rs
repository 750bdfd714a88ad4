//! Floods from many sides at once, on a program whose memory is looked at, while a proxy that behaves goes on.

use crate::running::*;
use crate::site::{Certificates, FLEET, Site};
use crate::wire::raw_stream::{self, RawStream, framed};
use crate::wire::{CHECK, WATCH, raw};
use bytes::Bytes;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_envoy::{Message, append_message};
use heliograph_snapshot::ResourceType;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

/// So that nothing but what a test is about turns anybody away.
pub(crate) const OPEN: [&str; 4] = ["--max-connections-per-address", "0", "--admission-rate", "0"];
const CONNECTIONS: &str = "heliograph_distributor_connections";

/// What a client of TLS says first: a record, and the beginning of a greeting.
const GREETING: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7];

pub(crate) async fn rejected_clients(site: &Site, reason: &str) -> u64 {
    let name = format!("heliograph_distributor_rejected_clients_total{{reason=\"{reason}\"}}");
    site.distributor.metric(&name).await
}

pub(crate) fn request(names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node { cluster: FLEET.to_owned(), ..Default::default() }),
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        resource_names_subscribe: names,
        ..Default::default()
    }
}

/// One after the other, because together they would need more files than a process may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_handshakes_take_little_and_end() {
    allow_many_files();
    let certificates = Certificates::new();
    for tls in [None, Some(&certificates)] {
        let words = if tls.is_some() { GREETING } else { &raw::PREFACE[..9] };
        let flags = [&OPEN[..], &["--first-request-timeout", "10s"]].concat();
        let mut site = Site::start(&flags, tls).await;
        let address = site.server.strip_prefix("http://").unwrap().to_owned();
        let before = site.distributor.memory();
        let (mut halves, mut most) = (Vec::new(), 0);
        for _ in 0..5 {
            let tasks = [(); 8].map(|()| tokio::spawn(half_open(address.clone(), words, 250)));
            for task in tasks {
                halves.extend(task.await.unwrap());
            }
            site.goes_on().await;
            most = most.max(site.distributor.metric(CONNECTIONS).await);
        }
        assert!(most > 5000, "{most}: too few at once to tell");
        let taken = site.distributor.memory().saturating_sub(before);
        // 20 KiB for each, and what serving takes beside them.
        let bound = 100 + most * 20 / 1024;
        assert!(taken < bound, "{taken} MiB with {most} at once: {bound} would be too much");
        // The server does not wait longer for them.
        until("they are closed", async || site.distributor.metric(CONNECTIONS).await == 1).await;
        for mut half in halves {
            let _ = half.read_to_end(&mut Vec::new()).await;
        }
        site.goes_on().await;
    }
}

/// So many connections, of which half say these words.
async fn half_open(address: String, words: &'static [u8], count: usize) -> Vec<TcpStream> {
    let mut halves = Vec::new();
    for number in 0..count {
        let mut half = TcpStream::connect(&address).await.unwrap();
        if number % 2 == 0 {
            half.write_all(words).await.unwrap();
        }
        halves.push(half);
    }
    halves
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_half_received_requests_take_a_bounded_room() {
    // Otherwise they would be gone sooner.
    let flags = [&OPEN[..], &["--first-request-timeout", "60s"]].concat();
    let mut site = Site::start(&flags, None).await;
    let before = site.distributor.memory();
    // A message of 8 MiB, of which half comes.
    let half: Bytes = [vec![0, 0, 0x80, 0, 0], vec![7; 4 << 20]].concat().into();
    let raw_streams = half_received(&mut site, half, 500, 4).await;
    // 32 of them fill the room.
    until("refusals", async || rejected_clients(&site, "receiving").await == 500 - 32).await;
    let taken = site.distributor.memory().saturating_sub(before);
    assert!(taken < 500, "{taken} MiB, and all of them would be 2000");

    // Small requests pass meanwhile, large ones when there is room again.
    let names = |count| (0..count).map(|n| format!("a-name-that-is-rather-long-{n}")).collect();
    let large: Bytes = framed(&request(names(10_000))).into();
    let ask = async |words: &Bytes| {
        let mut raw_stream = RawStream::open(&site.server).await;
        let _ = raw_stream.send(words.clone()).await;
        raw_stream.receive_once().await
    };
    assert!(ask(&framed(&request(names(100))).into()).await.is_ok());
    assert_eq!(ask(&large).await.unwrap_err().code(), Code::Unavailable);
    drop(raw_streams);
    until("room", async || ask(&large).await.is_ok()).await;
    site.goes_on().await;
}

/// Without a bound all streams of a replica could take 96 KiB each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_half_received_small_requests_take_a_bounded_room() {
    let flags = [&OPEN[..], &["--first-request-timeout", "60s"]].concat();
    let mut site = Site::start(&flags, None).await;
    let before = site.distributor.memory();
    // A message of 96 KiB, of which nearly all comes.
    let half: Bytes = [vec![0, 0, 1, 0x80, 0], vec![7; 95 << 10]].concat().into();
    let raw_streams = half_received(&mut site, half, 6000, 8).await;
    // So many of them fill the room.
    let room = (256 << 20) / (96 << 10);
    until("refusals", async || rejected_clients(&site, "receiving").await == 6000 - room).await;
    let taken = site.distributor.memory().saturating_sub(before);
    assert!(taken < 450, "{taken} MiB, and all of them would be 600");
    // An acknowledgement needs no room, and when they are gone there is room again.
    let ask = async |count| {
        let names = (0..count).map(|n| format!("a-name-that-is-rather-long-{n}")).collect();
        let mut raw_stream = RawStream::open(&site.server).await;
        let _ = raw_stream.send(framed(&request(names)).into()).await;
        raw_stream.receive_once().await
    };
    assert!(ask(100).await.is_ok());
    assert_eq!(ask(2500).await.unwrap_err().code(), Code::Unavailable);
    drop(raw_streams);
    until("room", async || ask(2500).await.is_ok()).await;
    site.goes_on().await;
}

/// Each could make the replica keep 4 MiB for as long as its connection lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_health_take_no_memory() {
    let mut site = Site::start(&OPEN, None).await;
    let before = site.distributor.peak_memory();
    // A message of 4 MB, of which nearly all comes.
    let half: Bytes = [vec![0, 0, 0x3d, 9, 0], vec![7; 3_900_000]].concat().into();
    let mut calls = Vec::new();
    for _ in 0..100 {
        let opener = raw_stream::connect(&site.server).await;
        for number in 0..8 {
            let method = if number % 2 == 0 { CHECK } else { WATCH };
            let mut call = RawStream::call(opener.clone(), method, &[]).await.unwrap();
            let half = half.clone();
            calls.push(tokio::spawn(async move {
                // It is refused under way.
                let _ = call.send(half).await;
                call
            }));
        }
    }
    for call in calls {
        let call = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
        let answer = tokio::time::timeout(DEADLINE, call.receive_once()).await.unwrap();
        assert_eq!(answer.unwrap_err().code(), Code::OutOfRange);
    }
    let taken = site.distributor.peak_memory().saturating_sub(before);
    assert!(taken < 150, "{taken} MiB, and all of them would be 3100");
    site.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_health_are_streams_and_end() {
    // One of them is of the proxy that behaves.
    let mut site = Site::start(&[&OPEN[..], &["--max-streams", "3"]].concat(), None).await;
    let call = async |method: &'static str| {
        let opener = raw_stream::connect(&site.server).await;
        let mut call = RawStream::call(opener, method, &[]).await.unwrap();
        // A message of 1 KiB, of which one byte comes.
        let _ = call.send(Bytes::from_static(&[0, 0, 0, 4, 0, 7])).await;
        call
    };
    let answer =
        async |call: RawStream| tokio::time::timeout(DEADLINE, call.receive_once()).await.unwrap();
    let streams = async |count: usize| {
        let page = site.distributor.get("/limits").await.unwrap_or_default();
        let page: String = page.split_whitespace().collect();
        page.contains(&format!("\"streams\":{{\"now\":{count},"))
    };
    let calls = [call(CHECK).await, call(WATCH).await];
    until("they count", async || streams(3).await).await;
    let refused = answer(call(CHECK).await).await.unwrap_err();
    assert!(refused.message().contains("--max-streams"), "{refused}");
    for call in calls {
        let status = answer(call).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    until("they have ended", async || streams(1).await).await;
    let there = |state: &State| !state.received.is_empty();
    site.new_proxy().until("room again", DEADLINE, there).await.unwrap();
    site.goes_on().await;
}

/// Streams, some on each connection, that say this and no more.
async fn half_received(
    site: &mut Site,
    half: Bytes,
    count: usize,
    on_each: usize,
) -> Vec<RawStream> {
    let mut streams = Vec::new();
    for _ in 0..count / on_each {
        let opener = raw_stream::connect(&site.server).await;
        for _ in 0..on_each {
            let mut raw_stream = RawStream::open_on(opener.clone()).await.unwrap();
            let half = half.clone();
            streams.push(tokio::spawn(async move {
                // Streams for which there is no room are rejected under way.
                let _ = raw_stream.send(half).await;
                raw_stream
            }));
        }
    }
    let mut raw_streams = Vec::new();
    for stream in streams {
        raw_streams.push(tokio::time::timeout(DEADLINE, stream).await.unwrap().unwrap());
        if raw_streams.len() % 100 == 0 {
            site.goes_on().await;
        }
    }
    raw_streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_resets_and_of_headers_take_no_memory() {
    let mut site = Site::start(&OPEN, None).await;
    let before = site.distributor.memory();
    let mut floods = Vec::new();
    for number in 0..200 {
        let mut stream = raw::connect(&site.server).await;
        floods.push(tokio::spawn(async move {
            let words: Vec<u8> = match number % 2 {
                0 => (0..10_000).flat_map(|n| reset(2 * n + 1)).collect(),
                _ => [raw::begin(1), raw::go_on(1).repeat(100_000)].concat(),
            };
            // It is hung up on under way.
            let _ = stream.write_all(&words).await;
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received).await;
        }));
        if number % 50 == 0 {
            site.goes_on().await;
        }
    }
    for flood in floods {
        tokio::time::timeout(DEADLINE, flood).await.unwrap().unwrap();
    }
    until("all are gone", async || site.distributor.metric(CONNECTIONS).await == 1).await;
    let taken = site.distributor.memory().saturating_sub(before);
    assert!(taken < 100, "{taken} MiB");
    site.goes_on().await;
}

/// A decoder of whole messages would take two gigabytes for the first of them, and hundreds of megabytes for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_millions_of_empty_parts_take_little() {
    let node = Node { cluster: FLEET.to_owned(), ..Default::default() }.encode_to_vec();
    // The node's extensions, features and metadata, names and versions, locators, details of an error: in each field of
    // the path the next one.
    let paths: [&[u32]; 7] = [&[1, 9], &[1, 10], &[1, 3, 1], &[3], &[5], &[8], &[7, 3]];
    for path in paths {
        let (last, outer) = path.split_last().unwrap();
        let mut parts = [*last as u8 * 8 + 2, 0].repeat(15 << 20);
        let mut words = Vec::new();
        for field in outer.iter().rev() {
            // The node says whose it is before it goes on.
            let start = if *field == 1 { node.clone() } else { Vec::new() };
            let mut message = Vec::new();
            append_message(&mut message, *field, &[start, parts].concat());
            parts = message;
        }
        if path[0] != 1 {
            append_message(&mut words, 1, &node);
        }
        append_message(&mut words, 2, ResourceType::Cluster.type_url().as_bytes());
        words.extend(parts);
        let length = u32::try_from(words.len()).unwrap().to_be_bytes();
        let mut site = Site::start(&OPEN, None).await;
        let before = site.distributor.peak_memory();
        let mut raw_stream = RawStream::open(&site.server).await;
        raw_stream.send([&[0], &length[..], &words].concat().into()).await.unwrap();
        let outcome = tokio::time::timeout(DEADLINE, raw_stream.receive_once()).await.unwrap();
        let taken = site.distributor.peak_memory().saturating_sub(before);
        assert!(taken < 100, "{path:?}: {taken} MiB");
        let status = outcome.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{path:?}: {status}");
        site.goes_on().await;
    }
}

/// A client can reject and wait as often as it likes, and in ever other words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_different_rejections_are_few_lines() {
    let mut site = Site::start(&OPEN, None).await;
    let rejections = "heliograph_distributor_rejections_total{type=\"cluster\"}";
    for number in 0..1000 {
        let words = format!("this is the {number}. {}", "x".repeat(4 << 10));
        let mut options = Options::new(site.server.clone(), Protocol::Delta, FLEET);
        options.rejects = Arc::new(move |_, _, _| Some(words.clone()));
        let client = Client::connect(options).unwrap();
        let rejected = |state: &State| state.received.iter().any(|it| !it.accepted);
        client.until("a rejection", DEADLINE, rejected).await.unwrap();
        until("it is heard", async || site.distributor.metric(rejections).await > number).await;
    }
    let lost = Options::new(site.server.clone(), Protocol::Delta, "not/there");
    let waiting: Vec<_> = (0..100).map(|_| Client::connect(lost.clone()).unwrap()).collect();
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    until("they wait", async || site.distributor.metric(streams).await > 100).await;
    until("a line", async || site.distributor.log().contains("not/there")).await;
    site.goes_on().await;
    drop(waiting);
    let log = site.distributor.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert!((1..=2).contains(&lines("rejected some")), "{} lines", lines("rejected some"));
    assert_eq!(lines("not/there"), 1);
    let longest = log.lines().map(str::len).max().unwrap();
    assert!(longest < 2 << 10, "a line of {longest} bytes");
}

/// A client can make up any number of names, on any number of streams, and leave every answer unanswered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_no_fleet_has_take_a_bounded_memory() {
    const STREAMS: usize = 50;
    let mut site = Site::start(&OPEN, None).await;
    let before = site.distributor.peak_memory();
    let ask = |kind: ResourceType, names: Vec<String>| -> Bytes {
        let node = request(Vec::new()).node.filter(|_| kind == ResourceType::ALL[0]);
        let type_url = kind.type_url().to_owned();
        framed(&DeltaDiscoveryRequest { node, type_url, ..request(names) }).into()
    };
    // More than any stream may name of what there is not.
    let names: Vec<_> = (0..190_000).map(|n| n.to_string()).collect();
    let many = ResourceType::ALL.map(|kind| ask(kind, names.clone()));
    let mut raw_streams = Vec::new();
    for number in 0..STREAMS {
        let mut raw_stream = RawStream::open(&site.server).await;
        for words in &many {
            // It may have ended meanwhile.
            let _ = raw_stream.send(words.clone()).await;
        }
        raw_streams.push(raw_stream);
        if number % 10 == 0 {
            site.goes_on().await;
        }
    }
    site.goes_on().await;
    let taken = site.distributor.peak_memory().saturating_sub(before);
    assert!(taken < 300, "{taken} MiB, by streams that name too much each");
    for raw_stream in raw_streams {
        let status =
            tokio::time::timeout(DEADLINE, raw_stream.receive_once()).await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("190000 names"), "{status}");
    }

    // As many as a stream may name, and so it is too much for all of them together.
    let mut raw_streams = Vec::new();
    for number in 0..STREAMS {
        let mut raw_stream = RawStream::open(&site.server).await;
        for kind in ResourceType::ALL {
            let names = (0..9_000).map(|n| format!("{number}-{n}")).collect();
            let _ = raw_stream.send(ask(kind, names)).await;
        }
        raw_streams.push(raw_stream);
        if number % 10 == 0 {
            site.goes_on().await;
        }
    }
    let refused = async || rejected_clients(&site, "identity_memory").await;
    until("refusals", async || refused().await as usize >= STREAMS - 5).await;
    site.goes_on().await;
    let kept = "heliograph_distributor_subscription_bytes";
    let bytes = site.distributor.metric(kept).await;
    assert!((10 << 20..=32 << 20).contains(&bytes), "{bytes}");
    let taken = site.distributor.peak_memory().saturating_sub(before);
    assert!(taken < 300, "{taken} MiB, by streams that name too much together");
    // Somebody who comes now is served as well, and one who leaves gives back what it had.
    let newest = site.newest_cluster();
    let there = move |state: &State| state.body(ResourceType::Cluster, &newest).is_some();
    site.new_proxy().until("the newest cluster", DEADLINE, there).await.unwrap();
    drop(raw_streams);
    until("nothing is kept", async || site.distributor.metric(kept).await == 0).await;
}

/// What waits for a stream is the bytes of all others, also if its client asks for a name that no other asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_not_read_are_in_memory_once() {
    const STREAMS: usize = 300;
    // Otherwise they would be gone sooner.
    let flags = [&OPEN[..], &["--send-timeout", "0"]].concat();
    let mut site = Site::start(&flags, None).await;
    let names: Vec<_> = (0..500).map(|n| format!("one-of-many-{n}")).collect();
    // 4 MB together.
    site.changes_to(names.clone(), &"x".repeat(8_000)).await;
    let before = site.distributor.peak_memory();
    let mut raw_streams = Vec::new();
    for number in 0..STREAMS {
        let names = names.iter().cloned().chain([format!("own-{number}")]).collect();
        let opener = raw_stream::connect_narrow(&site.server).await;
        let mut raw_stream = RawStream::open_on(opener).await.unwrap();
        raw_stream.send(framed(&request(names)).into()).await.unwrap();
        raw_streams.push(raw_stream.answered().await);
    }
    let taken = site.distributor.peak_memory().saturating_sub(before);
    assert!(taken < 200, "{taken} MiB, and a reply for each would be 1200");
    drop(raw_streams);
    site.goes_on().await;
}

/// For this process and those that it starts, as many as it may have.
pub(crate) fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    assert!(limit.maximum.is_none_or(|most| most > 12_000), "raise the hard limit of open files");
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A stream that is opened and given up.
fn reset(number: u32) -> Vec<u8> {
    [raw::open(number), raw::cancel(number)].concat()
}

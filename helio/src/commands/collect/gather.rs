use super::Args;
use super::bundle::{Bundle, as_path};
use crate::commands::{proxies, snapshot, status};
use crate::output::shown_time;
use crate::sources::{Answers, Connection, Silent, Source, Sources, Told, parsed};
use futures::future::join_all;
use k8s_openapi::api::core::v1 as core;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// The pages that are kept as they are, and what they are called in a bundle.
const PAGES: [(&str, &str); 6] = [
    ("/metrics", "metrics.txt"),
    ("/readyz", "readyz.txt"),
    ("/logging", "logging.txt"),
    ("/fleets", "fleets.json"),
    ("/acks", "acks.json"),
    ("/status?format=json", "objects.json"),
];

/// Of no more fleets is told what they are told: a bundle is sent to others.
const FLEETS: usize = 200;
/// Of a log, the newest of it.
const LOG_BYTES: usize = 4 << 20;

type Pages = BTreeMap<&'static str, String>;

/// Asks everybody for everything. Who does not answer is named, and named in the bundle, too.
pub(super) async fn gather(
    sources: &Sources,
    args: &Args,
    now: SystemTime,
) -> anyhow::Result<(Bundle, Vec<Silent>)> {
    let mut bundle = Bundle::new()?;
    let pages = sources.try_to_ask(async |_, port| Ok(pages(port).await)).await;
    for (name, pages) in &pages.given {
        for (file, text) in pages {
            bundle.add(format!("replicas/{}/{file}", as_path(name)), text.clone());
        }
    }
    let snapshots = snapshots(sources, &pages.given).await;
    for (fleet, told) in snapshots.given.into_iter().flat_map(|(_, told)| told) {
        let name: Vec<_> = fleet.split('/').map(as_path).collect();
        bundle.add_json(format!("fleets/{}.json", name.join("/")), &told)?;
    }
    let listed = sources.try_to_ask(async |_, port| proxies::Reply::from(port, "").await).await;
    let listing = proxies::Listing::of(listed, &[]);
    bundle
        .add("proxies.txt".to_owned(), listing.table().render(false) + &listing.in_words() + "\n");
    bundle.add_json("proxies.json".to_owned(), &listing)?;

    let mut silent = pages.silent.clone();
    let limit = args.sources.timeout();
    let store = status::ask_store(&args.store, limit).await.unwrap_or_else(|error| {
        silent.push(Silent { name: "the store".to_owned(), why: format!("{error:#}") });
        None
    });
    if let Some(store) = &store {
        bundle.add_json("store.json".to_owned(), store)?;
        let histories = snapshot::histories(&args.store, store.fleets().take(FLEETS), limit).await;
        match histories {
            Ok(histories) => bundle.add_json("history.json".to_owned(), &histories)?,
            Err(error) => {
                silent.push(Silent { name: "the store".to_owned(), why: format!("{error:#}") });
            }
        }
    }
    let replies = pages.given.iter().map(|(name, pages)| (name.clone(), reply(pages))).collect();
    let status = status::Status::of(Answers { given: replies, silent: silent.clone() }, store);
    bundle.add("status.txt".to_owned(), status.tables(false));
    bundle.add_json("status.json".to_owned(), &status)?;

    of_cluster(sources, args, &mut bundle, &mut silent).await?;
    silent.extend(snapshots.silent);
    silent.extend(listing.silent.iter().cloned());
    // Who is away is away for every question.
    let mut known = BTreeSet::new();
    silent.retain(|it| known.insert((it.name.clone(), it.why.clone())));
    let asked: Vec<_> = sources.iter().map(|source| &source.name).collect();
    let about = json!({
        "helio": env!("CARGO_PKG_VERSION"),
        "time": shown_time(now),
        "asked": asked,
        "silent": silent,
        "fleetsAtMost": FLEETS,
    });
    bundle.add_json("about.json".to_owned(), &about)?;
    Ok((bundle, silent))
}

/// A page that cannot be read says why in its place.
async fn pages(port: &mut Connection) -> Pages {
    let mut pages = Pages::new();
    for (path, file) in PAGES {
        let text = match path {
            "/readyz" => port.words(path).await.map(Some),
            _ => port.text_if_there(path).await,
        };
        match text {
            Ok(Some(text)) => drop(pages.insert(file, text)),
            Ok(None) => {}
            Err(error) => drop(pages.insert(file, format!("it cannot be read: {error:#}\n"))),
        }
    }
    pages
}

/// What each fleet is told, by a distributor that has it in memory.
async fn snapshots(
    sources: &Sources,
    given: &[(String, Pages)],
) -> Answers<BTreeMap<String, Value>> {
    let mut holders: BTreeMap<String, &str> = BTreeMap::new();
    for (name, pages) in given {
        let fleets: Option<BTreeMap<String, Value>> = page(pages, "fleets.json");
        for (fleet, row) in fleets.into_iter().flatten() {
            if row["loaded"] == true && (holders.len() < FLEETS || holders.contains_key(&fleet)) {
                holders.entry(fleet).or_insert(name);
            }
        }
    }
    let asked = sources.only(|name| holders.values().any(|holder| *holder == name)).patient();
    asked
        .try_to_ask(async |source, port| {
            let mut told = BTreeMap::new();
            for (fleet, _) in holders.iter().filter(|(_, holder)| **holder == source.name) {
                let answer = Told::from(port, fleet, "&content=false").await;
                let answer = answer.map_or_else(
                    |error| json!({"error": format!("{error:#}")}),
                    |told| json!(told),
                );
                told.insert(fleet.clone(), answer);
            }
            Ok(told)
        })
        .await
}

fn reply(pages: &Pages) -> status::Reply {
    let text = |file| pages.get(file).cloned().unwrap_or_default();
    status::Reply {
        metrics: text("metrics.txt"),
        ready: text("readyz.txt"),
        fleets: page(pages, "fleets.json"),
        acks: page(pages, "acks.json"),
    }
}

/// `None` if there is no such page, or it could not be read.
fn page<T: DeserializeOwned>(pages: &Pages, file: &str) -> Option<T> {
    pages.get(file).and_then(|text| parsed(file, text).ok())
}

/// What the API server says of the pods, and their logs.
async fn of_cluster(
    sources: &Sources,
    args: &Args,
    bundle: &mut Bundle,
    silent: &mut Vec<Silent>,
) -> anyhow::Result<()> {
    let pods: Vec<_> = sources.iter().filter_map(|it| Some((it, it.pod()?))).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let facts: Vec<_> = pods.iter().map(|(_, pod)| pod_facts(&pod.object)).collect();
    bundle.add_json("pods.json".to_owned(), &facts)?;
    if args.log_lines == 0 {
        return Ok(());
    }
    let limit = args.sources.timeout();
    let logs = pods.iter().map(|(source, pod)| async move {
        let lines = args.log_lines.into();
        let restarted = containers(&pod.object).any(|status| status.restart_count > 0);
        let newest = within(limit, source, "log", pod.log(lines, false));
        let previous = async {
            match restarted {
                true => Some(within(limit, source, "log before", pod.log(lines, true)).await),
                false => None,
            }
        };
        let (newest, previous) = tokio::join!(newest, previous);
        (source, newest, previous)
    });
    for (source, newest, previous) in join_all(logs).await {
        let logs = [("", Some(newest)), ("-before", previous)];
        for (suffix, log) in logs.into_iter().filter_map(|(suffix, log)| Some((suffix, log?))) {
            match log {
                Ok(text) => {
                    let path = format!("logs/{}{suffix}.txt", as_path(&source.name));
                    bundle.add(path, newest_of(text));
                }
                Err(failure) => silent.push(failure),
            }
        }
    }
    Ok(())
}

async fn within(
    limit: Duration,
    source: &Source,
    what: &str,
    asked: impl Future<Output = anyhow::Result<String>>,
) -> Result<String, Silent> {
    let failed = |why: String| Silent { name: source.name.clone(), why: format!("{what}: {why}") };
    match timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| failed(format!("{error:#}"))),
        Err(_) => Err(failed(format!("no answer within {limit:?}"))),
    }
}

fn newest_of(mut log: String) -> String {
    let excess = log.len().saturating_sub(LOG_BYTES);
    let start = log.as_bytes()[excess..].iter().position(|byte| *byte == b'\n');
    if excess > 0 {
        log.drain(..excess + start.map_or(0, |at| at + 1));
    }
    log
}

/// Not the whole object: what others put into annotations and variables is not ours to pass on.
fn pod_facts(pod: &core::Pod) -> Value {
    let containers: Vec<_> = containers(pod)
        .map(|status| {
            let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            json!({
                "name": status.name,
                "image": status.image,
                "ready": status.ready,
                "restarts": status.restart_count,
                "lastExit": ended.map(|it| json!({"code": it.exit_code, "reason": it.reason})),
            })
        })
        .collect();
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    json!({
        "name": pod.metadata.name,
        "node": spec.and_then(|spec| spec.node_name.as_ref()),
        "phase": status.and_then(|status| status.phase.as_ref()),
        "started": status.and_then(|status| status.start_time.as_ref()),
        "containers": containers,
    })
}

fn containers(pod: &core::Pod) -> impl Iterator<Item = &core::ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

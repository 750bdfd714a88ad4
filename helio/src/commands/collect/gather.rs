use super::Args;
use super::bundle::{Bundle, as_path};
use super::pods;
use crate::commands::{proxies, snapshot, status};
use crate::output::shown_time;
use crate::sources::{AdminPort, Answers, Pod, Silent, SnapshotContent, Sources, parsed};
use anyhow::anyhow;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The pages that are kept as they are, and what they are called in a bundle.
const PAGES: [(&str, &str); 6] = [
    // The first and smallest page: a program that does not answer it is unreachable.
    ("/readyz", "readyz.txt"),
    ("/metrics", "metrics.txt"),
    ("/logging", "logging.txt"),
    ("/fleets", "fleets.json"),
    ("/acks", "acks.json"),
    ("/status?format=json", "objects.json"),
];

/// How many fleets a bundle has the snapshots of: a bundle is sent to others.
const FLEETS: usize = 200;
/// The time for all snapshots of a distributor, as a multiple of the timeout of one request.
const FLEET_PAGES_TIMEOUT_FACTOR: u32 = 6;

type Pages = BTreeMap<&'static str, String>;

/// Collects everything from all programs. Those that do not answer are named, in the bundle, too.
pub(super) async fn gather(
    sources: &Sources,
    args: &Args,
    now: SystemTime,
) -> anyhow::Result<(Bundle, Vec<Silent>)> {
    let mut bundle = Bundle::new()?;
    // Those who say nothing, and what is missing of the others.
    let (mut silent, mut missing) = (Vec::new(), Vec::new());
    let mut given: Vec<(String, Pages)> = Vec::new();
    for (name, answer) in sources.each(pages).await {
        match answer {
            Ok((pages, unread)) => {
                missing.extend(unread.iter().map(|why| Silent::new(&name, why)));
                given.push((name, pages));
            }
            Err(error) => silent.push(Silent::new(name, &error)),
        }
    }
    for (name, pages) in &given {
        for (file, text) in pages {
            bundle.add(format!("replicas/{}/{file}", as_path(name)), text.clone());
        }
    }
    let shares = shares(&given);
    for (name, (contents, unread)) in snapshots(sources, &shares, args.sources.timeout()).await {
        missing.extend(unread.iter().map(|why| Silent::new(&name, why)));
        for (fleet, content) in contents {
            let name: Vec<_> = fleet.split('/').map(as_path).collect();
            bundle.add_json(format!("fleets/{}.json", name.join("/")), &content)?;
        }
    }
    // A long list takes its time. Unreachable programs are not asked again.
    let asked = sources.only(|name| given.iter().any(|(it, _)| it == name)).with_long_timeout();
    let mut listed = asked.try_to_ask(async |_, port| proxies::Reply::from(port, "").await).await;
    missing.append(&mut listed.silent);
    listed.silent.extend(silent.iter().chain(&missing).cloned());
    let listing = proxies::Listing::of(listed, &[]);
    bundle
        .add("proxies.txt".to_owned(), listing.table().render(false) + &listing.in_words() + "\n");
    bundle.add_json("proxies.json".to_owned(), &listing)?;

    let limit = args.sources.timeout();
    let store = status::ask_store(&args.store, limit).await.unwrap_or_else(|error| {
        silent.push(Silent::new(Silent::STORE, &error));
        None
    });
    if let Some(store) = &store {
        bundle.add_json("store.json".to_owned(), store)?;
        let histories = snapshot::histories(&args.store, store.fleets().take(FLEETS), limit).await;
        match histories {
            Ok(histories) => bundle.add_json("history.json".to_owned(), &histories)?,
            Err(error) => missing.push(Silent::new(Silent::STORE, &error)),
        }
    }
    let replies = given.iter().map(|(name, pages)| (name.clone(), reply(pages))).collect();
    let is_whole = sources.is_whole();
    let answers = Answers { given: replies, silent: silent.clone(), is_whole };
    let status = status::Status::of(answers, store);
    bundle.add("status.txt".to_owned(), status.tables(false));
    bundle.add_json("status.json".to_owned(), &status)?;

    pods::gather(sources, args, &mut bundle, &mut silent).await?;
    silent.append(&mut missing);
    let asked: Vec<_> = sources.iter().map(|source| &source.name).collect();
    let ended: Vec<_> = sources.ended().map(Pod::name).collect();
    let about = json!({
        "helio": env!("CARGO_PKG_VERSION"),
        "time": shown_time(now),
        "asked": asked,
        "ended": ended,
        "silent": silent,
        "fleetsAtMost": FLEETS,
    });
    bundle.add_json("about.json".to_owned(), &about)?;
    Ok((bundle, silent))
}

/// What can be read, and why the rest cannot: that is said in its place, too.
async fn pages(port: &mut AdminPort<'_>) -> anyhow::Result<(Pages, Vec<anyhow::Error>)> {
    let (mut pages, mut unread) = (Pages::new(), Vec::new());
    for (path, file) in PAGES {
        let text = port.ask(async |connection| match path {
            "/readyz" => connection.words(path).await.map(Some),
            _ => connection.text_if_there(path).await,
        });
        match text.await {
            Ok(Some(text)) => drop(pages.insert(file, text)),
            Ok(None) => {}
            Err(error) if pages.is_empty() => return Err(error),
            Err(error) => {
                pages.insert(file, format!("it cannot be read: {error:#}\n"));
                unread.push(error.context(file));
            }
        }
    }
    Ok((pages, unread))
}

/// Which fleets each distributor is asked for: of those that it has in memory, shared out among all who have them.
fn shares(given: &[(String, Pages)]) -> BTreeMap<&str, Vec<String>> {
    let mut holders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, pages) in given {
        let fleets: Option<BTreeMap<String, Value>> = page(pages, "fleets.json");
        for (fleet, _) in fleets.into_iter().flatten().filter(|(_, row)| row["loaded"] == true) {
            holders.entry(fleet).or_default().push(name);
        }
    }
    let mut shares: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (fleet, holders) in holders.into_iter().take(FLEETS) {
        let least = holders.into_iter().min_by_key(|name| shares.get(name).map_or(0, Vec::len));
        least.into_iter().for_each(|name| shares.entry(name).or_default().push(fleet.clone()));
    }
    shares
}

/// The snapshot of each fleet, or why that is not known; and in one line what is missing.
type Snapshots = (BTreeMap<String, Value>, Option<anyhow::Error>);

/// Each fleet may take as long as any question. What came before the time is up is kept.
async fn snapshots(
    sources: &Sources,
    shares: &BTreeMap<&str, Vec<String>>,
    limit: Duration,
) -> Vec<(String, Snapshots)> {
    let asked = sources.only(|name| shares.contains_key(name));
    asked
        .each(async |port| {
            let end = Instant::now() + limit * FLEET_PAGES_TIMEOUT_FACTOR;
            let fleets = shares.get(&*port.source.name).map_or(&[][..], Vec::as_slice);
            let (mut contents, mut failures) = (BTreeMap::new(), Vec::new());
            for fleet in fleets {
                let answer = match Instant::now() < end {
                    true => {
                        let query = "&content=false";
                        port.ask(async |it| SnapshotContent::from(it, fleet, query).await).await
                    }
                    false => Err(anyhow!("the time was up")),
                };
                let answer = answer.map(|content| json!(content)).unwrap_or_else(|error| {
                    let why = format!("{error:#}");
                    failures.push(error);
                    json!({"error": why})
                });
                contents.insert(fleet.clone(), answer);
            }
            let (failed, all) = (failures.len(), fleets.len());
            let first = failures.into_iter().next();
            (contents, first.map(|why| why.context(format!("{failed} of {all} fleets"))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_are_shared_out_among_those_who_have_them() {
        let has = |name: &str, fleets: Value| {
            (name.to_owned(), Pages::from([("fleets.json", fleets.to_string())]))
        };
        let (here, gone) = (json!({"loaded": true}), json!({"loaded": false}));
        let given = [
            has("a", json!({"x/1": here, "x/2": here, "x/3": here, "x/4": gone})),
            has("b", json!({"x/1": here, "x/2": here, "x/3": gone, "x/4": gone})),
            ("c".to_owned(), Pages::from([("fleets.json", "it cannot be read".to_owned())])),
        ];
        let shares = shares(&given);
        assert_eq!(shares["a"], ["x/1", "x/3"]);
        assert_eq!(shares["b"], ["x/2"]);
        assert_eq!(shares.len(), 2);
        let many: serde_json::Map<_, _> =
            (0..500).map(|number| (format!("x/{number}"), here.clone())).collect();
        assert_eq!(self::shares(&[has("a", many.into())])["a"].len(), FLEETS);
    }
}

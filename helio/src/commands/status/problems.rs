use super::store::{Pin, StoreFacts};
use super::summary::{Distributor, Fleet, Rejected, Status, Translator, counts};
use crate::output::shown_time;
use crate::sources::PinRow;
use std::time::{Duration, UNIX_EPOCH};

/// A store that did not answer for longer than this, in seconds, is unreachable: it is compared every second or two.
pub(super) const STALE: f64 = 10.0;

/// Refusals that are a problem however often they happened, as reasons of the metric: one identity or namespace is beyond what it may
/// have. The others are usual when many proxies connect at once.
const BUDGETS: [&str; 5] =
    ["identity", "namespace", "identity_memory", "namespace_memory", "replica_memory"];

/// Of one fleet, no more rejections are listed.
const REJECTIONS: usize = 3;

/// What is wrong, in one line each: first with those that write, then with those that serve, then fleet by fleet.
pub(super) fn of(status: &Status) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(absences(status));
    problems.extend(leadership(status));
    status.translators.iter().for_each(|it| problems.extend(of_translator(it)));
    status.distributors.iter().for_each(|it| problems.extend(of_distributor(it)));
    status.fleets.iter().for_each(|it| problems.extend(of_fleet(it)));
    if let Some(store) = &status.store {
        problems.extend(of_store(store, status));
    }
    problems
}

/// Who is not there at all. Where ports were named by hand, others may be that were not.
fn absences(status: &Status) -> Vec<String> {
    let of = |is_absent: bool, name: &str, so: &str| {
        let problem = match status.is_partial() {
            true => format!("no {name} responded: if none runs, {so}"),
            false => format!("there is no {name}: {so}. Start one"),
        };
        (is_absent && status.is_whole).then_some(problem)
    };
    let none = "changes are not published";
    let nobody = "proxies keep their configuration, and those that start get none";
    let translators = of(status.translators.is_empty(), "translator", none);
    translators
        .into_iter()
        .chain(of(status.distributors.is_empty(), "distributor", nobody))
        .collect()
}

fn leadership(status: &Status) -> Option<String> {
    let translators = &status.translators;
    let leaders: Vec<_> =
        translators.iter().filter(|it| it.leads).map(|it| it.name.as_str()).collect();
    match *leaders {
        [] if translators.is_empty() => None,
        // The one that does may be slow.
        [] if status.is_partial() => Some(
            "none of the translators that responded is the leader: if no other one is, changes are not published".to_owned(),
        ),
        [] => Some("no translator leads: changes are not published. The logs of the translators have the reason".to_owned()),
        [_] => None,
        _ => Some(format!(
            "more than one translator reports that it leads: {}; the store accepts only the writes of the newest one",
            leaders.join(", ")
        )),
    }
}

fn of_translator(translator: &Translator) -> Vec<String> {
    let Translator {
        name,
        not_ready,
        pending,
        left_out,
        over_budget,
        withheld,
        oversized,
        delayed,
        store_age,
        ..
    } = translator;
    let mut problems = Vec::new();
    problems.extend(not_ready.as_ref().map(|it| format!("{name} is not ready, and awaits: {it}")));
    problems.extend(silent_store(name, *store_age));
    if *pending > 0 {
        problems.push(format!(
            "{name} has not written {pending} of its fleets to the store yet; if that lasts, its log has the reason"
        ));
    }
    if *left_out > 0 {
        problems.push(format!(
            "{name} leaves out {left_out} objects, fully or in part, because more proxies reject them than accept them: {}",
            reported_by("LeftOut")
        ));
    }
    if *over_budget > 0 {
        problems.push(format!(
            "{name} rejects {over_budget} routes that exceed a budget: {}",
            reported_by("TooLarge or, for an expression, UnsupportedValue")
        ));
    }
    if *delayed > 0 {
        problems.push(format!(
            "{name} delays the last change of {delayed} routes by up to 32 s, because proxies have rejected routes of their \
             namespace several times lately; its log names the namespace"
        ));
    }
    if *withheld > 0 {
        problems.push(format!(
            "{name} does not keep {withheld} Secrets and ConfigMaps that exceed the budget of their namespace: the conditions of the objects that \
             refer to them have the reason"
        ));
    }
    if *oversized > 0 {
        problems.push(format!(
            "{name} cannot write {oversized} resources that are too large for the store; its log names them. Proxies keep their previous versions"
        ));
    }
    problems
}

/// Which objects are meant.
fn reported_by(reason: &str) -> String {
    format!(
        "their status has the reason {reason}, and `/status?format=text` of its admin port lists all of them"
    )
}

fn of_distributor(distributor: &Distributor) -> Vec<String> {
    let Distributor {
        name,
        not_ready,
        damaged,
        unopened,
        from_cache,
        cache_age,
        refused,
        store_age,
        ..
    } = distributor;
    let mut problems = Vec::new();
    problems.extend(not_ready.as_ref().map(|it| format!("{name} is not ready, and awaits: {it}")));
    problems.extend(silent_store(name, *store_age));
    if *from_cache > 0 {
        let age = cache_age.filter(|age| *age > 0.0);
        let age = age.map_or_else(|| "an unknown time".to_owned(), |age| format!("{age:.0} s"));
        problems.push(format!(
            "{name} has started without the store and serves {from_cache} of its fleets from its snapshot cache, as they were \
             {age} ago; it sends nothing to proxies that may have something newer"
        ));
    }
    if *damaged > 0 {
        problems.push(format!(
            "{name} cannot load the newest snapshot of {damaged} of its fleets; a translator writes them again without action"
        ));
    }
    if *unopened > 0 {
        problems.push(format!(
            "{name} cannot open secrets of {unopened} of its fleets: give it the newest key ring"
        ));
    }
    let beyond = counts(refused.iter().filter(|(reason, _)| BUDGETS.contains(&reason.as_str())));
    if !beyond.is_empty() {
        problems.push(format!(
            "{name} has rejected clients that exceeded their budget since it started ({beyond}): its log names them, and `/limits` of its admin port shows \
             the use of each client"
        ));
    }
    problems
}

fn silent_store(name: &str, age: Option<f64>) -> Option<String> {
    let age = age.filter(|age| *age > STALE)?;
    Some(format!(
        "{name} has had no response from the store for {age:.0} s; its log has the reason. Proxies keep their configuration"
    ))
}

fn of_fleet(fleet: &Fleet) -> Vec<String> {
    let name = &fleet.name;
    let mut problems = Vec::new();
    if let Some(PinRow { head, since, by, reason }) = &fleet.pinned {
        let since = UNIX_EPOCH.checked_add(Duration::from_secs(*since)).unwrap_or(UNIX_EPOCH);
        let since = shown_time(since);
        problems.push(held(name, head, &since, by, reason));
    }
    for distributor in &fleet.behind {
        let at = fleet.distributors.get(distributor).map_or("?", String::as_str);
        let newest = fleet.head.map(|head| head.to_string()).unwrap_or_default();
        problems.push(format!("{name}: {distributor} is at {at}, the newest is {newest}"));
    }
    let rejections = &fleet.rejections;
    for Rejected { distributor, kind, resources, detail, count } in
        rejections.iter().take(REJECTIONS)
    {
        let what = if resources.is_empty() { "something".to_owned() } else { resources.join(", ") };
        problems.push(format!(
            "{name}: proxies of {distributor} reject {kind} {what} (said {count}x): {detail}"
        ));
    }
    if rejections.len() > REJECTIONS {
        problems.push(format!("{name}: {} rejections in all; -o json has them", rejections.len()));
    }
    if fleet.quarantined > 0 {
        problems.push(format!(
            "{name}: {} of its resources are in quarantine: too many proxies reject them, and new proxies get the last accepted version",
            fleet.quarantined
        ));
    }
    problems
}

fn held(fleet: &str, head: &str, since: &str, by: &str, reason: &str) -> String {
    let by = if by.is_empty() { "an operator" } else { by };
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    format!(
        "{fleet} is pinned to {head} by {by} since {since}: {reason}. Changes wait for `helio snapshot release {fleet}`"
    )
}

/// What only the store knows.
fn of_store(store: &StoreFacts, status: &Status) -> Vec<String> {
    let mut problems = Vec::new();
    // What the leading translator obeys, it says itself.
    let is_reported =
        |pin: &&Pin| status.fleets.iter().any(|it| it.name == pin.fleet && it.pinned.is_some());
    for pin in store.pins.iter().filter(|pin| !is_reported(pin)) {
        let Pin { fleet, head, since, by, reason } = pin;
        problems.push(held(fleet, head, since, by, reason));
    }
    // Names differ where ports were named by hand, so they are counted.
    let asked = status.distributors.len() + status.silent.len();
    if store.replicas.len() > asked {
        let all: Vec<_> = store
            .replicas
            .iter()
            .map(|it| format!("{} with {} streams", it.name, it.streams))
            .collect();
        problems.push(format!(
            "the store lists {} distributors, but {asked} were queried: {}",
            store.replicas.len(),
            all.join(", ")
        ));
    }
    problems
}

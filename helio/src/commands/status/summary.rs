use super::problems;
use super::store::StoreFacts;
use crate::output::{Cell, TextTable, cell, one_line};
use crate::sources::{Acks, AdminConnection, Answers, FleetRow, PinRow, ScrapedMetrics, Silent};
use heliograph_snapshot::Head;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// What one program says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    pub(crate) metrics: String,
    /// `/readyz`, in words.
    pub(crate) ready: String,
    /// Of a distributor.
    pub(crate) fleets: Option<BTreeMap<String, FleetRow>>,
    /// Of a translator.
    pub(crate) acks: Option<Acks>,
}

/// What there is to print.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(super) translators: Vec<Translator>,
    pub(super) distributors: Vec<Distributor>,
    pub(super) fleets: Vec<Fleet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<StoreFacts>,
    /// A line for each, with the remedy.
    problems: Vec<String>,
    pub(crate) silent: Vec<Silent>,
    /// See [`Answers::is_whole`].
    #[serde(skip)]
    pub(super) is_whole: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Translator {
    pub(super) name: String,
    version: String,
    /// What it awaits, if it is not.
    pub(super) not_ready: Option<String>,
    /// It is the one that writes to the store.
    pub(super) leads: bool,
    fleets: u64,
    /// Fleets that are not written yet.
    pub(super) pending: u64,
    /// Fleets that an operator holds back.
    pub(super) pinned: u64,
    /// Objects of which something is left out because proxies reject it, in all fleets.
    pub(super) left_out: u64,
    /// Routes that do not fit into a budget.
    pub(super) over_budget: u64,
    /// Secrets and ConfigMaps beyond the budget of their namespace.
    pub(super) withheld: u64,
    /// Resources that are too large for the store.
    pub(super) oversized: u64,
    /// Routes whose last change waits, because proxies keep rejecting routes of their namespace.
    pub(super) delayed: u64,
    /// Seconds since the last answer of its store; none without one.
    pub(super) store_age: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Distributor {
    pub(super) name: String,
    version: String,
    pub(super) not_ready: Option<String>,
    streams: u64,
    /// Fleets in memory, those whose newest snapshot cannot be loaded, and those with secrets that cannot be opened.
    loaded: u64,
    pub(super) damaged: u64,
    pub(super) unopened: u64,
    /// Fleets that it serves from its snapshot cache, because the store has not confirmed them since it started, and seconds
    /// since they were confirmed before that.
    pub(super) from_cache: u64,
    pub(super) cache_age: Option<f64>,
    /// How many connections and streams it has refused or ended since it started, by the reason of its metric, without zeros.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) store_age: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fleet {
    pub(super) name: String,
    /// The newest head that any program reports.
    #[serde(serialize_with = "as_text")]
    pub(super) head: Option<Head>,
    /// How many proxies are connected, and how many have acknowledged all of that head.
    proxies: u64,
    synced: u64,
    /// What some proxies reject now, in Envoy's words.
    pub(super) rejections: Vec<Rejected>,
    pub(super) quarantined: usize,
    /// Where an operator holds it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned: Option<PinRow>,
    /// Where each distributor stands that has it.
    pub(super) distributors: BTreeMap<String, String>,
    /// Distributors that are at an older head.
    pub(super) behind: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Rejected {
    pub(super) distributor: String,
    pub(super) kind: String,
    pub(super) resources: Vec<String>,
    pub(super) detail: String,
    /// How many times proxies said so.
    pub(super) count: u64,
}

impl Reply {
    pub(crate) async fn from(port: &mut AdminConnection) -> anyhow::Result<Self> {
        Ok(Self {
            metrics: port.text("/metrics").await?,
            ready: port.words("/readyz").await?,
            fleets: port.json_if_there("/fleets").await?,
            acks: port.json_if_there("/acks").await?,
        })
    }
}

impl Status {
    /// Everything that can be said of what was answered.
    pub(crate) fn of(answers: Answers<Reply>, store: Option<StoreFacts>) -> Self {
        let Answers { given, silent, is_whole } = answers;
        let (mut translators, mut distributors) = (Vec::new(), Vec::new());
        for (name, reply) in &given {
            let metrics = ScrapedMetrics::parse(&reply.metrics);
            // `helio standalone` is both.
            if metrics.sum("heliograph_translator_claimed").is_some() {
                translators.push(Translator::of(name, reply, &metrics));
            }
            if reply.fleets.is_some() {
                distributors.push(Distributor::of(name, reply, &metrics));
            }
        }
        let fleets = fleets(&given, store.as_ref());
        let problems = Vec::new();
        let mut status =
            Self { translators, distributors, fleets, store, problems, silent, is_whole };
        status.problems = problems::of(&status);
        status
    }

    /// Nothing is wrong, and nothing is missing that could be.
    pub(super) fn is_well(&self) -> bool {
        self.problems.is_empty() && self.silent.is_empty()
    }

    /// Some program was asked and did not answer, so that much may be other than it seems.
    pub(super) fn is_partial(&self) -> bool {
        self.silent.iter().any(|it| it.name != Silent::STORE)
    }

    pub(crate) fn tables(&self, colour: bool) -> String {
        let mut text = String::new();
        let mut section = |table: String, is_empty: bool| {
            if !is_empty {
                text += &table;
                text.push('\n');
            }
        };
        let translators = self.translators();
        section(translators.render(colour), translators.is_empty());
        let distributors = self.distributors();
        section(distributors.render(colour), distributors.is_empty());
        let fleets = self.fleets();
        section(fleets.render(colour), fleets.is_empty());
        if let Some(store) = &self.store {
            let (term, heads, pins) = (&store.term, store.heads.len(), store.pins.len());
            text += &format!("STORE: term {term}; fleets: {heads}, pinned: {pins}\n\n");
        }
        match self.problems.as_slice() {
            [] if self.silent.is_empty() => text += "No problems.\n",
            [] => text += "No problems at the programs that responded.\n",
            problems => {
                text += "PROBLEMS\n";
                for problem in problems {
                    text += &format!("- {}\n", one_line(problem));
                }
            }
        }
        text
    }

    fn translators(&self) -> TextTable<10> {
        let head = [
            "TRANSLATOR",
            "VERSION",
            "READY",
            "LEADER",
            "FLEETS",
            "PENDING",
            "PINNED",
            "LEFT OUT",
            "OVER BUDGET",
            "STORE",
        ];
        let mut table = TextTable::new(head);
        for it in &self.translators {
            table.push([
                Cell::from(&it.name),
                Cell::from(&it.version),
                ready(it.not_ready.as_deref()),
                if it.leads { Cell::from("yes").good() } else { "no".into() },
                it.fleets.into(),
                Cell::from(it.pending).bad_if(it.pending > 0),
                it.pinned.into(),
                Cell::from(it.left_out).bad_if(it.left_out > 0),
                Cell::from(it.beyond_budgets()).bad_if(it.beyond_budgets() > 0),
                age(it.store_age),
            ]);
        }
        table
    }

    fn distributors(&self) -> TextTable<9> {
        let head = [
            "DISTRIBUTOR",
            "VERSION",
            "READY",
            "STREAMS",
            "LOADED",
            "DAMAGED",
            "FROM CACHE",
            "STORE",
            "REFUSED SINCE START",
        ];
        let mut table = TextTable::new(head);
        for it in &self.distributors {
            table.push([
                Cell::from(&it.name),
                Cell::from(&it.version),
                ready(it.not_ready.as_deref()),
                it.streams.into(),
                it.loaded.into(),
                Cell::from(it.damaged).bad_if(it.damaged > 0),
                Cell::from(it.from_cache).bad_if(it.from_cache > 0),
                age(it.store_age),
                Cell::from(counts(&it.refused)),
            ]);
        }
        table
    }

    fn fleets(&self) -> TextTable<7> {
        let head = ["FLEET", "HEAD", "PROXIES", "SYNCED", "REJECTED", "QUARANTINED", "UP TO DATE"];
        let mut table = TextTable::new(head);
        for it in &self.fleets {
            let (all, behind) = (it.distributors.len(), it.behind.len());
            let synced = Cell::from(it.synced);
            table.push([
                Cell::from(&it.name),
                cell(it.head),
                it.proxies.into(),
                if it.synced < it.proxies { synced.doubtful() } else { synced.good() },
                Cell::from(it.rejections.len()).bad_if(!it.rejections.is_empty()),
                Cell::from(it.quarantined).bad_if(it.quarantined > 0),
                Cell::from(format!("{} of {all}", all - behind)).bad_if(behind > 0),
            ]);
        }
        table
    }
}

impl Translator {
    fn of(name: &str, reply: &Reply, metrics: &ScrapedMetrics) -> Self {
        let count = |name: &str| whole(metrics.sum(name));
        Self {
            name: name.to_owned(),
            version: version(metrics),
            not_ready: not_ready(&reply.ready),
            leads: count("heliograph_translator_claimed") > 0,
            fleets: count("heliograph_translator_fleets"),
            pending: count("heliograph_translator_pending_fleets"),
            pinned: count("heliograph_translator_pinned_fleets"),
            left_out: count("heliograph_translator_left_out_objects"),
            over_budget: count("heliograph_translator_refused_routes"),
            withheld: count("heliograph_kubernetes_withheld_objects"),
            oversized: count("heliograph_translator_oversized_resources"),
            delayed: count("heliograph_translator_delayed_routes"),
            store_age: metrics.sum("heliograph_store_staleness_seconds"),
        }
    }

    /// What does not count as it is, because a namespace or a table has too much.
    fn beyond_budgets(&self) -> u64 {
        self.over_budget + self.withheld + self.delayed
    }
}

impl Distributor {
    fn of(name: &str, reply: &Reply, metrics: &ScrapedMetrics) -> Self {
        let fleets =
            |state| whole(metrics.labelled("heliograph_distributor_fleets", "state", state));
        let from_cache = whole(metrics.sum("heliograph_store_cache_unconfirmed_fleets"));
        let refused = metrics.by_label("heliograph_distributor_rejected_clients_total", "reason");
        let refused = refused.into_iter().map(|(reason, count)| (reason, whole(Some(count))));
        Self {
            name: name.to_owned(),
            version: version(metrics),
            not_ready: not_ready(&reply.ready),
            streams: whole(metrics.sum("heliograph_distributor_streams")),
            loaded: fleets("loaded"),
            damaged: fleets("damaged"),
            unopened: fleets("unopened"),
            from_cache,
            cache_age: metrics.sum("heliograph_store_cache_age_seconds").filter(|_| from_cache > 0),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            store_age: metrics.sum("heliograph_store_staleness_seconds"),
        }
    }
}

/// Every fleet that a program reports.
fn fleets(given: &[(String, Reply)], store: Option<&StoreFacts>) -> Vec<Fleet> {
    let mut fleets: BTreeMap<&str, Fleet> = BTreeMap::new();
    let mut add = |name, head: Option<Head>| {
        let fleet = fleets.entry(name).or_insert_with(|| Fleet::new(name));
        fleet.head = fleet.head.max(head);
    };
    for (_, reply) in given {
        reply.fleets.iter().flatten().for_each(|(name, fleet)| add(name, fleet.head));
        let acks = reply.acks.iter().flat_map(|acks| &acks.fleets);
        acks.for_each(|(name, fleet)| add(name, fleet.head));
    }
    store.iter().flat_map(|it| &it.heads).for_each(|(name, head)| add(name, Some(*head)));
    for (name, acked) in given.iter().flat_map(|(_, reply)| &reply.acks).flat_map(|it| &it.fleets) {
        if let (Some(fleet), Some(pin)) = (fleets.get_mut(&**name), &acked.pinned) {
            fleet.pinned = Some(pin.clone());
        }
    }
    for (distributor, reply) in given {
        for (name, row) in reply.fleets.iter().flatten() {
            if let Some(fleet) = fleets.get_mut(&**name) {
                fleet.add(distributor, row);
            }
        }
    }
    fleets.into_values().collect()
}

impl Fleet {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            head: None,
            proxies: 0,
            synced: 0,
            rejections: Vec::new(),
            quarantined: 0,
            pinned: None,
            distributors: BTreeMap::new(),
            behind: Vec::new(),
        }
    }

    /// What a distributor says, once the newest head is known.
    fn add(&mut self, distributor: &str, row: &FleetRow) {
        let at = row.head.map_or_else(|| "retired".to_owned(), |head| head.to_string());
        self.distributors.insert(distributor.to_owned(), at);
        self.proxies += row.connected;
        match row.head < self.head {
            true => self.behind.push(distributor.to_owned()),
            // Who has acknowledged an older one has not got the newest.
            false => self.synced += row.acknowledged,
        }
        self.quarantined = self.quarantined.max(row.quarantine.len());
        self.rejections.extend(row.rejections.iter().map(|it| Rejected {
            distributor: distributor.to_owned(),
            kind: it.kind.clone(),
            resources: it.resources.iter().map(|(name, _)| name.clone()).collect(),
            detail: it.detail.clone(),
            count: it.count,
        }));
    }
}

fn version(metrics: &ScrapedMetrics) -> String {
    metrics.label("heliograph_build_info", "version").unwrap_or_default().to_owned()
}

/// What is awaited, of `not ready, awaiting: …`.
fn not_ready(page: &str) -> Option<String> {
    let page = page.trim();
    // There may be more to say of one that is ready.
    (page.lines().next() != Some("ready"))
        .then(|| page.rsplit_once(": ").map_or(page, |(_, awaited)| awaited).to_owned())
}

fn ready(not_ready: Option<&str>) -> Cell {
    match not_ready {
        None => Cell::from("yes").good(),
        Some(awaited) => Cell::from(format!("no: {awaited}")).bad(),
    }
}

/// The time since the store's last answer.
fn age(seconds: Option<f64>) -> Cell {
    let text = seconds.map(|seconds| match seconds {
        ..10.0 => format!("{seconds:.1}s ago"),
        _ => format!("{seconds:.0}s ago"),
    });
    cell(text).bad_if(seconds.is_some_and(|seconds| seconds > problems::STALE))
}

/// How often each of them happened; empty for none.
pub(super) fn counts<'a>(all: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    let counts = all.into_iter().map(|(what, count)| format!("{what} {count}x"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Counts are whole; what is not there is none.
fn whole(value: Option<f64>) -> u64 {
    value.unwrap_or_default() as u64
}

fn as_text<S: Serializer>(head: &Option<Head>, serializer: S) -> Result<S::Ok, S::Error> {
    head.map(|head| head.to_string()).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, Rendered};
    use crate::output::Format;

    #[test]
    fn golden_statuses() {
        golden::check("status", |answers: Answers<Reply>| {
            let status = Status::of(answers, None);
            // What is said in words and what is said with the exit code is the same.
            assert_eq!(status.is_well(), status.tables(false).ends_with("No problems.\n"));
            Rendered { text: status.tables(false), json: Format::Json.render(&status).unwrap() }
        });
    }
}

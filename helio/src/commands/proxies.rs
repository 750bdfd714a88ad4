use crate::output::{self, Cell, Format, TextTable, cell};
use crate::sources::{
    Acks, Answers, ClientRow, FleetRow, Silent, SourcesArgs, encoded, report_silent,
};
use clap::ValueEnum;
use heliograph_snapshot::{FleetName, Head};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// List every connected proxy: whether it has the newest configuration, what it rejects, and where it runs
///
/// Proxies with problems come first. The exit code is 1 if a replica did not respond, because its proxies are missing then.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Show only proxies of this fleet, NAMESPACE/NAME of its Gateway
    fleet: Option<FleetName>,

    /// Show only the proxy with this node id
    #[arg(long, value_name = "ID")]
    node: Option<String>,

    /// Show only proxies in this state; can be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<State>,

    /// Output format [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    sources: SourcesArgs,
}

/// How a proxy does. The worst first, as they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum State {
    /// It rejected what it is to have, and stays at what it accepted
    Rejecting,
    /// It was sent something and does not answer
    Silent,
    /// Its fleet is not published
    Waiting,
    /// It has all that its distributor has, which is behind others
    Stale,
    /// It is on its way to the newest configuration
    Behind,
    /// It has the newest configuration
    Synced,
}

/// What one program says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reply {
    /// Of a distributor.
    fleets: Option<BTreeMap<String, FleetRow>>,
    /// Of a translator.
    acks: Option<Acks>,
    clients: Vec<ClientRow>,
}

/// What there is to print.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listing {
    proxies: Vec<Proxy>,
    /// How many are in which state.
    counts: BTreeMap<String, usize>,
    pub(super) silent: Vec<Silent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Proxy {
    distributor: String,
    #[serde(flatten)]
    row: ClientRow,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let sources = args.sources.open().await?;
        let query = args.query();
        let answers = sources.ask(async |_, port| Reply::from(port, &query).await).await?;
        let listing = Listing::of(answers, &args.state);
        output::result(&match args.output {
            Some(format) => format.render(&listing)?,
            None => listing.table().render(output::colour()),
        })?;
        if args.output.is_none() {
            output::message(&listing.in_words());
        }
        report_silent(&listing.silent);
        Ok(if listing.silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

impl Args {
    /// What a distributor can leave out, it need not send.
    fn query(&self) -> String {
        let mut query = String::new();
        if let Some(fleet) = &self.fleet {
            query += &format!("&fleet={}", encoded(fleet.as_str()));
        }
        if let Some(node) = &self.node {
            query += &format!("&node={}", encoded(node));
        }
        // Whether one is stale its distributor does not know.
        if let [state @ (State::Rejecting | State::Silent | State::Waiting | State::Behind)] =
            *self.state
        {
            query += &format!("&state={}", state.name());
        }
        query
    }
}

impl Reply {
    /// `query` narrows down the clients.
    pub(super) async fn from(
        port: &mut crate::sources::AdminConnection,
        query: &str,
    ) -> anyhow::Result<Self> {
        // Before the clients: one that has just got something newer must not look stale.
        let fleets = port.json_if_there("/fleets").await?;
        let acks = port.json_if_there("/acks").await?;
        let clients = match fleets.is_some() {
            true => port.lines(&format!("/clients?format=lines{query}")).await?,
            false => Vec::new(),
        };
        Ok(Self { fleets, acks, clients })
    }

    /// The newest head of each fleet that this program knows.
    fn heads(&self) -> impl Iterator<Item = (&str, Head)> {
        let of_distributor = self.fleets.iter().flatten().map(|(name, fleet)| (name, fleet.head));
        let acks = self.acks.iter().flat_map(|acks| &acks.fleets);
        let of_translator = acks.map(|(name, fleet)| (name, fleet.head));
        of_distributor.chain(of_translator).filter_map(|(name, head)| Some((&**name, head?)))
    }

    fn head(&self, fleet: &str) -> Option<Head> {
        self.fleets.as_ref()?.get(fleet)?.head
    }
}

impl Listing {
    /// `wanted` is empty if all are.
    pub(super) fn of(answers: Answers<Reply>, wanted: &[State]) -> Self {
        let Answers { given, silent, is_whole: _ } = answers;
        let mut newest: BTreeMap<String, Head> = BTreeMap::new();
        for (fleet, head) in given.iter().flat_map(|(_, reply)| reply.heads()) {
            let known = newest.entry(fleet.to_owned()).or_insert(head);
            *known = head.max(*known);
        }
        let mut proxies = Vec::new();
        for (distributor, mut reply) in given {
            for mut row in std::mem::take(&mut reply.clients) {
                let is_behind = reply.head(&row.fleet) < newest.get(&row.fleet).copied();
                if is_behind && row.state == State::Synced.name() {
                    row.state = State::Stale.name();
                }
                if wanted.is_empty() || wanted.iter().any(|state| row.state == state.name()) {
                    proxies.push(Proxy { distributor: distributor.clone(), row });
                }
            }
        }
        proxies.sort_by(|one, other| one.rank().cmp(&other.rank()));
        let mut counts = BTreeMap::new();
        for proxy in &proxies {
            *counts.entry(proxy.row.state.clone()).or_default() += 1;
        }
        Self { proxies, counts, silent }
    }

    pub(super) fn table(&self) -> TextTable<9> {
        let mut table = TextTable::new([
            "NODE",
            "FLEET",
            "STATE",
            "ACKNOWLEDGED",
            "DISTRIBUTOR",
            "ADDRESS",
            "ENVOY",
            "SINCE",
            "LAST ERROR",
        ]);
        for proxy in &self.proxies {
            table.push(proxy.cells());
        }
        table
    }

    /// `10000 proxies: 2 rejecting, 9998 synced`.
    pub(super) fn in_words(&self) -> String {
        let proxies = match self.proxies.len() {
            1 => "1 proxy".to_owned(),
            count => format!("{count} proxies"),
        };
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort_by_key(|(state, _)| State::of(state));
        let counts: Vec<_> = counts
            .iter()
            .map(|(state, count)| format!("{count} {}", output::one_line(state)))
            .collect();
        match counts.is_empty() {
            true => proxies,
            false => format!("{proxies}: {}", counts.join(", ")),
        }
    }
}

impl Proxy {
    /// `None` sorts first: a state that this program does not know is worth a look.
    fn rank(&self) -> (Option<State>, &str, &str, &str, &str) {
        let ClientRow { node, fleet, state, since, .. } = &self.row;
        (State::of(state), fleet, node, &self.distributor, since)
    }

    fn cells(&self) -> [Cell; 9] {
        let row = &self.row;
        let state = Cell::from(&row.state);
        let known = State::of(&row.state);
        let error = row.last_error.as_ref().filter(|_| known != Some(State::Synced));
        [
            Cell::from(&row.node),
            Cell::from(&row.fleet),
            match known {
                Some(State::Synced) => state.good(),
                Some(State::Rejecting) => state.bad(),
                _ => state.doubtful(),
            },
            cell(row.acknowledged.as_ref()),
            Cell::from(&self.distributor),
            Cell::from(&row.address),
            cell(row.envoy.as_ref()),
            Cell::from(&row.since),
            cell(error.map(|error| format!("{}: {}", error.r#type, error.detail))),
        ]
    }
}

impl State {
    fn of(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }

    fn name(self) -> String {
        // Every state has one.
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, Rendered};

    #[test]
    fn golden_listings() {
        golden::check("proxies", |answers: Answers<Reply>| {
            let listing = Listing::of(answers, &[]);
            Rendered {
                text: listing.table().render(false) + &listing.in_words() + "\n",
                json: Format::Json.render(&listing).unwrap(),
            }
        });
    }
}

use crate::output::{self, Cell, Format, TextTable, cell};
use crate::sources::{
    AdminConnection, ClientRow, ResourceRow, SnapshotContent, Sources, SourcesArgs, encoded,
    report_silent,
};
use anyhow::bail;
use heliograph_snapshot::FleetName;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// Show the configuration of one proxy: what it should have, and what it has
///
/// The table has one line for each resource. With -o, the content is printed, without secrets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Node id of the proxy, as `helio proxies` lists it
    node: String,

    /// Fleet of the proxy, if proxies of several fleets have this node id
    #[arg(long, value_name = "FLEET")]
    fleet: Option<FleetName>,

    #[arg(long, value_name = "TYPE", help = super::served_types())]
    r#type: Option<String>,

    /// Show only the resource with this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Output format [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    sources: SourcesArgs,
}

/// What is known of a proxy.
#[derive(Clone, Debug, Serialize)]
struct Configuration {
    distributor: String,
    proxy: ClientRow,
    /// What it is to have.
    #[serde(flatten)]
    content: SnapshotContent,
}

/// A page of `/clients`.
#[derive(Deserialize)]
struct Clients {
    clients: Vec<ClientRow>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let sources = args.sources.open().await?;
        let (distributor, proxy) = args.find(&sources).await?;
        let query = args.query(&proxy);
        let asked = sources.only(|name| name == distributor).with_long_timeout();
        let content =
            asked.ask(async |_, port| SnapshotContent::from(port, &proxy.fleet, &query).await);
        let Some((_, content)) = content.await?.given.pop() else { bail!("no program responded") };
        let configuration = Configuration { distributor, proxy, content };
        output::result(&match args.output {
            Some(format) => format.render(&configuration)?,
            None => configuration.tables(output::colour()),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    /// Where the proxy is connected.
    async fn find(&self, sources: &Sources) -> anyhow::Result<(String, ClientRow)> {
        let node = &self.node;
        let mut path = format!("/clients?format=json&limit=1000&node={}", encoded(node));
        if let Some(fleet) = &self.fleet {
            path += &format!("&fleet={}", encoded(fleet.as_str()));
        }
        // A translator has no such page.
        let ask =
            async |_: &_, port: &mut AdminConnection| port.json_if_there::<Clients>(&path).await;
        let answers = sources.ask(ask).await?;
        report_silent(&answers.silent);
        let mut found: Vec<(String, ClientRow)> = Vec::new();
        for (distributor, page) in answers.given {
            let clients = page.into_iter().flat_map(|page| page.clients);
            found.extend(clients.map(|client| (distributor.clone(), client)));
        }
        let mut fleets: Vec<_> = found.iter().map(|(_, client)| client.fleet.clone()).collect();
        fleets.sort();
        fleets.dedup();
        if let [_, _, ..] = *fleets {
            bail!("{node} is connected for {}: select one with --fleet", fleets.join(" and "));
        }
        // While a proxy reconnects its old stream may be there still.
        let newest = found.into_iter().max_by(|(_, one), (_, other)| one.since.cmp(&other.since));
        let Some(newest) = newest else {
            bail!("no proxy {node} is connected: `helio proxies` lists the connected ones");
        };
        Ok(newest)
    }

    fn query(&self, proxy: &ClientRow) -> String {
        let mut query = format!("&node={}", encoded(&proxy.node));
        for (key, value) in [("type", &self.r#type), ("name", &self.name)] {
            if let Some(value) = value {
                query += &format!("&{key}={}", encoded(value));
            }
        }
        if self.output.is_none() {
            query += "&content=false";
        }
        query
    }
}

impl Configuration {
    fn tables(&self, colour: bool) -> String {
        let ClientRow { node, fleet, state, class, .. } = &self.proxy;
        let class = class.as_ref().map(|class| format!(", of the class {class}"));
        let title = format!(
            "{node} of {fleet} is {state}, at {}{}; the newest head is {}",
            self.distributor,
            class.unwrap_or_default(),
            self.content.head
        );
        let mut text = output::one_line(&title).into_owned() + "\n";
        if let Some(error) = self.proxy.last_error.as_ref().filter(|_| state != "synced") {
            text += &format!("last error: {}: {}\n", error.r#type, output::one_line(&error.detail));
        }
        format!("{text}\n{}\n{}", self.types().render(colour), self.resources().render(colour))
    }

    fn types(&self) -> TextTable<5> {
        let mut table =
            TextTable::new(["TYPE", "ASKS FOR", "ACKNOWLEDGED", "OUTSTANDING", "REJECTED"]);
        for it in &self.proxy.types {
            let outstanding = Cell::from(it.outstanding);
            table.push([
                Cell::from(&it.r#type),
                match (it.wildcard, it.names) {
                    (true, 0) => "all".into(),
                    (true, names) => format!("all, and {names} by name").into(),
                    (false, names) => format!("{names} by name").into(),
                },
                cell(it.acknowledged.as_ref()),
                if it.outstanding > 0 { outstanding.doubtful() } else { outstanding },
                Cell::from(it.rejected).bad_if(it.rejected > 0),
            ]);
        }
        table
    }

    fn resources(&self) -> TextTable<5> {
        let mut table = TextTable::new(["TYPE", "NAME", "VERSION", "BYTES", "HAS IT"]);
        for it in &self.content.resources {
            table.push([
                Cell::from(&it.r#type),
                Cell::from(&it.name),
                Cell::from(&it.version),
                it.bytes.into(),
                has_it(it),
            ]);
        }
        table
    }
}

/// What the proxy has of a resource.
fn has_it(row: &ResourceRow) -> Cell {
    match (&row.held, row.rejected.unwrap_or(false)) {
        (Some(held), false) if *held == row.version => Cell::from("yes").good(),
        (Some(held), false) => Cell::from(format!("has {held}")).doubtful(),
        (Some(held), true) => Cell::from(format!("rejected, has {held}")).bad(),
        (None, true) => Cell::from("rejected, has none").bad(),
        (None, false) => "no".into(),
    }
}

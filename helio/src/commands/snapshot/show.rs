use super::{find, shown_time};
use crate::commands::translate::readable;
use crate::output::{self, Format, TextTable};
use anyhow::bail;
use heliograph_snapshot::{FleetName, Resource, ResourceType, Section};
use heliograph_store::{Loaded, OperatorStore, Record};
use serde::Serialize;
use serde_json::Value;
use std::process::ExitCode;
use std::sync::Arc;

/// Print the resources of a snapshot
///
/// The table has one line for each resource. With -o, the content is printed, without secrets and other confidential resources.
/// Resources are sorted by type and name, so that `diff` can compare two outputs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet, NAMESPACE/NAME of its Gateway
    fleet: FleetName,

    /// Head, as `helio snapshot list` prints it, or its last number [default: the newest]
    head: Option<String>,

    #[arg(long, value_name = "TYPE", help = crate::commands::all_types())]
    r#type: Option<String>,

    /// Show only the resource with this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Output format [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct Shown {
    fleet: FleetName,
    head: String,
    time: String,
    cause: String,
    resources: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    r#type: &'static str,
    name: Arc<str>,
    version: String,
    bytes: usize,
    /// Nothing of what no proxy is sent, nor of what is confidential.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Value>,
}

pub(super) async fn run(store: &OperatorStore, args: &Args) -> anyhow::Result<ExitCode> {
    let sections = args.sections()?;
    let record = args.record(store).await?;
    let Loaded { snapshot, unopened } = store.reader.load(record.clone(), None).await?;
    if !unopened.is_empty() {
        output::message(&format!(
            "{} secrets are missing, because this key ring does not have the key that sealed them",
            unopened.len()
        ));
    }
    let is_wanted = |name: &str| args.name.as_ref().is_none_or(|wanted| wanted == name);
    let mut resources = Vec::new();
    for section in sections {
        let found = snapshot.section(section).iter().filter(|it| is_wanted(&it.name));
        let mut rows = found
            .map(|resource| Row::of(section, resource, args.output.is_some()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        resources.extend(rows);
    }
    let shown = Shown {
        fleet: args.fleet.clone(),
        head: record.head.to_string(),
        time: shown_time(record.time),
        cause: record.cause.to_string(),
        resources,
    };
    output::result(&match args.output {
        Some(format) => format.render(&shown)?,
        None => shown.table().render(output::colour()),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn sections(&self) -> anyhow::Result<Vec<Section>> {
        let Some(wanted) = &self.r#type else {
            return Ok(ResourceType::ALL.map(Section::from).to_vec());
        };
        match Section::all().find(|section| section.as_str() == wanted) {
            Some(section) => Ok(vec![section]),
            None => {
                let all: Vec<_> = Section::all().map(Section::as_str).collect();
                bail!("{wanted:?} is not a type: use {}", all.join(", "))
            }
        }
    }

    async fn record(&self, store: &OperatorStore) -> anyhow::Result<Arc<Record>> {
        if let Some(head) = &self.head {
            return find(&super::history(store, &self.fleet).await?, head);
        }
        let newest = store.reader.newest(vec![self.fleet.clone()]).await?;
        match newest.into_values().next() {
            Some(record) if record.is_live() => Ok(record),
            Some(_) => bail!("{} is retired: its Gateway is gone", self.fleet),
            None => bail!(
                "{} is not in the store: `helio snapshot list` shows which fleets are",
                self.fleet
            ),
        }
    }
}

impl Row {
    fn of(section: Section, resource: &Resource, with_content: bool) -> anyhow::Result<Self> {
        let content = match section {
            Section::Served(kind) if with_content => readable(kind, resource)?,
            Section::Served(_) | Section::Internal(_) => None,
        };
        Ok(Self {
            r#type: section.as_str(),
            name: resource.name.clone(),
            version: resource.version.to_string(),
            bytes: resource.body.len(),
            resource: content,
        })
    }
}

impl Shown {
    fn table(&self) -> TextTable<4> {
        let mut table = TextTable::new(["TYPE", "NAME", "VERSION", "BYTES"]);
        for Row { r#type, name, version, bytes, resource: _ } in &self.resources {
            table.push([r#type.into(), name.into(), version.into(), bytes.into()]);
        }
        table
    }
}

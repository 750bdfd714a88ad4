use crate::output::{self, Format};
use anyhow::anyhow;
use heliograph_envoy::{Any, json};
use heliograph_gateway::World;
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use heliograph_translator::provider::file::{self, Remark, RemarkKind};
use heliograph_translator::{LimitArgs, in_words};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the xDS resources that manifests are translated to, without running anything
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Manifests, and directories of manifests
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,

    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
}

/// Fleet by fleet and type by type, sorted by name, so that two outputs can be compared.
#[derive(Debug, Default, Serialize)]
struct Translation {
    fleets: BTreeMap<FleetName, BTreeMap<&'static str, Vec<Value>>>,
}

/// What manifests come to, without a cluster.
pub(super) struct Offline {
    pub(super) world: World,
    /// How many objects there are.
    pub(super) objects: usize,
    pub(super) remarks: Vec<Remark>,
}

impl Offline {
    pub(super) fn read(paths: &[PathBuf], limits: &LimitArgs) -> anyhow::Result<Self> {
        let found = file::read_once(paths)?;
        let (mut world, objects) = (World::with_limits(limits.limits()), found.events.len());
        for event in found.events {
            world.apply(event);
        }
        world.settle();
        Ok(Self { world, objects, remarks: found.remarks })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Offline { world, remarks, .. } = Offline::read(&args.files, &args.limits)?;
    output::result(&args.output.render(&Translation::of(&world)?)?)?;

    for problem in world.problems() {
        output::message(&format!("problem: {}", in_words(&problem)));
    }
    let mut code = ExitCode::SUCCESS;
    for remark in &remarks {
        match remark.kind {
            RemarkKind::Fault => {
                output::message(&format!("error: {remark}"));
                code = ExitCode::FAILURE;
            }
            RemarkKind::Duplicate | RemarkKind::Ignored => {
                output::message(&format!("ignored: {remark}"))
            }
        }
    }
    Ok(code)
}

impl Translation {
    fn of(world: &World) -> anyhow::Result<Self> {
        let mut translation = Self::default();
        for served in world.fleets() {
            let fleet = translation.fleets.entry(served.name.clone()).or_default();
            let mut resources: Vec<_> = world.resources(&served.name).collect();
            resources
                .sort_by(|(kind, one), (other, two)| (kind, &one.name).cmp(&(other, &two.name)));
            for (kind, resource) in resources {
                let name = &*resource.name;
                let hidden = || json!({ "name": name, "hidden": "it is confidential" });
                let shown = readable(kind, resource)?.unwrap_or_else(hidden);
                fleet.entry(kind.as_str()).or_default().push(shown);
            }
        }
        Ok(translation)
    }
}

/// Without what must not be shown, such as private keys. `None`: all of it is confidential.
pub(crate) fn readable(kind: ResourceType, resource: &Resource) -> anyhow::Result<Option<Value>> {
    if !kind.may_be_shown(resource) {
        return Ok(None);
    }
    let any = Any { type_url: kind.type_url().to_owned(), value: resource.body.clone() };
    json::to_json(&any).map(Some).map_err(|error| anyhow!("{}: {error}", resource.name))
}

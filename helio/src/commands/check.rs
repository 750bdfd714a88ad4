use super::translate::Offline;
use crate::output::{self, Cell, Format, TextTable, cell, with_progress};
use heliograph_gateway::status::{Ignored, Problem, Status};
use heliograph_translator::LimitArgs;
use heliograph_translator::provider::file::{Remark, RemarkKind};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// List the problems of manifests, object by object, without a cluster
///
/// The manifests must include all objects that they refer to: Gateways and their classes, Services, Secrets, ReferenceGrants. The
/// exit code is 1 if there is a problem.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Manifests, and directories of manifests
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,

    /// Output format [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    /// How many objects were looked at.
    objects: usize,
    problems: Vec<Finding>,
    /// Documents of kinds that Heliograph does not translate.
    ignored: Vec<Remark>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Finding {
    /// `HTTPRoute shop/cart`, or a file and a line.
    object: String,
    /// The listener or parent within it, if one is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
    reason: String,
    message: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (paths, limits) = (args.files.clone(), args.limits.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings = runtime.block_on(async {
        let looking = tokio::task::spawn_blocking(move || Findings::of(&paths, &limits));
        with_progress(looking, || "checking".to_owned()).await?
    })?;
    match args.output {
        Some(format) => output::result(&format.render(&findings)?)?,
        None if !findings.problems.is_empty() => {
            output::result(&findings.table().render(output::colour()))?;
        }
        None => {}
    }
    output::message(&findings.in_words());
    let is_fine = findings.problems.is_empty();
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Findings {
    fn of(paths: &[PathBuf], limits: &LimitArgs) -> anyhow::Result<Self> {
        let Offline { world, objects, remarks } = Offline::read(paths, limits)?;
        let statuses = world.statuses().filter(|(_, status)| !is_of_others(status));
        let problems = statuses.flat_map(|(key, status)| status.problems(key));
        let mut problems: Vec<Finding> = problems.map(Finding::of_object).collect();
        let (ignored, faults): (Vec<_>, Vec<_>) =
            remarks.into_iter().partition(|remark| remark.kind == RemarkKind::Ignored);
        problems.extend(faults.into_iter().map(Finding::of_file));
        problems.sort();
        Ok(Self { objects, problems, ignored })
    }

    fn table(&self) -> TextTable<4> {
        let mut table = TextTable::new(["OBJECT", "PART", "REASON", "WHAT IS WRONG"]);
        for Finding { object, part, reason, message } in &self.problems {
            let reason = Cell::from(reason).bad();
            table.push([object.into(), cell(part.as_ref()), reason, message.into()]);
        }
        table
    }

    /// `12 objects, 1 problem; 2 documents are of kinds that are not translated`.
    fn in_words(&self) -> String {
        let count = |number: usize, noun: &str| {
            format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
        };
        let mut words = count(self.objects, "object") + ", ";
        words += &match self.problems.len() {
            0 => "nothing is wrong".to_owned(),
            problems => count(problems, "problem"),
        };
        match self.ignored.len() {
            0 => words,
            1 => words + "; 1 document is of a kind that is not translated",
            more => format!("{words}; {more} documents are of kinds that are not translated"),
        }
    }
}

/// Objects of other controllers are not reported.
fn is_of_others(status: &Status) -> bool {
    matches!(status, Status::Ignored(Ignored { elsewhere: true, .. }))
}

impl Finding {
    fn of_object(problem: Problem) -> Self {
        let Problem { object, part, condition: _, reason, message } = problem;
        Self { object: object.to_string(), part, reason: reason.to_owned(), message }
    }

    fn of_file(remark: Remark) -> Self {
        let Remark { file, line, kind, text } = remark;
        let reason = match kind {
            RemarkKind::Duplicate => "Duplicate",
            RemarkKind::Fault | RemarkKind::Ignored => "Unreadable",
        };
        let line = line.map(|line| format!(" line {line}")).unwrap_or_default();
        Self { object: file + &line, part: None, reason: reason.to_owned(), message: text }
    }
}

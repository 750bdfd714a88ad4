//! A report for terminals.

use super::Report;
use super::rows::{about_rows, client_rows, latency_rows, per_stream, phase_rows, server_rows};
use crate::units::count;
use crate::{Examples, Tally};

/// How many examples of errors and violations are shown.
const EXAMPLES: usize = 10;

pub(super) fn table(report: &Report) -> String {
    let parts = [
        about(report),
        phases(report),
        latencies(report),
        servers(report),
        clients(report),
        findings("violations", &report.figures.violations, &report.violations),
        findings("errors", &report.figures.errors, &report.errors),
    ];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("\n")
}

/// In columns; the first are text, the others are numbers and stand to the right.
///
/// Not `table` of `heliograph-shared`, which lines up text alone: reports are mostly numbers, and this crate depends on no other.
pub(crate) fn columns(rows: &[Vec<String>], text_columns: usize) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let (cell, width) = (plain(cell), width(column).unwrap_or(0));
            if column < text_columns {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// One line that moves no cursor: a server chooses the text of its errors, and a terminal obeys what it is sent.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn about(report: &Report) -> String {
    let title = match report.scenario.about.trim() {
        "" => report.scenario.name.clone(),
        about => format!("{}: {about}", report.scenario.name),
    };
    let rows: Vec<_> = about_rows(report).into_iter().map(Vec::from).collect();
    format!("{}\n{}", plain(&title), columns(&rows, 2))
}

fn phases(report: &Report) -> String {
    columns(&phase_rows(report), 1)
}

fn latencies(report: &Report) -> String {
    match latency_rows(report) {
        rows if rows.len() > 1 => columns(&rows, 2),
        _ => "no latencies were measured\n".to_owned(),
    }
}

fn servers(report: &Report) -> String {
    let mut text = match server_rows(report) {
        rows if rows.len() > 1 => columns(&rows, 1),
        _ => String::new(),
    };
    if let Some(cost) = per_stream(report) {
        text.push_str(&format!("{cost}\n"));
    }
    text
}

fn clients(report: &Report) -> String {
    match client_rows(report) {
        rows if rows.len() > 1 => columns(&rows, 1),
        _ => String::new(),
    }
}

fn findings(name: &str, tally: &Tally, examples: &Examples) -> String {
    if tally.total() == 0 && examples.is_empty() {
        return format!("{name}: none\n");
    }
    let kinds: Vec<_> =
        tally.iter().map(|(kind, number)| format!("{kind} {}", count(number))).collect();
    let mut text = format!("{name}: {} ({})\n", count(tally.total()), kinds.join(", "));
    for example in examples.iter().take(EXAMPLES) {
        text.push_str(&format!("  {}\n", plain(example)));
    }
    let more = examples.iter().len().saturating_sub(EXAMPLES);
    if more > 0 {
        text.push_str(&format!("  and {more} more in the report\n"));
    }
    text
}

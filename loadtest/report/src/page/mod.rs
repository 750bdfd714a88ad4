//! A report for browsers: one page that fetches nothing and runs nothing, so that it opens offline and wherever it was
//! mailed to. Every text in it came from elsewhere (a server's errors, a scenario's name) and is escaped.

mod axis;
mod chart;
mod charts;

use crate::report::{about_rows, client_rows, latency_rows, per_stream, phase_rows, server_rows};
use crate::units::count;
use crate::{Examples, Report, Tally};

const STYLE: &str = include_str!("style.css");

pub(crate) fn page(report: &Report) -> String {
    let name = escape(&report.scenario.name);
    let parts = [
        format!("<h1>{name}</h1>\n<p class=\"about\">{}</p>\n", escape(&report.scenario.about)),
        facts(report),
        findings("Violations", &report.figures.violations, &report.violations),
        findings("Errors", &report.figures.errors, &report.errors),
        section("Latencies", &latency_rows(report), 2),
        charts(report),
        section("Phases", &phase_rows(report), 1),
        section("Servers", &server_rows(report), 1),
        per_stream(report).map_or_else(String::new, |cost| format!("<p>{}</p>\n", escape(&cost))),
        section("Clients", &client_rows(report), 1),
        scenario(report),
    ];
    // The policy is a second lock: were something not escaped, the browser would still not run it.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
        parts.concat()
    )
}

/// As text between tags or in a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn facts(report: &Report) -> String {
    let row = |[name, value]: [String; 2]| {
        format!(
            "<tr><th class=\"text\">{}</th><td class=\"text\">{}</td></tr>\n",
            escape(&name),
            escape(&value)
        )
    };
    let rows: String = about_rows(report).into_iter().map(row).collect();
    format!("<table class=\"facts\">\n{rows}</table>\n")
}

/// The first row is the head, and without any other there is nothing to show.
fn section(title: &str, rows: &[Vec<String>], text_columns: usize) -> String {
    let [head, body @ ..] = rows else { return String::new() };
    if body.is_empty() {
        return String::new();
    }
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().enumerate().map(|(column, cell)| {
            let class = if column < text_columns { " class=\"text\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escape(cell))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let body: String = body.iter().map(|cells| row("td", cells)).collect();
    format!(
        "<h2>{title}</h2>\n<div class=\"wide\"><table>\n{}{body}</table></div>\n",
        row("th", head)
    )
}

fn charts(report: &Report) -> String {
    let drawn: String = charts::of(report).iter().map(chart::Chart::draw).collect();
    format!("<h2>Charts</h2>\n<div class=\"charts\">\n{drawn}</div>\n")
}

fn findings(title: &str, tally: &Tally, examples: &Examples) -> String {
    if tally.total() == 0 && examples.is_empty() {
        return format!("<p>{title}: none</p>\n");
    }
    let kinds: Vec<_> =
        tally.iter().map(|(kind, number)| format!("{kind} {}", count(number))).collect();
    let examples: String =
        examples.iter().map(|text| format!("<li>{}</li>\n", escape(text))).collect();
    format!(
        "<h2 class=\"bad\">{title}: {}</h2>\n<p>{}</p>\n<ul>\n{examples}</ul>\n",
        count(tally.total()),
        escape(&kinds.join(", "))
    )
}

fn scenario(report: &Report) -> String {
    match report.scenario.text.trim_end() {
        "" => String::new(),
        text => format!(
            "<details>\n<summary>The scenario</summary>\n<pre>{}</pre>\n</details>\n",
            escape(text)
        ),
    }
}

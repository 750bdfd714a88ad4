use super::file::{File, REDACTED};
use super::keys::{Key, Shape};
use clap::ArgMatches;
use clap::parser::ValueSource;
use std::fmt::Write;

/// Every setting with its value and where that came from, as a file that gives the same settings again.
pub(super) fn effective(keys: &[Key], matches: &ArgMatches, file: &File) -> String {
    let mut text = String::new();
    for key in keys {
        let matches = at_depth(matches, key.depth);
        let (value, source) = (value(key, matches), source(key, matches, file));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}: {value} # {source}", key.name);
    }
    text
}

fn at_depth(matches: &ArgMatches, depth: usize) -> &ArgMatches {
    match matches.subcommand() {
        Some((_, inner)) if depth > 0 => at_depth(inner, depth - 1),
        _ => matches,
    }
}

fn value(key: &Key, matches: &ArgMatches) -> String {
    let values = matches.get_raw(key.id.as_str()).into_iter().flatten();
    let mut values = values.map(|value| match key.secret {
        true => scalar(REDACTED),
        false => scalar(&value.to_string_lossy()),
    });
    match key.shape {
        Shape::One => values.next().unwrap_or_else(|| "null".to_owned()),
        Shape::List => format!("[{}]", values.collect::<Vec<_>>().join(", ")),
    }
}

fn source(key: &Key, matches: &ArgMatches, file: &File) -> &'static str {
    match matches.value_source(key.id.as_str()) {
        Some(ValueSource::CommandLine) => "flag",
        Some(ValueSource::EnvVariable) => "environment",
        _ if file.values(&key.name).is_some() => "file",
        _ => "default",
    }
}

/// Plain where it can be taken for nothing else, otherwise in quotes: JSON's are YAML's too.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | ':'))
        && !text.ends_with(':')
        && !text.eq_ignore_ascii_case("null");
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

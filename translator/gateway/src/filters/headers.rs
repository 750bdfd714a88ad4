use super::Refusal;
use crate::objects::gateway::HttpFilter;
use heliograph_model::{Filter, HeaderEdits, HeaderValue};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Envoy's bounds. The value may double where `%` is escaped.
const LONGEST: usize = 8 * 1024;
const MOST_EDITS: usize = 1000;

pub(super) fn accept_request(filter: &HttpFilter) -> Result<Filter, Refusal> {
    let modifier =
        filter.request_header_modifier.as_ref().ok_or("requestHeaderModifier is missing")?;
    accept(modifier).map(Filter::RequestHeaders)
}

pub(super) fn accept_response(filter: &HttpFilter) -> Result<Filter, Refusal> {
    let modifier =
        filter.response_header_modifier.as_ref().ok_or("responseHeaderModifier is missing")?;
    accept(modifier).map(Filter::ResponseHeaders)
}

/// Envoy refuses a whole route table for one header that it does not let through.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match (1..=LONGEST).contains(&name.len()) && name.bytes().all(token) {
        true => Ok(()),
        false => {
            let name: String = name.chars().take(100).collect();
            Err(format!("{name:?} is not the name of a header"))
        }
    }
}

/// The generated types for requests and responses differ in name alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Modifier {
    #[serde(default)]
    add: Vec<Entry>,
    #[serde(default)]
    set: Vec<Entry>,
    #[serde(default)]
    remove: Vec<String>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    value: String,
}

fn accept(modifier: &impl serde::Serialize) -> Result<HeaderEdits, Refusal> {
    let modifier: Modifier = serde_json::to_value(modifier)
        .and_then(serde_json::from_value)
        .map_err(|error| format!("header filter: {error}"))?;
    let values = |entries: Vec<Entry>| -> Result<Vec<HeaderValue>, Refusal> {
        // Gateway API: of several entries with equivalent names, the first counts.
        let mut seen = BTreeSet::new();
        entries
            .into_iter()
            .filter(|entry| seen.insert(entry.name.to_ascii_lowercase()))
            .map(|entry| {
                let name = editable(&entry.name)?;
                let visible = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                match entry.value.bytes().all(visible) {
                    true if entry.value.len() > LONGEST => {
                        Err(format!("the value of header {name} is too long"))
                    }
                    true => Ok(HeaderValue { name, value: entry.value }),
                    false => Err(format!("the value of header {name} has a control character")),
                }
            })
            .collect()
    };
    if modifier.set.len() + modifier.add.len() + modifier.remove.len() > MOST_EDITS {
        return Err(format!("more than {MOST_EDITS} headers are edited"));
    }
    Ok(HeaderEdits {
        set: values(modifier.set)?,
        add: values(modifier.add)?,
        remove: modifier.remove.iter().map(|name| editable(name)).collect::<Result<_, _>>()?,
    })
}

fn editable(name: &str) -> Result<String, Refusal> {
    let lower = name.to_ascii_lowercase();
    check_name(&lower)?;
    match lower == "host" {
        // Envoy's own rule; a rewrite changes the host.
        true => Err("the host header cannot be edited: use URLRewrite with a hostname".to_owned()),
        false => Ok(lower),
    }
}

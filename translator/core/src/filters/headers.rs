use super::Refusal;
use crate::objects::gateway::HttpFilter;
use heliograph_envoy::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use heliograph_envoy::envoy::config::core::v3::{self as core, HeaderValueOption};
use heliograph_envoy::envoy::config::route::v3::{Route, weighted_cluster::ClusterWeight};
use heliograph_model::{Filter, HeaderEdits, HeaderValue};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Envoy's bounds. The value may double where `%` is escaped.
const LONGEST: usize = 8 * 1024;
const MOST_EDITS: usize = 1000;

/// What Envoy lets edit headers.
pub(super) trait EditsHeaders {
    fn request(&mut self) -> Lists<'_>;
    fn response(&mut self) -> Lists<'_>;
}

pub(super) struct Lists<'a> {
    add: &'a mut Vec<HeaderValueOption>,
    remove: &'a mut Vec<String>,
}

macro_rules! edits_headers {
    ($($type:ty),*) => {$(
        impl EditsHeaders for $type {
            fn request(&mut self) -> Lists<'_> {
                Lists { add: &mut self.request_headers_to_add, remove: &mut self.request_headers_to_remove }
            }

            fn response(&mut self) -> Lists<'_> {
                Lists { add: &mut self.response_headers_to_add, remove: &mut self.response_headers_to_remove }
            }
        }
    )*};
}

edits_headers!(Route, ClusterWeight);

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

pub(super) fn build_request(edits: &HeaderEdits, into: &mut impl EditsHeaders) {
    build(edits, into.request());
}

pub(super) fn build_response(edits: &HeaderEdits, into: &mut impl EditsHeaders) {
    build(edits, into.response());
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

fn build(edits: &HeaderEdits, lists: Lists<'_>) {
    let option = |header: &HeaderValue, action: HeaderAppendAction| HeaderValueOption {
        header: Some(core::HeaderValue {
            key: header.name.clone(),
            // Envoy reads `%` as the begin of a command.
            value: header.value.replace('%', "%%"),
            ..Default::default()
        }),
        append_action: action.into(),
        // The header was asked for, also where its value is empty.
        keep_empty_value: true,
        ..Default::default()
    };
    let set =
        edits.set.iter().map(|header| option(header, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add =
        edits.add.iter().map(|header| option(header, HeaderAppendAction::AppendIfExistsOrAdd));
    lists.add.extend(set.chain(add));
    lists.remove.extend(edits.remove.iter().cloned());
}

use heliograph_envoy::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use heliograph_envoy::envoy::config::core::v3::{self as core, HeaderValueOption};
use heliograph_envoy::envoy::config::route::v3::{Route, weighted_cluster::ClusterWeight};
use heliograph_model::{HeaderEdits, HeaderValue};

/// A message of Envoy that can edit headers.
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

pub(super) fn build_request(edits: &HeaderEdits, into: &mut impl EditsHeaders) {
    build(edits, into.request());
}

pub(super) fn build_response(edits: &HeaderEdits, into: &mut impl EditsHeaders) {
    build(edits, into.response());
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

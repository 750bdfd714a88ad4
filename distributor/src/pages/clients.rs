use super::{HeadText, PageError, json, limit};
use crate::clients::{Client, Clients, StreamStatus};
use crate::feed::Fleets;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures::{Stream, stream};
use heliograph_distributor_protocol::{ClientState, Progress, Protocol};
use heliograph_shared::admin::QueryParams;
use heliograph_shared::table::columns;
use heliograph_snapshot::{FleetName, Head, ResourceType};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::task::yield_now;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    fleet: Option<String>,
    node: Option<String>,
    state: Option<State>,
    /// The number of the stream before the first.
    after: Option<u64>,
    limit: Option<usize>,
    format: Option<Format>,
}

/// The worst that can be said of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Its fleet is not published.
    Waiting,
    /// It stays at older content because it rejected what it is to have.
    Rejecting,
    /// It does not answer what it was sent.
    Silent,
    /// It is on its way to the newest snapshot.
    Behind,
    /// It has acknowledged all that it asks for of the newest snapshot.
    Synced,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Json,
    Text,
    /// An object on each line, for as many as there are.
    Lines,
}

/// A search among all clients, which goes on while its result is read.
struct Search {
    fleets: Fleets,
    clients: Clients,
    fleet: Option<FleetName>,
    node: Option<String>,
    state: Option<State>,
    /// The number of the last client that was read.
    after: u64,
}

/// A client that matches, as it was when it was read.
struct Found {
    client: Arc<Client>,
    status: StreamStatus,
    state: State,
}

#[derive(Serialize)]
struct Page {
    clients: Vec<Row>,
    /// What to ask for to see more: `?after=` this. There may be none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    stream: u64,
    node: String,
    fleet: FleetName,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<HeadText>,
    /// Left out of lines, where it would be most of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<OfType>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<LastError>,
    identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    address: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy: Option<String>,
    protocol: &'static str,
    since: String,
}

#[derive(Serialize)]
struct OfType {
    r#type: ResourceType,
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<HeadText>,
    wildcard: bool,
    names: usize,
    outstanding: usize,
    rejected: usize,
    silent: bool,
}

#[derive(Serialize)]
struct LastError {
    r#type: ResourceType,
    detail: String,
    resources: Vec<String>,
}

const USUAL: usize = 100;
const MOST: usize = 1000;
/// How many are taken from the list at once. Streams that come and go wait for its lock.
const BATCH: usize = 256;

pub(super) fn page(fleets: Fleets, clients: Clients) -> MethodRouter {
    get(async move |QueryParams(query): QueryParams<Query>| respond(&fleets, &clients, query).await)
}

async fn respond(fleets: &Fleets, clients: &Clients, query: Query) -> Result<Response, PageError> {
    let fleet = query.fleet.map(|name| name.parse::<FleetName>()).transpose();
    let search = Search {
        fleets: fleets.clone(),
        clients: clients.clone(),
        fleet: fleet.map_err(PageError::bad)?,
        node: query.node,
        state: query.state,
        after: query.after.unwrap_or_default(),
    };
    match query.format {
        Some(Format::Lines) => {
            let body = Body::from_stream(lines(search, query.limit));
            Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
        }
        Some(Format::Json) => json(&Page::of(search, limit(query.limit, USUAL, MOST)?).await),
        Some(Format::Text) | None => {
            Ok(Page::of(search, limit(query.limit, USUAL, MOST)?).await.table().into_response())
        }
    }
}

/// A batch at a time, and the next once the one before is taken: however many clients there are, a reader costs the
/// memory of a batch, and no lock is held while one is written.
fn lines(
    search: Search,
    limit: Option<usize>,
) -> impl Stream<Item = Result<Vec<u8>, serde_json::Error>> {
    let left = limit.unwrap_or(usize::MAX);
    stream::try_unfold((search, left), async |(mut search, left)| {
        if left == 0 {
            return Ok(None);
        }
        let Some(mut batch) = search.next().await else { return Ok(None) };
        batch.truncate(left);
        let mut text = Vec::new();
        for found in &batch {
            serde_json::to_writer(&mut text, &Row::of(found))?;
            text.push(b'\n');
        }
        let left = left - batch.len();
        Ok(Some((text, (search, left))))
    })
}

impl Search {
    /// The matches among the next few clients, perhaps none; `None` once all have been read.
    async fn next(&mut self) -> Option<Vec<Found>> {
        // A look at all of many thousands must not keep streams waiting.
        yield_now().await;
        let batch = self.clients.some_after(self.after, BATCH);
        self.after = batch.last()?.number;
        Some(batch.into_iter().filter_map(|client| self.find(client)).collect())
    }

    fn find(&self, client: Arc<Client>) -> Option<Found> {
        let is_of = self.fleet.as_ref().is_none_or(|fleet| client.fleet == *fleet);
        if !is_of || self.node.as_ref().is_some_and(|node| client.info.node != *node) {
            return None;
        }
        let newest = self.fleets.get(&client.fleet).and_then(|fleet| fleet.head());
        let status = client.status();
        let state = State::of(status.client_state.as_ref(), newest);
        let is_wanted = self.state.is_none_or(|wanted| state == wanted);
        is_wanted.then_some(Found { client, status, state })
    }
}

impl State {
    fn of(client_state: Option<&ClientState>, newest: Option<Head>) -> Self {
        let Some(client_state) = client_state else { return Self::Waiting };
        let (mut rejecting, mut silent, mut busy) = (false, false, false);
        for progress in client_state.progress() {
            rejecting |= progress.rejected > 0;
            silent |= progress.silent;
            busy |= progress.outstanding > 0;
        }
        // A fleet that is retired has no newest: its clients keep what they have.
        let is_there = newest.is_none_or(|newest| client_state.acknowledged() >= Some(newest));
        match (rejecting, silent) {
            (true, _) => Self::Rejecting,
            (_, true) => Self::Silent,
            _ if is_there && !busy => Self::Synced,
            _ => Self::Behind,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Rejecting => "rejecting",
            Self::Silent => "silent",
            Self::Behind => "behind",
            Self::Synced => "synced",
        }
    }
}

impl Page {
    async fn of(mut search: Search, limit: usize) -> Self {
        let mut page = Self { clients: Vec::new(), next: None };
        while let Some(batch) = search.next().await {
            for found in batch {
                // One that does not fit shows that there is more.
                if page.clients.len() == limit {
                    page.next = page.clients.last().map(|row| row.stream);
                    return page;
                }
                page.clients.push(Row::of(&found).with_types(&found.status));
            }
        }
        page
    }

    fn table(&self) -> String {
        let head = [
            "STREAM",
            "NODE",
            "FLEET",
            "STATE",
            "ACKNOWLEDGED",
            "OUTSTANDING",
            "ENVOY",
            "ADDRESS",
            "IDENTITY",
            "CLASS",
            "SINCE",
            "LAST ERROR",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.clients.iter().map(Row::cells));
        let mut text = columns(&rows);
        if let Some(next) = self.next {
            let _ = writeln!(text, "more: ?after={next}");
        }
        text
    }
}

impl Row {
    fn of(found: &Found) -> Self {
        let Found { client, status, state } = found;
        Self {
            stream: client.number,
            node: client.info.node.clone(),
            fleet: client.fleet.clone(),
            state: *state,
            acknowledged: status
                .client_state
                .as_ref()
                .and_then(ClientState::acknowledged)
                .map(HeadText),
            types: None,
            last_error: status.rejection.as_ref().map(|rejection| LastError {
                r#type: rejection.kind,
                detail: rejection.detail.clone(),
                resources: rejection.resources.iter().map(|(name, _)| name.to_string()).collect(),
            }),
            identity: client.identity(),
            class: status.class_handle.class(),
            address: client.address,
            envoy: client.info.version().map(ToString::to_string),
            protocol: match client.protocol {
                Protocol::Delta => "delta",
                Protocol::StateOfTheWorld => "sotw",
            },
            since: shown(client.since),
        }
    }

    fn with_types(self, status: &StreamStatus) -> Self {
        let types = status.client_state.iter().flat_map(ClientState::progress).map(OfType::of);
        Self { types: Some(types.collect()), ..self }
    }

    fn cells(&self) -> [String; 12] {
        let outstanding = self.types.iter().flatten().filter(|it| it.outstanding > 0);
        let outstanding: Vec<_> =
            outstanding.map(|it| format!("{} {}", it.outstanding, it.r#type)).collect();
        let error = self.last_error.as_ref();
        [
            self.stream.to_string(),
            one_line(&self.node),
            one_line(self.fleet.as_str()),
            self.state.as_str().to_owned(),
            self.acknowledged.map_or_else(nothing, |HeadText(head)| head.to_string()),
            if outstanding.is_empty() { nothing() } else { outstanding.join(", ") },
            self.envoy.clone().unwrap_or_else(nothing),
            self.address.to_string(),
            one_line(&self.identity),
            self.class.as_deref().map_or_else(nothing, one_line),
            self.since.clone(),
            error.map_or_else(nothing, |it| format!("{}: {}", it.r#type, one_line(&it.detail))),
        ]
    }
}

impl OfType {
    fn of(progress: Progress) -> Self {
        let Progress { kind, wildcard, names, acknowledged, outstanding, rejected, silent } =
            progress;
        let acknowledged = acknowledged.map(HeadText);
        Self { r#type: kind, acknowledged, wildcard, names, outstanding, rejected, silent }
    }
}

/// In UTC, to the second.
fn shown(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| "?".to_owned(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Escapes a client's text, which must neither look like another line nor control the terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line
}

fn nothing() -> String {
    "-".to_owned()
}

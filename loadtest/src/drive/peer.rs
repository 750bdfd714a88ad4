use super::DriveError;
use crate::http1::HttpConnection;
use crate::workload::{Update, Workload};
use bytes::Bytes;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
use heliograph_envoy::{Any, Message};
use heliograph_snapshot::{ResourceType, Snapshot, Tree};
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use std::time::Duration;

/// Tells the go-control-plane program what to serve, through its control port.
#[derive(Debug)]
pub struct PeerDriver {
    /// HOST:PORT.
    address: String,
    /// Kept, so that a change does not wait for a connection.
    connection: Option<HttpConnection>,
}

/// The peer answers once its caches are set; with one snapshot for each of many clients that takes a while.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// How much of a refusal is shown.
const REFUSAL: usize = 300;

impl PeerDriver {
    /// `control` is HOST:PORT, as the peer prints it, or http://HOST:PORT.
    pub fn new(control: &str) -> Result<Self, DriveError> {
        let address = control.strip_prefix("http://").unwrap_or(control).trim_end_matches('/');
        let is_address = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !is_address || address.contains('/') {
            return Err(DriveError::Address(control.to_owned()));
        }
        Ok(Self { address: address.to_owned(), connection: None })
    }

    /// Whether it is up.
    pub async fn ready(&mut self) -> Result<(), DriveError> {
        self.ask(Method::GET, "/ready", Bytes::new()).await
    }

    /// Has it collect its garbage and give memory back to the system, so that only the memory that it needs is measured.
    pub async fn collect(&mut self) -> Result<(), DriveError> {
        self.ask(Method::POST, "/collect", Bytes::new()).await
    }

    pub(super) async fn set_up(&mut self, workload: &mut Workload) -> Result<(), DriveError> {
        let [snapshot] = workload.snapshots() else {
            return Err(DriveError::Fleets(workload.fleets().len()));
        };
        self.ask(Method::POST, "/resources", step(None, snapshot)).await
    }

    pub(super) async fn change(
        &mut self,
        workload: &mut Workload,
        update: Update,
    ) -> Result<(), DriveError> {
        let Some(before) = workload.snapshots().first().cloned() else { return Ok(()) };
        let Some(after) = workload.change(update).first() else { return Ok(()) };
        let step = step(Some(&before), after);
        self.ask(Method::POST, "/resources", step).await
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &'static str,
        body: Bytes,
    ) -> Result<(), DriveError> {
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(method, path, body));
        let (status, text) = match answer.await {
            Ok(answer) => answer?,
            Err(_) => {
                return Err(self.silent(format!("nothing in {} s", REQUEST_TIMEOUT.as_secs())));
            }
        };
        if status.is_success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&text);
        let text: Vec<_> = text.split_whitespace().collect();
        let text = text.join(" ").chars().take(REFUSAL).collect();
        Err(DriveError::Refused { path, status: status.as_u16(), text })
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &'static str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), DriveError> {
        // The connection is put back when all of the answer is here, so that one that failed half way is not used again.
        let mut connection = match self.connection.take() {
            Some(connection) if connection.is_ready() => connection,
            _ => {
                let opened = HttpConnection::open(&self.address).await;
                opened.map_err(|cause| self.silent(cause))?
            }
        };
        let request = Request::builder().method(method).uri(path).header(HOST, &self.address);
        let request = request.body(Full::new(body)).map_err(|cause| self.silent(cause))?;
        let answer = connection.exchange(request).await;
        let answer = answer.map_err(|cause| self.silent(cause))?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn silent(&self, cause: impl ToString) -> DriveError {
        DriveError::Peer { address: self.address.clone(), cause: cause.to_string() }
    }
}

/// The messages that lead from one snapshot to the other: one for each type that changes. At first every type is sent,
/// also one without resources: in state of the world a peer does not answer for a type without a version.
fn step(before: Option<&Snapshot>, after: &Snapshot) -> Bytes {
    let nothing = Tree::new();
    let mut body = Vec::new();
    for kind in ResourceType::ALL {
        let base = before.map_or(&nothing, |before| before.tree(kind));
        let differences = after.tree(kind).differences(base);
        if differences.is_empty() && before.is_some() {
            continue;
        }
        let mut message = DeltaDiscoveryResponse {
            system_version_info: after.head.sequence.to_string(),
            type_url: kind.type_url().to_owned(),
            ..Default::default()
        };
        for difference in differences {
            match (difference.after, difference.before) {
                (Some(resource), _) => message.resources.push(Resource {
                    name: resource.name.to_string(),
                    version: resource.version.to_string(),
                    resource: Some(Any {
                        type_url: kind.type_url().to_owned(),
                        value: resource.body.clone(),
                    }),
                    ..Default::default()
                }),
                (None, Some(gone)) => message.removed_resources.push(gone.name.to_string()),
                (None, None) => {}
            }
        }
        // Into a buffer that grows: there is always room.
        let _ = message.encode_length_delimited(&mut body);
    }
    body.into()
}

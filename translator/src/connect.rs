//! Connects to a Kubernetes API.

use crate::kubeconfig::{Access, KubeconfigError};
use axum::http::{Request, Response, StatusCode};
use heliograph_gateway::objects::Kind;
use heliograph_shared::failure_log::FailureLog;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After so long without a byte from the API a connection is given up. A watch lasts less, and where nothing changes the API
/// says once a minute that it is still there.
pub(crate) const SILENCE: Duration = Duration::from_secs(100);

/// How often a client is made anew from a kubeconfig that says the same: the files that it names may say something else.
const RENEW_EVERY: Duration = Duration::from_secs(30);
const RENEW_SOON: Duration = Duration::from_secs(1);

/// The flags of a program that asks a Kubernetes API.
#[derive(Clone, Debug, clap::Args)]
pub struct KubernetesArgs {
    /// Watch the objects of the Kubernetes cluster that this pod runs in, or that --kubeconfig names
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBERNETES")]
    pub kubernetes: bool,

    /// Kubeconfig file; read again when the API server rejects its credentials
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBE_CONTEXT", value_name = "NAME")]
    pub kube_context: Option<String>,

    /// Label selector of namespaces, such as team=web; objects of other namespaces are ignored [default: all namespaces]
    #[arg(
        long,
        help_heading = "Kubernetes",
        env = "HELIO_NAMESPACE_SELECTOR",
        value_name = "SELECTOR"
    )]
    pub namespace_selector: Option<String>,

    /// Kind that is not watched, such as ViewPolicy; can be repeated
    #[arg(
        long,
        help_heading = "Kubernetes",
        env = "HELIO_IGNORE_KIND",
        value_name = "KIND",
        value_delimiter = ',',
        value_parser = served_kind
    )]
    pub ignore_kind: Vec<Kind>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("not running in a pod ({0}): set --kubeconfig")]
    Outside(KubeconfigError),
    #[error("cannot create a client for the Kubernetes API: {0}")]
    Kubeconfig(KubeconfigError),
}

impl KubernetesArgs {
    /// A client. The API need not be there yet.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        // Before it is used, so that what is written meanwhile is not missed.
        let text = self.kubeconfig.as_deref().map(text_of);
        let client = self.client().await?;
        Ok(match text {
            Some(text) => renewing(client, text, self.clone()),
            // The token of a pod is a file, which the client reads again by itself.
            None => client,
        })
    }

    async fn client(&self) -> Result<Client, ConnectError> {
        let access = match &self.kubeconfig {
            None => Access::of_pod().map_err(ConnectError::Outside)?,
            Some(path) => {
                let read = Access::read(Some(path), self.kube_context.as_deref()).await;
                read.map_err(ConnectError::Kubeconfig)?
            }
        };
        access.read_timeout(SILENCE).client().map_err(ConnectError::Kubeconfig)
    }
}

/// A client that is replaced when the API rejects it or cannot be reached, if the kubeconfig has changed by then: so an
/// expired kubeconfig can be renewed without a restart.
fn renewing(client: Client, text: Option<Vec<u8>>, args: KubernetesArgs) -> Client {
    let namespace = client.default_namespace().to_owned();
    let renewal = Renewal {
        client,
        text,
        renewed: Instant::now(),
        is_renewing: false,
        log: FailureLog::default(),
    };
    let (renewal, args) = (Arc::new(Mutex::new(renewal)), Arc::new(args));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (renewal, args) = (renewal.clone(), args.clone());
        async move {
            let client = renewal.lock().client.clone();
            let answer: Result<Response<Body>, kube::Error> = client.send(request).await;
            let refused = match &answer {
                Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
                Err(_) => true,
            };
            // The caller tries again after a while.
            if refused {
                let text = args.kubeconfig.as_deref().and_then(text_of);
                if renewal.lock().begin(text, answer.is_ok(), Instant::now()) {
                    let client = args.client().await;
                    renewal.lock().end(client, Instant::now());
                }
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// The client that is used, and what it was made from.
struct Renewal {
    client: Client,
    text: Option<Vec<u8>>,
    renewed: Instant,
    /// One at a time.
    is_renewing: bool,
    /// Of a file that cannot be used.
    log: FailureLog<String>,
}

impl Renewal {
    /// Whether to make another client now: the file has changed, or names files that may have changed. That is likely
    /// where the API server answers that it does not know the client.
    fn begin(&mut self, text: Option<Vec<u8>>, answers: bool, now: Instant) -> bool {
        let pause = if answers { RENEW_SOON } else { RENEW_EVERY };
        let is_due = self.text != text || now.duration_since(self.renewed) >= pause;
        if self.is_renewing || !is_due {
            return false;
        }
        (self.text, self.is_renewing) = (text, true);
        true
    }

    fn end(&mut self, client: Result<Client, ConnectError>, now: Instant) {
        (self.renewed, self.is_renewing) = (now, false);
        match client {
            Ok(client) => {
                self.client = client;
                self.log.worked();
            }
            Err(error) => {
                let text = error.to_string();
                if self.log.failed(&text) {
                    tracing::error!(
                        "the kubeconfig cannot be used; the previous one stays in use: {text}"
                    );
                }
            }
        }
    }
}

/// A small file, on a disk of this machine.
fn text_of(kubeconfig: &Path) -> Option<Vec<u8>> {
    std::fs::read(kubeconfig).ok()
}

fn served_kind(text: &str) -> Result<Kind, String> {
    let mut kinds = Kind::ALL.iter().copied().filter(|kind| kind.api_version().is_some());
    kinds.clone().find(|kind| kind.as_str() == text).ok_or_else(|| {
        let all: Vec<&str> = kinds.by_ref().map(Kind::as_str).collect();
        format!("it is not one of {}", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_is_made_anew_when_there_is_reason_to_and_once_at_a_time() {
        let client = || {
            let service = tower::service_fn(async |_: Request<Body>| {
                Ok::<_, kube::Error>(Response::new(Body::empty()))
            });
            Client::new(service, "default")
        };
        let (now, text) = (Instant::now(), Some(b"one".to_vec()));
        let mut renewal = Renewal {
            client: client(),
            text: text.clone(),
            renewed: now,
            is_renewing: false,
            log: FailureLog::default(),
        };
        assert!(!renewal.begin(text.clone(), false, now), "the API is away, and nothing is new");
        let other = Some(b"two".to_vec());
        assert!(renewal.begin(other.clone(), false, now));
        assert!(!renewal.begin(text, false, now), "one at a time");
        renewal.end(Ok(client()), now);
        assert!(!renewal.begin(other.clone(), true, now), "it has just been made");
        assert!(renewal.begin(other.clone(), true, now + RENEW_SOON), "we are not known");
        renewal.end(Ok(client()), now);
        assert!(renewal.begin(other, false, now + RENEW_EVERY), "files that it names may differ");
    }

    #[test]
    fn only_kinds_that_are_watched_can_be_ignored() {
        assert_eq!(served_kind("ViewPolicy"), Ok(Kind::ViewPolicy));
        let refused = served_kind("Proxy").unwrap_err();
        let offered: Vec<&str> = refused.split([' ', ',']).collect();
        assert!(offered.contains(&"HTTPRoute") && !offered.contains(&"Proxy"), "{refused}");
    }
}

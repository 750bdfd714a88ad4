//! The way to a Kubernetes API.

use axum::http::{Request, Response, StatusCode};
use heliograph_translator_core::objects::Kind;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The flags of a program that asks a Kubernetes API.
#[derive(Clone, Debug, clap::Args)]
pub struct KubernetesArgs {
    /// Watch the objects of the Kubernetes API that this pod belongs to, or that --kubeconfig names
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBERNETES")]
    pub kubernetes: bool,

    /// A kubeconfig file; it is read again when its credentials are refused
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; by default its current one
    #[arg(long, help_heading = "Kubernetes", env = "HELIO_KUBE_CONTEXT", value_name = "NAME")]
    pub kube_context: Option<String>,

    /// Labels of the namespaces whose objects count, such as team=web; by default all do
    #[arg(
        long,
        help_heading = "Kubernetes",
        env = "HELIO_NAMESPACE_SELECTOR",
        value_name = "SELECTOR"
    )]
    pub namespace_selector: Option<String>,

    /// A kind that is not watched, such as ViewPolicy; may be repeated
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
    #[error("this is no pod of a cluster ({0}): name a kubeconfig with --kubeconfig")]
    Outside(#[source] kube::config::InClusterError),
    #[error("{}: {cause}", .path.display())]
    Kubeconfig { path: PathBuf, cause: kube::config::KubeconfigError },
    #[error("no client for the Kubernetes API: {0}")]
    Client(#[source] Box<kube::Error>),
}

impl KubernetesArgs {
    /// A client. The API need not be there yet.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let client = self.client().await?;
        Ok(match self.kubeconfig {
            Some(_) => renewing(client, self.clone()),
            // The token of a pod is a file, which the client reads again by itself.
            None => client,
        })
    }

    async fn client(&self) -> Result<Client, ConnectError> {
        let config = match &self.kubeconfig {
            None => Config::incluster().map_err(ConnectError::Outside)?,
            Some(path) => {
                let wrong = |cause| ConnectError::Kubeconfig { path: path.clone(), cause };
                let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
                let context = self.kube_context.clone();
                let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)?
            }
        };
        Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
    }
}

/// A client that becomes another when the API refuses it or cannot be reached, if the file says something else by then: an
/// expired kubeconfig is mended without a restart.
fn renewing(client: Client, args: KubernetesArgs) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (current, args) = (Arc::new(Mutex::new(client)), Arc::new(args));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (current, args) = (current.clone(), args.clone());
        async move {
            let client = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let answer: Result<Response<Body>, kube::Error> = client.send(request).await;
            let is_refused = match &answer {
                Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
                Err(_) => true,
            };
            // Whoever asked tries again after a while.
            if is_refused && let Ok(renewed) = args.client().await {
                *current.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
            }
            answer
        }
    });
    Client::new(service, namespace)
}

fn served_kind(text: &str) -> Result<Kind, String> {
    let mut kinds = Kind::ALL.iter().copied().filter(|kind| kind.api_version().is_some());
    kinds.clone().find(|kind| kind.as_str() == text).ok_or_else(|| {
        let all: Vec<&str> = kinds.by_ref().map(Kind::as_str).collect();
        format!("it is none of {}", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_are_watched_can_be_ignored() {
        assert_eq!(served_kind("ViewPolicy"), Ok(Kind::ViewPolicy));
        let refused = served_kind("Proxy").unwrap_err();
        let offered: Vec<&str> = refused.split([' ', ',']).collect();
        assert!(offered.contains(&"HTTPRoute") && !offered.contains(&"Proxy"), "{refused}");
    }
}

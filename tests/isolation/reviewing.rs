//! A distributor that asks the Kubernetes API whose a token is, and cannot check any itself.

use super::clients::Clients;
use super::{DEADLINE, FLEET};
use crate::accounts::{AUDIENCE, add_accounts, withhold_keys};
use crate::kubernetes::Kubernetes;
use crate::redis_site::{Program, Site};
use heliograph_client::{Client, Options, Protocol, Server, State};

pub(crate) struct Reviewing {
    pub(crate) distributor: Program,
    cluster: Kubernetes,
}

/// How many tokens a second it asks about, of all clients.
const RATE: &str = "50";

/// The account of an Envoy of the shared fleet.
const ACCOUNT: (&str, &str) = ("default", "envoy");

impl Reviewing {
    /// An API server, which takes some seconds.
    pub(crate) async fn cluster() -> Kubernetes {
        let cluster = Kubernetes::start().await;
        add_accounts(&cluster, &[ACCOUNT]).await;
        withhold_keys(&cluster).await;
        cluster
    }

    /// `files`: those of its port, as flags.
    pub(crate) async fn start(site: &Site, files: &[String], cluster: Kubernetes) -> Self {
        let file = |name: &str| cluster.file(name).to_str().unwrap().to_owned();
        let (url, authority, token) = (cluster.url(), file("ca.crt"), file("token"));
        let own = [
            ["--kubernetes-api", &url],
            ["--kubernetes-ca", &authority],
            ["--kubernetes-token", &token],
            ["--xds-token-review-rate", RATE],
        ];
        let mut flags: Vec<_> = files.iter().map(String::as_str).collect();
        flags.push("--xds-token-review");
        flags.extend(own.as_flattened());
        let distributor = site.distributor_with_flags("reviewing", &flags).await;
        Self { distributor, cluster }
    }

    /// An Envoy of the shared fleet that has just got its token comes from another address than the flood, and is served at its
    /// first try.
    pub(crate) async fn newcomer_is_served(&self, clients: &Clients) {
        let token = self.cluster.token(ACCOUNT.0, ACCOUNT.1, &[AUDIENCE]).await;
        let address = format!("https://127.0.0.1:{}", self.distributor.xds);
        let tls = clients.authority.client(None);
        let server = Server::new(&address, Some(tls), Some(&token)).unwrap();
        let client = Client::connect_to(server, Options::new(address, Protocol::Delta, FLEET));
        let settled = |state: &State| state.ended.is_some() || state.is_warm();
        let state = client.until("its configuration", DEADLINE, settled).await.unwrap();
        assert_eq!(state.ended, None);
        assert!(!state.received.is_empty());
    }

    /// How many questions had this outcome.
    pub(crate) async fn reviews(&self, outcome: &str) -> f64 {
        let name = "heliograph_distributor_token_reviews_total";
        self.distributor.metric(&format!("{name}{{outcome=\"{outcome}\"}}")).await
    }
}

use super::api::{Api, Trust};
use super::authenticator::{AuthenticationMethods, Authenticator, Tokens};
use super::cluster_keys::ClusterKeys;
use super::jwt::{Expected, KeySet};
use super::metrics::SecurityMetrics;
use super::review::Reviewer;
use super::review_admission::ReviewAdmission;
use super::rules::{CONVENTION, Rules};
use crate::tls::Material;
use crate::watched_files::{FileError, RefreshOutcome, WatchedFiles};
use prometheus::Registry;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The flags that say how clients are known, and what they may read. Without any, no client is authenticated.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Identity")]
pub struct SecurityArgs {
    /// PEM file with the certificate of the xDS port and its intermediate certificates
    #[arg(long, env = "HELIO_XDS_CERT", value_name = "FILE")]
    pub xds_cert: Option<PathBuf>,

    /// PEM file with the key of that certificate
    #[arg(long, env = "HELIO_XDS_KEY", value_name = "FILE")]
    pub xds_key: Option<PathBuf>,

    /// PEM file with the CA bundle that verifies client certificates: the identity of a client is the SPIFFE URI or DNS name in
    /// its certificate
    #[arg(long, env = "HELIO_XDS_CLIENT_CA", value_name = "FILE")]
    pub xds_client_ca: Option<PathBuf>,

    /// JSON Web Key Set that verifies clients' tokens: the identity of a client is the subject of its bearer token
    #[arg(long, env = "HELIO_XDS_JWKS", value_name = "FILE")]
    pub xds_jwks: Option<PathBuf>,

    /// Required issuer of tokens that --xds-jwks verifies (claim iss)
    #[arg(long, env = "HELIO_XDS_TOKEN_ISSUER", value_name = "URL")]
    pub xds_token_issuer: Option<String>,

    /// Verify clients' bearer tokens by TokenReview of Kubernetes: the identity of a client is its ServiceAccount
    #[arg(long, env = "HELIO_XDS_TOKEN_REVIEW")]
    pub xds_token_review: bool,

    /// Maximum number of TokenReviews per second, for tokens that are new to this replica, shared fairly among source addresses;
    /// further clients get UNAVAILABLE and retry [default: 500]
    #[arg(
        long,
        env = "HELIO_XDS_TOKEN_REVIEW_RATE",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub xds_token_review_rate: Option<u32>,

    /// URL of the API server for TokenReviews [default in a pod: its own cluster's API server]
    #[arg(long, env = "HELIO_KUBERNETES_API", value_name = "URL")]
    pub kubernetes_api: Option<String>,

    /// PEM file with the CA bundle that verifies that API server [default in a pod: the pod's own]
    #[arg(long, env = "HELIO_KUBERNETES_CA", value_name = "FILE")]
    pub kubernetes_ca: Option<PathBuf>,

    /// File with the token with which this program authenticates there [default in a pod: the pod's own]
    #[arg(long, env = "HELIO_KUBERNETES_TOKEN", value_name = "FILE")]
    pub kubernetes_token: Option<PathBuf>,

    /// Required audience of a token (claim aud) [default: heliograph]
    #[arg(long, env = "HELIO_XDS_TOKEN_AUDIENCE", value_name = "NAME")]
    pub xds_token_audience: Option<String>,

    /// YAML file with access rules, which say which identity may read which fleets; without it, a workload may read the fleets of
    /// its own namespace
    #[arg(long, env = "HELIO_XDS_ACCESS", value_name = "FILE")]
    pub xds_access: Option<PathBuf>,

    /// Interval at which the identity of a stream is checked again, in seconds [default: 180]
    #[arg(
        long,
        env = "HELIO_XDS_RECHECK_SECONDS",
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u16).range(1..=3600)
    )]
    pub xds_recheck_seconds: Option<u16>,
}

#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("{given} requires {missing}: set both or neither")]
    Half { given: &'static str, missing: &'static str },
    #[error("client certificates need TLS: set --xds-cert and --xds-key with --xds-client-ca")]
    NoTls,
    #[error(
        "TLS alone lets everybody read every secret: give --xds-client-ca, --xds-jwks or --xds-token-review, so that \
         clients are known"
    )]
    NobodyKnown,
    #[error(
        "{0} needs authentication of clients: set --xds-client-ca, --xds-jwks or --xds-token-review"
    )]
    Useless(&'static str),
    #[error("--xds-jwks and --xds-token-review both verify tokens: set only one of them")]
    TwoJudges,
    #[error(
        "--xds-token-review needs the API of Kubernetes, and this program does not run in it: give --kubernetes-api \
         https://HOST:PORT"
    )]
    NoApi,
    #[error("--kubernetes-api {0} is not the URL of an API server: write https://HOST:PORT")]
    Api(String),
    #[error("{flag} {cause}")]
    File { flag: &'static str, cause: String },
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// What was made of the flags.
pub(crate) struct Security {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) tls: Option<Arc<WatchedFiles<Material>>>,
    keys: Option<Arc<WatchedFiles<KeySet>>>,
    cluster_keys: Option<Arc<ClusterKeys>>,
    trust: Option<Arc<WatchedFiles<Trust>>>,
    rules: Arc<WatchedFiles<Rules>>,
    metrics: SecurityMetrics,
}

const AUDIENCE: &str = "heliograph";
const RECHECK_SECONDS: u16 = 180;
/// What the API server said of a token is not asked again for so long, or half the time between two looks at a stream.
const FRESH_REVIEW: Duration = Duration::from_secs(30);
/// As many proxies as come back at once when a replica dies, within seconds; and not more than an API server notices.
const REVIEW_RATE: u32 = 500;
/// Where a pod has what its ServiceAccount needs.
const IN_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How often files are read again.
const REFRESH: Duration = Duration::from_secs(2);

impl SecurityArgs {
    /// Reads all files, and refuses what does not fit together.
    pub(crate) fn open(&self, registry: &Registry) -> Result<Security, SecurityError> {
        self.check()?;
        let metrics = SecurityMetrics::register(registry)?;
        let tls = self.tls()?.map(Arc::new);
        if let Some(tls) = &tls {
            metrics.certificates(&tls.current());
        }
        let keys = self.keys()?.map(Arc::new);
        let rules = Arc::new(self.rules()?);
        let trust = self.trust()?.map(Arc::new);
        let recheck =
            Duration::from_secs(self.xds_recheck_seconds.unwrap_or(RECHECK_SECONDS).into());
        let audience = self.xds_token_audience.as_deref().unwrap_or(AUDIENCE).to_owned();
        let mut cluster_keys = None;
        let tokens = match (&keys, &trust, self.xds_token_issuer.clone()) {
            (Some(keys), _, Some(issuer)) => {
                Some(Tokens::Keys { keys: keys.clone(), expected: Expected { issuer, audience } })
            }
            (_, Some(trust), _) => {
                let fresh = FRESH_REVIEW.min(recheck / 2);
                let rate = self.xds_token_review_rate.unwrap_or(REVIEW_RATE);
                let api = Arc::new(self.api(trust.clone())?);
                let keys = Arc::new(ClusterKeys::new(api.clone(), metrics.clone()));
                cluster_keys = Some(keys.clone());
                let admission = ReviewAdmission::new(audience.clone(), keys, rate, metrics.clone());
                let reviewer = Reviewer::new(api, audience, fresh, admission, metrics.clone());
                Some(Tokens::Kubernetes(Box::new(reviewer)))
            }
            _ => None,
        };
        let methods = self.asks().then(|| AuthenticationMethods {
            certificates: tls.clone().filter(|_| self.xds_client_ca.is_some()),
            tokens,
            rules: rules.clone(),
            recheck,
        });
        let authenticator = Arc::new(Authenticator::new(methods, metrics.clone()));
        Ok(Security { authenticator, tls, keys, cluster_keys, trust, rules, metrics })
    }

    /// Whether clients are asked who they are.
    fn asks(&self) -> bool {
        self.xds_client_ca.is_some() || self.xds_jwks.is_some() || self.xds_token_review
    }

    fn check(&self) -> Result<(), SecurityError> {
        let half = |given, missing| Err(SecurityError::Half { given, missing });
        match (&self.xds_cert, &self.xds_key) {
            (Some(_), None) => return half("--xds-cert", "--xds-key"),
            (None, Some(_)) => return half("--xds-key", "--xds-cert"),
            (None, None) if self.xds_client_ca.is_some() => return Err(SecurityError::NoTls),
            (Some(_), Some(_)) if !self.asks() => return Err(SecurityError::NobodyKnown),
            _ => {}
        }
        match (&self.xds_jwks, &self.xds_token_issuer) {
            (Some(_), None) => return half("--xds-jwks", "--xds-token-issuer"),
            (None, Some(_)) => return half("--xds-token-issuer", "--xds-jwks"),
            (Some(_), Some(_)) if self.xds_token_review => return Err(SecurityError::TwoJudges),
            _ => {}
        }
        let kubernetes = self.kubernetes_api.is_some()
            || self.kubernetes_ca.is_some()
            || self.kubernetes_token.is_some();
        if (kubernetes || self.xds_token_review_rate.is_some()) && !self.xds_token_review {
            return half(
                "--kubernetes-api, --kubernetes-ca, --kubernetes-token or --xds-token-review-rate",
                "--xds-token-review",
            );
        }
        match &self.xds_access {
            Some(_) if !self.asks() => Err(SecurityError::Useless("--xds-access")),
            _ => Ok(()),
        }
    }

    fn tls(&self) -> Result<Option<WatchedFiles<Material>>, SecurityError> {
        let Some((certificate, key)) = self.xds_cert.clone().zip(self.xds_key.clone()) else {
            return Ok(None);
        };
        let paths = [certificate, key].into_iter().chain(self.xds_client_ca.clone()).collect();
        let watched = WatchedFiles::open("the certificate of the xDS port", paths, |contents| {
            Material::parse(&contents[0], &contents[1], contents.get(2))
        });
        watched.map(Some).map_err(of_flag("--xds-cert, --xds-key or --xds-client-ca"))
    }

    fn keys(&self) -> Result<Option<WatchedFiles<KeySet>>, SecurityError> {
        let Some(path) = self.xds_jwks.clone() else { return Ok(None) };
        let watched = WatchedFiles::open("the key set of tokens", vec![path], |contents| {
            KeySet::parse(&contents[0].bytes).map_err(|error| contents[0].wrong(error))
        });
        watched.map(Some).map_err(of_flag("--xds-jwks"))
    }

    fn trust(&self) -> Result<Option<WatchedFiles<Trust>>, SecurityError> {
        if !self.xds_token_review {
            return Ok(None);
        }
        let in_pod = |flag: &Option<PathBuf>, name: &str| {
            flag.clone().unwrap_or_else(|| PathBuf::from(IN_POD).join(name))
        };
        let paths =
            vec![in_pod(&self.kubernetes_ca, "ca.crt"), in_pod(&self.kubernetes_token, "token")];
        let watched = WatchedFiles::open("the access to the Kubernetes API", paths, |contents| {
            Trust::parse(&contents[0], &contents[1])
        });
        watched.map(Some).map_err(of_flag("--kubernetes-ca or --kubernetes-token"))
    }

    fn api(&self, trust: Arc<WatchedFiles<Trust>>) -> Result<Api, SecurityError> {
        let in_pod = || {
            let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
            let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            Some(format!("https://{host}:{port}"))
        };
        let url = self.kubernetes_api.clone().or_else(in_pod).ok_or(SecurityError::NoApi)?;
        Api::new(&url, trust).ok_or(SecurityError::Api(url))
    }

    fn rules(&self) -> Result<WatchedFiles<Rules>, SecurityError> {
        let paths = self.xds_access.iter().cloned().collect();
        let watched =
            WatchedFiles::open("the file of access rules", paths, |contents| match contents {
                [file, ..] => Rules::parse(file.text()?).map_err(|error| file.wrong(error)),
                [] => Rules::parse(CONVENTION).map_err(|error| FileError::Wrong {
                    path: "convention".into(),
                    cause: error.to_string(),
                }),
            });
        watched.map_err(of_flag("--xds-access"))
    }
}

impl Security {
    /// Follows the files, and the keys of the cluster.
    pub(crate) async fn follow(mut self) -> Infallible {
        let cluster_keys = self.cluster_keys.take();
        let keys = async {
            match &cluster_keys {
                Some(keys) => keys.follow().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = keys => never,
            never = self.follow_files() => never,
        }
    }

    async fn follow_files(self) -> Infallible {
        let Self { authenticator: _, tls, keys, cluster_keys: _, trust, rules, metrics } = self;
        let refresh = Arc::new(move || {
            if let Some(tls) = &tls {
                let outcome = tls.refresh();
                if outcome == RefreshOutcome::Changed {
                    metrics.certificates(&tls.current());
                }
                metrics.files("tls", outcome == RefreshOutcome::Bad);
            }
            if let Some(keys) = &keys {
                metrics.files("jwks", keys.refresh() == RefreshOutcome::Bad);
            }
            if let Some(trust) = &trust {
                metrics.files("kubernetes", trust.refresh() == RefreshOutcome::Bad);
            }
            metrics.files("access", rules.refresh() == RefreshOutcome::Bad);
        });
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let refresh = refresh.clone();
            // A mount can hang, and streams must not.
            if let Err(error) = tokio::task::spawn_blocking(move || refresh()).await {
                tracing::warn!(%error, "cannot check the files of the xDS port for changes, retrying");
            }
        }
    }
}

fn of_flag(flag: &'static str) -> impl Fn(FileError) -> SecurityError {
    move |error| SecurityError::File { flag, cause: error.to_string() }
}

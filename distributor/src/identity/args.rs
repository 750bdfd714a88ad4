use super::gate::{Gate, Tokens, Ways};
use super::jwt::{Expected, KeySet};
use super::metrics::SecurityMetrics;
use super::rules::{CONVENTION, Rules};
use crate::followed::{FileError, Followed, Look};
use crate::tls::Material;
use prometheus::Registry;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The flags that say how clients are known, and what they may read. Without any, nobody is asked.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Identity")]
pub struct SecurityArgs {
    /// PEM file with the certificate of the xDS port, and those between it and its authority
    #[arg(long, env = "HELIO_XDS_CERT", value_name = "FILE")]
    pub xds_cert: Option<PathBuf>,

    /// PEM file with the key of that certificate
    #[arg(long, env = "HELIO_XDS_KEY", value_name = "FILE")]
    pub xds_key: Option<PathBuf>,

    /// PEM file with the authorities of clients' certificates: a client is who its certificate says, by SPIFFE URI or
    /// DNS name
    #[arg(long, env = "HELIO_XDS_CLIENT_CA", value_name = "FILE")]
    pub xds_client_ca: Option<PathBuf>,

    /// JSON Web Key Set with the keys of clients' tokens: a client is who the subject of its bearer token is
    #[arg(long, env = "HELIO_XDS_JWKS", value_name = "FILE")]
    pub xds_jwks: Option<PathBuf>,

    /// Who must have issued a token that --xds-jwks checks (claim iss)
    #[arg(long, env = "HELIO_XDS_TOKEN_ISSUER", value_name = "URL")]
    pub xds_token_issuer: Option<String>,

    /// For whom a token must be (claim aud) [default: heliograph]
    #[arg(long, env = "HELIO_XDS_TOKEN_AUDIENCE", value_name = "NAME")]
    pub xds_token_audience: Option<String>,

    /// YAML file with rules of who may read which fleets; without it, a workload reads the fleets of its namespace
    #[arg(long, env = "HELIO_XDS_ACCESS", value_name = "FILE")]
    pub xds_access: Option<PathBuf>,

    /// How often the identity behind a stream is checked again, in seconds [default: 180]
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
    #[error("{given} is nothing without {missing}: give both or neither")]
    Half { given: &'static str, missing: &'static str },
    #[error(
        "clients have certificates only where there is TLS: give --xds-cert and --xds-key with --xds-client-ca"
    )]
    NoTls,
    #[error(
        "TLS alone lets everybody read every secret: give --xds-client-ca or --xds-jwks, so that clients are known"
    )]
    NobodyKnown,
    #[error(
        "{0} says what clients may do that nobody asks who they are: give --xds-client-ca or --xds-jwks"
    )]
    Useless(&'static str),
    #[error("{flag} {cause}")]
    File { flag: &'static str, cause: String },
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// What was made of the flags.
pub(crate) struct Security {
    pub(crate) gate: Arc<Gate>,
    pub(crate) tls: Option<Arc<Followed<Material>>>,
    keys: Option<Arc<Followed<KeySet>>>,
    rules: Arc<Followed<Rules>>,
    metrics: SecurityMetrics,
}

const AUDIENCE: &str = "heliograph";
const RECHECK_SECONDS: u16 = 180;
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
        let tokens = keys.clone().zip(self.xds_token_issuer.clone()).map(|(keys, issuer)| {
            let audience = self.xds_token_audience.as_deref().unwrap_or(AUDIENCE).to_owned();
            Tokens { keys, expected: Expected { issuer, audience } }
        });
        let ways = self.asks().then(|| Ways {
            certificates: tls.clone().filter(|_| self.xds_client_ca.is_some()),
            tokens,
            rules: rules.clone(),
            recheck: Duration::from_secs(
                self.xds_recheck_seconds.unwrap_or(RECHECK_SECONDS).into(),
            ),
        });
        let gate = Arc::new(Gate::new(ways, metrics.clone()));
        Ok(Security { gate, tls, keys, rules, metrics })
    }

    /// Whether clients are asked who they are.
    fn asks(&self) -> bool {
        self.xds_client_ca.is_some() || self.xds_jwks.is_some()
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
            _ => {}
        }
        match &self.xds_access {
            Some(_) if !self.asks() => Err(SecurityError::Useless("--xds-access")),
            _ => Ok(()),
        }
    }

    fn tls(&self) -> Result<Option<Followed<Material>>, SecurityError> {
        let Some((certificate, key)) = self.xds_cert.clone().zip(self.xds_key.clone()) else {
            return Ok(None);
        };
        let paths = [certificate, key].into_iter().chain(self.xds_client_ca.clone()).collect();
        let followed = Followed::open("the certificate of the xDS port", paths, |contents| {
            Material::parse(&contents[0], &contents[1], contents.get(2))
        });
        followed.map(Some).map_err(of_flag("--xds-cert, --xds-key or --xds-client-ca"))
    }

    fn keys(&self) -> Result<Option<Followed<KeySet>>, SecurityError> {
        let Some(path) = self.xds_jwks.clone() else { return Ok(None) };
        let followed = Followed::open("the key set of tokens", vec![path], |contents| {
            KeySet::parse(&contents[0].bytes).map_err(|error| contents[0].wrong(error))
        });
        followed.map(Some).map_err(of_flag("--xds-jwks"))
    }

    fn rules(&self) -> Result<Followed<Rules>, SecurityError> {
        let paths = self.xds_access.iter().cloned().collect();
        let followed =
            Followed::open("the file of access rules", paths, |contents| match contents {
                [file, ..] => Rules::parse(file.text()?).map_err(|error| file.wrong(error)),
                [] => Rules::parse(CONVENTION).map_err(|error| FileError::Wrong {
                    path: "convention".into(),
                    cause: error.to_string(),
                }),
            });
        followed.map_err(of_flag("--xds-access"))
    }
}

impl Security {
    /// Follows the files.
    pub(crate) async fn follow(self) -> Infallible {
        let Self { gate: _, tls, keys, rules, metrics } = self;
        let look = Arc::new(move || {
            if let Some(tls) = &tls {
                let look = tls.refresh();
                if look == Look::Changed {
                    metrics.certificates(&tls.current());
                }
                metrics.files("tls", look == Look::Bad);
            }
            if let Some(keys) = &keys {
                metrics.files("jwks", keys.refresh() == Look::Bad);
            }
            metrics.files("access", rules.refresh() == Look::Bad);
        });
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let look = look.clone();
            // A mount can hang, and streams must not.
            if let Err(error) = tokio::task::spawn_blocking(move || look()).await {
                tracing::warn!(%error, "cannot look at the files of the xDS port, trying again");
            }
        }
    }
}

fn of_flag(flag: &'static str) -> impl Fn(FileError) -> SecurityError {
    move |error| SecurityError::File { flag, cause: error.to_string() }
}

use super::ca;
use anyhow::{Context, anyhow};
use heliograph_gateway::infra::{DEFAULT_IMAGE, ProxyIdentity, ProxySettings, RunAs};
use std::path::PathBuf;

/// How the Envoys of Gateways are run, where no ProxyConfig says otherwise
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProxyArgs {
    /// Address of the distributors, for the Envoys of Gateways; without it, the translator runs no Envoys
    #[arg(long, env = "HELIO_PROXY_XDS", value_name = "HOST:PORT")]
    pub proxy_xds: Option<String>,

    /// PEM file with the CA bundle that verifies the distributors' certificates; changes take effect without a restart. Without
    /// it, Envoys connect in plain text
    #[arg(long, env = "HELIO_PROXY_XDS_CA", value_name = "FILE", requires = "proxy_xds")]
    pub proxy_xds_ca: Option<PathBuf>,

    /// Envoys authenticate with a token of their ServiceAccount for this audience
    #[arg(
        long,
        env = "HELIO_PROXY_TOKEN_AUDIENCE",
        value_name = "AUDIENCE",
        requires = "proxy_xds_ca",
        conflicts_with = "proxy_certificate_secret"
    )]
    pub proxy_token_audience: Option<String>,

    /// Envoys authenticate with the certificate in the Secret with this name in the namespace of their Gateway
    #[arg(
        long,
        env = "HELIO_PROXY_CERTIFICATE_SECRET",
        value_name = "NAME",
        requires = "proxy_xds_ca"
    )]
    pub proxy_certificate_secret: Option<String>,

    /// Image of Envoy, if no ProxyConfig names one
    #[arg(long, env = "HELIO_PROXY_IMAGE", value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    pub proxy_image: String,

    /// User ID that Envoys run as; `none` lets the cluster choose it, as OpenShift requires
    #[arg(long, env = "HELIO_PROXY_USER", value_name = "NUMBER", default_value_t)]
    pub proxy_user: RunAs,

    /// Group ID that Envoys run as, which also owns mounted files; `none` lets the cluster choose it
    #[arg(long, env = "HELIO_PROXY_GROUP", value_name = "NUMBER", default_value_t)]
    pub proxy_group: RunAs,
}

impl ProxyArgs {
    /// `None`: no Envoys are run here.
    pub fn settings(&self) -> anyhow::Result<Option<ProxySettings>> {
        let Some(address) = &self.proxy_xds else { return Ok(None) };
        let (host, port) = address
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .with_context(|| format!("--proxy-xds: {address:?} is not HOST:PORT"))?;
        let ca_bundle = match &self.proxy_xds_ca {
            None => None,
            Some(path) => {
                let read = ca::read(path);
                Some(read.map_err(|why| anyhow!("--proxy-xds-ca: {}: {why}", path.display()))?)
            }
        };
        let identity = match (&self.proxy_token_audience, &self.proxy_certificate_secret) {
            (Some(audience), _) => ProxyIdentity::Token { audience: audience.clone() },
            (None, Some(secret)) => ProxyIdentity::Certificate { secret: secret.clone() },
            (None, None) => ProxyIdentity::None,
        };
        Ok(Some(ProxySettings {
            image: self.proxy_image.clone(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            ca_bundle,
            ca_file: self.proxy_xds_ca.clone(),
            identity,
            user: self.proxy_user,
            group: self.proxy_group,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let args = |address: &str| ProxyArgs {
            proxy_xds: Some(address.to_owned()),
            ..ProxyArgs::default()
        };
        let found = args("distributor.heliograph.svc:18000").settings().unwrap().unwrap();
        assert_eq!((&*found.host, found.port), ("distributor.heliograph.svc", 18000));
        let found = args("[::1]:18000").settings().unwrap().unwrap();
        assert_eq!((&*found.host, found.port), ("::1", 18000));
        let error = args("distributor").settings().unwrap_err().to_string();
        assert_eq!(error, "--proxy-xds: \"distributor\" is not HOST:PORT");
        assert_eq!(ProxyArgs::default().settings().unwrap(), None);
    }

    #[test]
    fn envoys_run_as_a_number_or_as_the_cluster_wants_it() {
        assert_eq!("1000".parse(), Ok(RunAs(Some(1000))));
        assert_eq!("none".parse(), Ok(RunAs(None)));
        for text in ["0", "-1", "2147483648", "nobody", ""] {
            assert!(text.parse::<RunAs>().is_err(), "{text}");
        }
        for owner in [RunAs::default(), RunAs(None)] {
            assert_eq!(owner.to_string().parse(), Ok(owner));
        }
    }
}

//! Makes the secrets of one installation, as Secrets of its namespace.

mod api;
mod certificates;
mod renewal;

use crate::commands::store::keys::new_id;
use crate::output;
use anyhow::{Context, bail};
use api::{Found, Secrets};
use certificates::{CertificateAuthority, ServerCertificate, shown};
use heliograph_shared::duration;
use heliograph_store::keys::KeyRing;
use heliograph_translator::KubernetesArgs;
use renewal::{Lives, Renewed, renew};
use ring::rand::{SecureRandom, SystemRandom};
use std::convert::Infallible;
use std::fmt::Write;
use std::iter;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Create missing Secrets of an installation, and renew its certificate when necessary
///
/// Valid Secrets stay unchanged, so you can run this at any time and repeatedly; the chart runs it once a day. A new CA signs
/// certificates only after a day, when all Envoys trust it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace of the Secrets [default: that of this pod, or of the kubeconfig's context]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Kubeconfig file [default in a pod: the pod's ServiceAccount]
    #[arg(long, env = "HELIO_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, env = "HELIO_KUBE_CONTEXT", value_name = "NAME")]
    kube_context: Option<String>,

    /// Secret with the key ring (keys.yaml)
    #[arg(long, value_name = "SECRET")]
    key_ring: Option<String>,

    /// Secret with the password of Redis (password, and redis.conf, which sets it)
    #[arg(long, value_name = "SECRET")]
    redis: Option<String>,

    /// Secret with the distributors' certificate (tls.crt, tls.key, and ca.crt with which Envoys verify it)
    #[arg(long, value_name = "SECRET", requires_all = ["authority", "server_name"])]
    certificate: Option<String>,

    /// Secret with the CA that signs the certificate (tls.crt, tls.key)
    #[arg(long, value_name = "SECRET", requires = "certificate")]
    authority: Option<String>,

    /// Host name or IP address at which Envoys reach the distributors; can be repeated
    #[arg(long, value_name = "HOST", requires = "certificate", value_parser = server_name)]
    server_name: Vec<String>,

    /// Lifetime of a certificate; it is renewed after two thirds of that
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse)]
    certificate_life: Duration,

    /// Lifetime of a CA; a new one is created after two thirds of that
    #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = duration::parse)]
    authority_life: Duration,
}

/// The annotation that says since when Envoys have received the newest CA.
const TRUSTED_SINCE: &str = "heliograph.dev/trusted-since";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(make(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Addresses as certificates have them, which may be written in several ways.
fn server_name(text: &str) -> Result<String, Infallible> {
    let address = text.parse::<IpAddr>();
    Ok(address.map_or_else(|_| text.to_owned(), |address| address.to_string()))
}

async fn make(args: &Args) -> anyhow::Result<()> {
    if args.key_ring.is_none() && args.redis.is_none() && args.certificate.is_none() {
        bail!("set at least one of --key-ring, --redis, --certificate");
    }
    if args.certificate_life.min(args.authority_life) < renewal::LEAST_LIFE {
        bail!("--certificate-life and --authority-life are at least 72h: changes take a day each");
    }
    let access = KubernetesArgs {
        kubernetes: true,
        kubeconfig: args.kubeconfig.clone(),
        kube_context: args.kube_context.clone(),
        namespace_selector: None,
        ignore_kind: Vec::new(),
    };
    let secrets = Secrets::new(access.connect().await?, args.namespace.as_deref());
    if let Some(name) = &args.key_ring {
        key_ring(&secrets, name).await?;
    }
    if let Some(name) = &args.redis {
        password(&secrets, name).await?;
    }
    if let (Some(certificate), Some(authority)) = (&args.certificate, &args.authority) {
        certificates(&secrets, certificate, authority, args).await?;
    }
    Ok(())
}

async fn key_ring(secrets: &Secrets, name: &str) -> anyhow::Result<()> {
    const FILE: &str = "keys.yaml";
    if let Some(found) = secrets.find(name).await? {
        KeyRing::parse(found.text(FILE)?).with_context(|| format!("{found}, {FILE}"))?;
        return Ok(output::line(&format!("{found}: the key ring exists"))?);
    }
    let text = KeyRing::generate(&new_id(iter::empty()))?;
    let made = secrets.create(name, "Opaque", [(FILE, text.to_string())]).await?;
    output::line(&format!("{made}: a new key ring"))?;
    Ok(())
}

async fn password(secrets: &Secrets, name: &str) -> anyhow::Result<()> {
    if let Some(found) = secrets.find(name).await? {
        found.text("password")?;
        found.text("redis.conf")?;
        return Ok(output::line(&format!("{found}: the password for Redis exists"))?);
    }
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok().context("the system gave no random bytes")?;
    let mut password = String::new();
    for byte in bytes {
        write!(password, "{byte:02x}")?;
    }
    let configuration = format!("requirepass {password}\n");
    let data = [("password", password), ("redis.conf", configuration)];
    let made = secrets.create(name, "Opaque", data).await?;
    output::line(&format!("{made}: a new password for Redis"))?;
    Ok(())
}

async fn certificates(
    secrets: &Secrets,
    certificate: &str,
    ca: &str,
    args: &Args,
) -> anyhow::Result<()> {
    let found_ca = secrets.find(ca).await?;
    let found_certificate = secrets.find(certificate).await?;
    let advice = "delete this Secret, and run this command again";
    let held_ca = match &found_ca {
        None => None,
        Some(found) => Some(
            CertificateAuthority::read(found.text("tls.crt")?, found.text("tls.key")?)
                .with_context(|| format!("{found}: {advice} for a new CA"))?,
        ),
    };
    let held = match &found_certificate {
        None => None,
        Some(found) => Some(
            server_certificate(found)
                .with_context(|| format!("{found}: {advice} for a new certificate"))?,
        ),
    };
    let lives = Lives { certificate: args.certificate_life, ca: args.authority_life };
    let renewed = renew(held_ca, held, &args.server_name, lives, SystemTime::now())?;
    // The CA first: a certificate whose CA is lost could not be renewed.
    let Renewed { ca: new_ca, certificate: new_certificate, messages, until } = renewed;
    if let Some(new) = new_ca {
        // Not of the type for TLS: translators watch all Secrets of that type, and need not see this one.
        secrets.put(ca, found_ca, "Opaque", new.data(), []).await?;
    }
    if let Some(new) = new_certificate {
        let data = new.data();
        let annotations = [(TRUSTED_SINCE, new.trusted_since.map(shown))];
        secrets.put(certificate, found_certificate, "kubernetes.io/tls", data, annotations).await?;
    }
    for line in messages {
        output::line(&line)?;
    }
    output::line(&format!("the certificate of the distributors is valid until {until}"))?;
    Ok(())
}

fn server_certificate(found: &Found) -> anyhow::Result<ServerCertificate> {
    let (pem, key) = (found.text("tls.crt")?, found.text("tls.key")?);
    ServerCertificate::read(pem, key, found.text("ca.crt")?, found.annotation(TRUSTED_SINCE))
}

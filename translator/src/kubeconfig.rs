//! Kubeconfigs, and clients made from them. A kubeconfig contains credentials, and the errors of its parser quote it. So
//! every error here has a file, a line and a reason of our own.

use axum::http::uri::Authority;
use axum::http::{HeaderValue, Uri};
use kube::client::{AuthError, ClientBuilder};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, LoadDataError};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs, io};
use tower::BoxError;
use tower::util::MapErrLayer;

/// The address of an API, and the credentials for it.
pub struct Access {
    config: Config,
    origin: String,
}

/// A fault of a kubeconfig, or of the files and programs that it names. It contains nothing of their content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct KubeconfigError {
    origin: String,
    line: Option<u64>,
    reason: String,
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(out, " line {line}")?;
        }
        write!(out, ": {}", self.reason)
    }
}

impl Access {
    /// From this file, or else from those that kubectl reads.
    pub async fn read(file: Option<&Path>, context: Option<&str>) -> Result<Self, KubeconfigError> {
        let files = file.map(|file| vec![file.to_owned()]).or_else(default_files);
        let Some(files) = files else {
            return Err(failed("KUBECONFIG", "it is not set, and there is no home directory"));
        };
        let origin = in_words(&files);
        let wrong = |error| of_content(&origin, context, &error);
        let mut merged = Kubeconfig::default();
        for file in &files {
            merged = merged.merge(of_file(file)?).map_err(wrong)?;
        }
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(merged, &options).await.map_err(wrong)?;
        Ok(Self { config, origin })
    }

    /// As the pod that this process runs in.
    pub fn of_pod() -> Result<Self, KubeconfigError> {
        let origin = "the service account of the pod".to_owned();
        match Config::incluster() {
            Ok(config) => Ok(Self { config, origin }),
            Err(error) => Err(failed(&origin, &of_service_account(&error))),
        }
    }

    /// After so long without a byte a connection is given up.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.config.read_timeout = Some(timeout);
        self
    }

    /// A client. The API need not be there yet.
    pub fn client(mut self) -> Result<Client, KubeconfigError> {
        let origin = self.origin;
        if !is_bearer(&self.config) {
            return Err(failed(&origin, "its token has characters that no token has"));
        }
        // It is logged with every request.
        self.config.cluster_url = without_userinfo(self.config.cluster_url);
        let builder = ClientBuilder::try_from(self.config);
        let builder = builder.map_err(|error| failed(&origin, &of_client(&error)))?;
        // Plugins run again when their tokens expire.
        let layer = MapErrLayer::new(move |error: BoxError| match of_request(&error) {
            Some(reason) => failed(&origin, &reason).into(),
            None => error,
        });
        Ok(builder.with_layer(&layer).build())
    }
}

fn default_files() -> Option<Vec<PathBuf>> {
    let named = env::var_os("KUBECONFIG").map(|value| {
        let files = env::split_paths(&value);
        files.filter(|file| !file.as_os_str().is_empty()).collect::<Vec<_>>()
    });
    let home = || env::home_dir().map(|home| vec![home.join(".kube").join("config")]);
    named.filter(|files| !files.is_empty()).or_else(home)
}

fn in_words(files: &[PathBuf]) -> String {
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    files.join(", ")
}

fn failed(origin: &str, reason: &str) -> KubeconfigError {
    KubeconfigError { origin: origin.to_owned(), line: None, reason: reason.to_owned() }
}

fn of_file(file: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let origin = file.display().to_string();
    let bytes = fs::read(file).map_err(|error| failed(&origin, &error.to_string()))?;
    // What reads it takes the other half of a character for granted.
    if matches!(bytes.as_slice(), [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) && bytes.len() % 2 == 1 {
        return Err(failed(&origin, "it is not valid UTF-16"));
    }
    Kubeconfig::read_from(file).map_err(|error| of_content(&origin, None, &error))
}

fn of_content(
    origin: &str,
    context: Option<&str>,
    error: &kube::config::KubeconfigError,
) -> KubeconfigError {
    use kube::config::KubeconfigError as Error;
    let reason = match error {
        Error::Parse(error) => {
            let line = error.location().map(|at| at.line()).filter(|line| *line > 0);
            return KubeconfigError { line, ..failed(origin, &of_yaml(error)) };
        }
        Error::CurrentContextNotSet => "it has no current-context: set --kube-context".to_owned(),
        Error::LoadContext(_) => match context {
            Some(context) => format!("it has no context {context:?}"),
            None => "it has no context with the name in current-context".to_owned(),
        },
        Error::LoadClusterOfContext(_) => "the cluster of the context is not in it".to_owned(),
        Error::KindMismatch | Error::ApiVersionMismatch => {
            "they differ in kind or apiVersion, so they cannot be merged".to_owned()
        }
        Error::ReadConfig(cause, _) => cause.to_string(),
        Error::FindPath => "there is no home directory".to_owned(),
        Error::MissingClusterUrl => "the cluster has no server".to_owned(),
        Error::ParseClusterUrl(_) => "the server of the cluster is no URL".to_owned(),
        Error::ParseProxyUrl(_) => {
            "the proxy-url of the cluster, or HTTPS_PROXY, is no URL".to_owned()
        }
        Error::LoadCertificateAuthority(cause) => of_data("certificate-authority", cause),
        Error::LoadClientCertificate(cause) => of_data("client-certificate", cause),
        Error::LoadClientKey(cause) => of_data("client-key", cause),
        Error::ParseCertificates(_) => {
            "the certificate-authority or certificate-authority-data is not in PEM".to_owned()
        }
    };
    failed(origin, &reason)
}

/// Of the parser's own words only those that come from the program and not from the file.
fn of_yaml(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::SerdeMissingField { field, .. } => format!("the field {field} is missing"),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("a value of the wrong type: expected {expected}")
        }
        Error::Unexpected { expected, .. } => {
            format!("a value of the wrong type: expected {expected}")
        }
        Error::InvalidScalar { ty, .. } => format!("a value of the wrong type: expected {ty}"),
        Error::SerdeUnknownVariant { expected, .. } => {
            format!("a value that is none of {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { .. } => "a key is there twice".to_owned(),
        Error::UnknownAnchor { .. } => "an alias without its anchor".to_owned(),
        Error::ExternalMessage { msg, .. } => match YAML.iter().find(|(it, _)| msg.contains(it)) {
            Some((_, reason)) => format!("it is not valid YAML: {reason}"),
            None => "it is not valid YAML".to_owned(),
        },
        Error::Message { .. } => "it is not what a kubeconfig has here".to_owned(),
        _ => "it is not valid YAML".to_owned(),
    }
}

/// A word of the parser, and what it is about.
const YAML: [(&str, &str); 4] = [
    ("bracket", "a bracket is not closed"),
    ("quote", "a quote is not closed"),
    ("tab", "a tab where spaces belong"),
    ("indent", "the indentation does not fit"),
];

/// The name of a file is not shown: who mistakes `client-key` for `client-key-data` has a key there.
fn of_data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("{field}-data is not valid base64"),
        LoadDataError::ReadFile(cause, _) => {
            format!("the file that {field} names cannot be read: {}", in_short(cause))
        }
        LoadDataError::NoBase64DataOrFile => format!("there is no {field}-data and no {field}"),
    }
}

fn of_client(error: &kube::Error) -> String {
    use kube::Error;
    use kube::client::RustlsTlsError as Tls;
    match error {
        Error::Auth(error) => of_plugin(error),
        Error::InferKubeconfig(error) => of_content("", None, error).reason,
        Error::ProxyProtocolUnsupported { .. } | Error::ProxyProtocolDisabled { .. } => {
            "proxies are not supported (proxy-url of the cluster, or HTTPS_PROXY)".to_owned()
        }
        Error::RustlsTls(
            Tls::InvalidIdentityPem(_)
            | Tls::MissingPrivateKey
            | Tls::MissingCertificate
            | Tls::UnknownPrivateKeyFormat,
        ) => "the client certificate and its key are not a certificate and a key in PEM".to_owned(),
        Error::RustlsTls(Tls::InvalidPrivateKey(_)) => {
            "the client key cannot be used, or is not that of the client certificate".to_owned()
        }
        Error::RustlsTls(Tls::AddRootCertificate(_) | Tls::NoValidNativeRootCA(_)) => {
            "there is no valid CA certificate".to_owned()
        }
        Error::RustlsTls(Tls::InvalidServerName(_)) => "tls-server-name is no name".to_owned(),
        Error::HttpError(_) => "a name to impersonate is none".to_owned(),
        _ => "no client can be made from it".to_owned(),
    }
}

/// If it is about credentials; what is about the way to the API says nothing of them.
fn of_request(error: &BoxError) -> Option<String> {
    match error.downcast_ref::<AuthError>() {
        Some(error) => Some(of_plugin(error)),
        None => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Auth(error)) => Some(of_plugin(error)),
            _ => None,
        },
    }
}

/// The error of a plugin, without its output, which may contain a token.
fn of_plugin(error: &AuthError) -> String {
    match error {
        AuthError::InvalidBasicAuth(_) => "its username or password cannot be sent".to_owned(),
        AuthError::InvalidBearerToken(_) => "its token has characters that no token has".to_owned(),
        AuthError::ReadTokenFile(cause, _) => {
            format!("the file that tokenFile names cannot be read: {}", in_short(cause))
        }
        AuthError::AuthExecRun { status, .. } => {
            format!("its exec plugin ended with {status}: run it by hand to see why")
        }
        AuthError::AuthExecStart(cause) => {
            format!("its exec plugin cannot be run: {}", in_short(cause))
        }
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "its exec plugin did not print an ExecCredential with a status".to_owned()
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            "the token of its exec plugin or auth-provider expires at no valid time".to_owned()
        }
        AuthError::UnrefreshableTokenResponse => {
            "its exec plugin printed a token that cannot be renewed".to_owned()
        }
        AuthError::MissingCommand => "its exec plugin has no command".to_owned(),
        AuthError::ExecMissingClusterInfo | AuthError::AuthExecSerialize(_) => {
            "the cluster cannot be passed to its exec plugin".to_owned()
        }
        AuthError::NoValidNativeRootCA(_) => "there is no valid CA certificate".to_owned(),
        AuthError::AuthExec(_) | AuthError::ParseTokenKey(_) => {
            "its auth-provider gives no token, or is not supported".to_owned()
        }
    }
}

fn of_service_account(error: &InClusterError) -> String {
    match error {
        InClusterError::ReadEnvironmentVariable(_) => {
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set".to_owned()
        }
        InClusterError::ParseClusterPort(_) | InClusterError::ParseClusterUrl(_) => {
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no host and port".to_owned()
        }
        InClusterError::ReadDefaultNamespace(cause) => format!("its namespace: {cause}"),
        InClusterError::ReadCertificateBundle(cause) => format!("its ca.crt: {cause}"),
        InClusterError::ParseCertificates(_) => "its ca.crt is not in PEM".to_owned(),
    }
}

/// Only errors of the operating system are shown; others may quote the content.
fn in_short(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.to_string(),
        None => error.kind().to_string(),
    }
}

/// Whether the token can be sent; what sends it panics if not.
fn is_bearer(config: &Config) -> bool {
    // The type of a token shows its value only when it is serialised.
    let user = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let tokens = [&user["token"], &user["auth-provider"]["config"]["id-token"]];
    let mut tokens = tokens.iter().filter_map(|token| token.as_str());
    tokens.all(|token| HeaderValue::try_from(format!("Bearer {token}")).is_ok())
}

fn without_userinfo(url: Uri) -> Uri {
    let host = url.authority().and_then(|it| it.as_str().rsplit_once('@')).map(|(_, host)| host);
    let Some(Ok(host)) = host.map(str::parse::<Authority>) else {
        return url;
    };
    let mut parts = url.clone().into_parts();
    parts.authority = Some(host);
    Uri::from_parts(parts).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_loses_who_asks_and_nothing_else() {
        let cases = [
            ("https://me:word@host:6443/a?b=c", "https://host:6443/a?b=c"),
            ("https://me@host/", "https://host/"),
            ("https://host:6443/a", "https://host:6443/a"),
        ];
        for (url, expected) in cases {
            assert_eq!(without_userinfo(url.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn half_a_character_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [0xFF, 0xFE, b'a']).unwrap();
        assert_eq!(of_file(file.path()).unwrap_err().reason, "it is not valid UTF-16");
    }
}

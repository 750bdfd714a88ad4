use super::url::{self, Mode, ParsedUrl, ServerAddress, UrlError};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use zeroize::Zeroizing;

/// The flags of every program that uses a Redis.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct RedisArgs {
    /// URL of Redis: redis://HOST:PORT, redis+sentinel://HOST:PORT,…/MASTER or redis+cluster://HOST:PORT,…; for TLS, write rediss
    /// instead of redis
    #[arg(long, env = "HELIO_STORE", hide_env_values = true, value_name = "URL")]
    pub store: Option<StoreUrl>,
    /// File with the CA bundle that verifies Redis' certificate [default: the CAs of the system]
    #[arg(long, env = "HELIO_STORE_CA", value_name = "FILE")]
    pub store_ca: Option<PathBuf>,
    /// File with the client certificate for Redis
    #[arg(long, env = "HELIO_STORE_CERT", value_name = "FILE")]
    pub store_cert: Option<PathBuf>,
    /// File with the private key of the client certificate for Redis
    #[arg(long, env = "HELIO_STORE_KEY", value_name = "FILE")]
    pub store_key: Option<PathBuf>,
    /// File with the user name for Redis; read again for each connection
    #[arg(long, env = "HELIO_STORE_USERNAME_FILE", value_name = "FILE")]
    pub store_username_file: Option<PathBuf>,
    /// File with the password for Redis; read again for each connection
    #[arg(long, env = "HELIO_STORE_PASSWORD_FILE", value_name = "FILE")]
    pub store_password_file: Option<PathBuf>,
    /// File with the user name for the Sentinels
    #[arg(long, env = "HELIO_STORE_SENTINEL_USERNAME_FILE", value_name = "FILE")]
    pub store_sentinel_username_file: Option<PathBuf>,
    /// File with the password for the Sentinels; without it, the program does not log in to the Sentinels, even if it logs in to
    /// Redis
    #[arg(long, env = "HELIO_STORE_SENTINEL_PASSWORD_FILE", value_name = "FILE")]
    pub store_sentinel_password_file: Option<PathBuf>,
}

/// A URL that is never printed, because it may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(Zeroizing<String>);

/// Where Redis is and how to get in. Whole: there is nothing left to be missing.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    mode: Mode,
    pub(super) servers: Vec<ServerAddress>,
    pub(super) master: String,
    pub(super) database: i64,
    pub(super) login: LoginSource,
    pub(super) sentinel_login: LoginSource,
    pub(super) tls: Option<TlsFiles>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LoginSource {
    pub(super) username: Option<Source>,
    pub(super) password: Option<Source>,
}

#[derive(Clone)]
pub(super) enum Source {
    Given(Zeroizing<String>),
    File(PathBuf),
}

#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    /// Without it, the system's.
    pub(super) ca: Option<PathBuf>,
    /// Certificate and key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisSettingsError {
    #[error(
        "there is no store: set --store or HELIO_STORE to the URL of a Redis, for example redis://redis:6379"
    )]
    Missing,
    #[error("the URL of --store is wrong: {0}")]
    Url(#[from] UrlError),
    #[error(
        "{0} needs TLS: begin the URL of --store with rediss instead of redis, or omit the flag"
    )]
    NotTls(&'static str),
    #[error("--store-cert and --store-key belong together: {0} is missing")]
    HalfCertificate(&'static str),
    #[error(
        "the {0} for Redis is set twice: keep either the one in the URL of --store or the file"
    )]
    Twice(&'static str),
    #[error("there is a user for {0} but no password: set {1}")]
    NoPassword(&'static str, &'static str),
    #[error(
        "{0} is only for Sentinels: begin the URL of --store with redis+sentinel, or omit the flag"
    )]
    NotSentinel(&'static str),
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Long, for a reply may carry thousands of objects.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

impl RedisSettings {
    pub fn from_args(args: &RedisArgs) -> Result<Self, RedisSettingsError> {
        let StoreUrl(text) = args.store.as_ref().ok_or(RedisSettingsError::Missing)?;
        let ParsedUrl { mode, tls, username, password, servers, master, database } =
            url::parse(text)?;
        let username = username.map(Zeroizing::new);
        let login = LoginSource {
            username: one_of("user", username, &args.store_username_file)?,
            password: one_of("password", password, &args.store_password_file)?,
        };
        login.check("Redis", "--store-password-file")?;
        Ok(Self {
            mode,
            servers,
            master,
            database,
            login,
            sentinel_login: sentinel_login(args, mode)?,
            tls: tls_files(args, tls)?,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
        })
    }

    /// How long to wait for a connection (default: 2 s) and for the reply to a command (default: 10 s).
    #[must_use]
    pub fn with_timeouts(self, connect: Duration, response: Duration) -> Self {
        Self { connect_timeout: connect, response_timeout: response, ..self }
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// A Redis without flags of its own, as in tests.
impl FromStr for RedisSettings {
    type Err = RedisSettingsError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let store = Some(StoreUrl(Zeroizing::new(url.to_owned())));
        Self::from_args(&RedisArgs { store, ..RedisArgs::default() })
    }
}

/// Where Redis is, for people.
impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.servers.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{server}")?;
        }
        match self.mode {
            Mode::Single => Ok(()),
            Mode::Sentinel => write!(f, " (Sentinel, master {})", self.master),
            Mode::Cluster => f.write_str(" (Cluster)"),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = Infallible;

    /// Any text: what is wrong with it is said later, in words that do not quote it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("<redacted>"),
            Self::File(path) => path.fmt(f),
        }
    }
}

impl LoginSource {
    fn check(&self, of: &'static str, flag: &'static str) -> Result<(), RedisSettingsError> {
        if self.username.is_some() && self.password.is_none() {
            return Err(RedisSettingsError::NoPassword(of, flag));
        }
        Ok(())
    }
}

fn one_of(
    what: &'static str,
    given: Option<Zeroizing<String>>,
    file: &Option<PathBuf>,
) -> Result<Option<Source>, RedisSettingsError> {
    match (given, file) {
        (Some(_), Some(_)) => Err(RedisSettingsError::Twice(what)),
        (Some(given), None) => Ok(Some(Source::Given(given))),
        (None, file) => Ok(file.clone().map(Source::File)),
    }
}

fn sentinel_login(args: &RedisArgs, mode: Mode) -> Result<LoginSource, RedisSettingsError> {
    let username = ("--store-sentinel-username-file", &args.store_sentinel_username_file);
    let password = ("--store-sentinel-password-file", &args.store_sentinel_password_file);
    if mode != Mode::Sentinel {
        for (flag, file) in [username, password] {
            if file.is_some() {
                return Err(RedisSettingsError::NotSentinel(flag));
            }
        }
    }
    let login = LoginSource {
        username: username.1.clone().map(Source::File),
        password: password.1.clone().map(Source::File),
    };
    login.check("the Sentinels", password.0)?;
    Ok(login)
}

fn tls_files(args: &RedisArgs, tls: bool) -> Result<Option<TlsFiles>, RedisSettingsError> {
    let RedisArgs { store_ca, store_cert, store_key, .. } = args;
    if !tls {
        let flags =
            [("--store-ca", store_ca), ("--store-cert", store_cert), ("--store-key", store_key)];
        return match flags.iter().find(|(_, file)| file.is_some()) {
            Some((flag, _)) => Err(RedisSettingsError::NotTls(flag)),
            None => Ok(None),
        };
    }
    let client = match (store_cert, store_key) {
        (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => return Err(RedisSettingsError::HalfCertificate("--store-key")),
        (None, Some(_)) => return Err(RedisSettingsError::HalfCertificate("--store-cert")),
    };
    Ok(Some(TlsFiles { ca: store_ca.clone(), client }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        redis: RedisArgs,
    }

    fn settings(flags: &str) -> Result<RedisSettings, RedisSettingsError> {
        let words = std::iter::once("program").chain(flags.split_whitespace());
        RedisSettings::from_args(&Program::parse_from(words).redis)
    }

    #[test]
    fn flags_that_do_not_fit_together_are_refused() {
        let cases = [
            ("", RedisSettingsError::Missing),
            ("--store http://one", RedisSettingsError::Url(UrlError::Scheme)),
            ("--store redis://one --store-ca ca.pem", RedisSettingsError::NotTls("--store-ca")),
            ("--store redis://one --store-key key.pem", RedisSettingsError::NotTls("--store-key")),
            (
                "--store rediss://one --store-cert cert.pem",
                RedisSettingsError::HalfCertificate("--store-key"),
            ),
            (
                "--store rediss://one --store-key key.pem",
                RedisSettingsError::HalfCertificate("--store-cert"),
            ),
            (
                "--store redis://:secret@one --store-password-file password",
                RedisSettingsError::Twice("password"),
            ),
            (
                "--store redis://ann:secret@one --store-username-file user",
                RedisSettingsError::Twice("user"),
            ),
            (
                "--store redis://ann@one",
                RedisSettingsError::NoPassword("Redis", "--store-password-file"),
            ),
            (
                "--store redis+sentinel://one/m --store-sentinel-username-file user",
                RedisSettingsError::NoPassword("the Sentinels", "--store-sentinel-password-file"),
            ),
            (
                "--store redis://one --store-sentinel-password-file password",
                RedisSettingsError::NotSentinel("--store-sentinel-password-file"),
            ),
        ];
        for (flags, expected) in cases {
            assert_eq!(settings(flags).err(), Some(expected), "{flags}");
        }
    }

    #[test]
    fn what_is_printed_names_the_servers_and_no_secret() {
        let cases = [
            ("redis://ann:secret@one", "one:6379"),
            ("rediss+sentinel://:secret@a,b:7/m/1", "a:26379,b:7 (Sentinel, master m)"),
            ("redis+cluster://ann:secret@a,b", "a:6379,b:6379 (Cluster)"),
        ];
        for (url, expected) in cases {
            let flags = Program::parse_from(["program", "--store", url]).redis;
            let settings = RedisSettings::from_args(&flags).unwrap();
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{flags:?} {settings:?}").contains("secret"), "{url}");
        }
    }
}

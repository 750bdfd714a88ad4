//! The URL of Redis.

use std::fmt;
use zeroize::Zeroizing;

/// How the servers hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One server, or one address that always leads to the master.
    Single,
    /// Sentinels say which server is the master.
    Sentinel,
    /// The keys are spread over many masters.
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    pub host: String,
    pub port: u16,
}

/// A URL, taken apart. It has no `Debug`, because of the password.
#[derive(Clone)]
pub(super) struct ParsedUrl {
    pub(super) mode: Mode,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<Zeroizing<String>>,
    /// At least one; with Sentinel, theirs.
    pub(super) servers: Vec<ServerAddress>,
    /// Empty unless the mode is Sentinel.
    pub(super) master: String,
    pub(super) database: i64,
}

/// None of these quotes the URL: any part of it may be a piece of a password with a character that was not encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error(
        "it has to begin with redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or \
         rediss+cluster://"
    )]
    Scheme,
    #[error("after // there has to be a host, for example redis://redis.example.com:6379")]
    NoHost,
    #[error(
        "a server in it is not HOST or HOST:PORT: write an IPv6 address in brackets, and a / in a password as %2F"
    )]
    Server,
    #[error("redis:// takes one host; for several use redis+sentinel:// or redis+cluster://")]
    ManyHosts,
    #[error(
        "what follows the last / is not the number of a database: leave it out for 0, and write a / in a password as \
         %2F"
    )]
    Database,
    #[error("the name of the master is missing: redis+sentinel://HOST:PORT,HOST:PORT/MASTER")]
    NoMaster,
    #[error("there is too much after the host, or a ? or #: use the flags for TLS and credentials")]
    Rest,
    #[error("a Cluster has no databases: leave out what follows the hosts")]
    ClusterDatabase,
    #[error("the user or password is not percent-encoded UTF-8: use a file for it instead")]
    Encoding,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl ServerAddress {
    /// `HOST:PORT`, `HOST`, `[IPV6]:PORT` or `[IPV6]`.
    pub(super) fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0)?,
            None => default_port,
        };
        let odd = |found: char| found.is_whitespace() || "@[]".contains(found);
        (!host.is_empty() && !host.contains(odd)).then(|| Self { host: host.to_owned(), port })
    }
}

pub(super) fn parse(url: &str) -> Result<ParsedUrl, UrlError> {
    let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
    let (mode, tls) = match scheme {
        "redis" => (Mode::Single, false),
        "rediss" => (Mode::Single, true),
        "redis+sentinel" => (Mode::Sentinel, false),
        "rediss+sentinel" => (Mode::Sentinel, true),
        "redis+cluster" => (Mode::Cluster, false),
        "rediss+cluster" => (Mode::Cluster, true),
        _ => return Err(UrlError::Scheme),
    };
    // A password may hold any character but /, so the last @ before the path ends it.
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    if hosts.contains(['?', '#']) || path.contains(['?', '#']) {
        return Err(UrlError::Rest);
    }
    let (username, password) = match user {
        None => (None, None),
        Some(user) => {
            let (name, password) = match user.split_once(':') {
                Some((name, password)) => (name, Some(decode(password)?)),
                None => (user, None),
            };
            (Some(decode(name)?).filter(|name| !name.is_empty()), password)
        }
    };
    let servers = parse_servers(hosts, mode)?;
    let (master, database) = parse_path(path, mode)?;
    let password = password.map(Zeroizing::new);
    Ok(ParsedUrl { mode, tls, username, password, servers, master, database })
}

fn parse_servers(hosts: &str, mode: Mode) -> Result<Vec<ServerAddress>, UrlError> {
    if hosts.is_empty() {
        return Err(UrlError::NoHost);
    }
    let default_port = match mode {
        Mode::Single | Mode::Cluster => 6379,
        Mode::Sentinel => 26379,
    };
    let servers: Vec<_> = hosts
        .split(',')
        .map(|host| ServerAddress::parse(host, default_port).ok_or(UrlError::Server))
        .collect::<Result<_, _>>()?;
    if mode == Mode::Single && servers.len() > 1 {
        return Err(UrlError::ManyHosts);
    }
    Ok(servers)
}

/// The master's name, and the database.
fn parse_path(path: &str, mode: Mode) -> Result<(String, i64), UrlError> {
    let (master, database) = match mode {
        Mode::Single => ("", path),
        Mode::Sentinel => path.split_once('/').unwrap_or((path, "")),
        Mode::Cluster if path.is_empty() => ("", ""),
        Mode::Cluster => return Err(UrlError::ClusterDatabase),
    };
    if mode == Mode::Sentinel && master.is_empty() {
        return Err(UrlError::NoMaster);
    }
    if database.contains('/') {
        return Err(UrlError::Rest);
    }
    let number = match database {
        "" => Some(0),
        text => text.parse().ok().filter(|number| *number >= 0),
    };
    let database = number.ok_or(UrlError::Database)?;
    Ok((master.to_owned(), database))
}

fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or(UrlError::Encoding)?);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a URL says, without its secret, in one line.
    fn told(url: &str) -> String {
        let parsed = parse(url).unwrap();
        let servers: Vec<_> = parsed.servers.iter().map(ToString::to_string).collect();
        format!(
            "{:?} tls={} {}:{} {} {:?} {}",
            parsed.mode,
            parsed.tls,
            parsed.username.as_deref().unwrap_or("-"),
            parsed.password.as_ref().map_or("-", |password| password.as_str()),
            servers.join(" "),
            parsed.master,
            parsed.database
        )
    }

    #[test]
    fn urls_that_are_taken() {
        let cases = [
            ("redis://one", "Single tls=false -:- one:6379 \"\" 0"),
            ("redis://one:7/", "Single tls=false -:- one:7 \"\" 0"),
            ("rediss://[::1]:7/3", "Single tls=true -:- [::1]:7 \"\" 3"),
            ("redis://:secret@one", "Single tls=false -:secret one:6379 \"\" 0"),
            ("redis://ann:p%40s%3As@one", "Single tls=false ann:p@s:s one:6379 \"\" 0"),
            ("redis://ann:p@s?#s@one", "Single tls=false ann:p@s?#s one:6379 \"\" 0"),
            (
                "redis+sentinel://a,b:7/mymaster",
                "Sentinel tls=false -:- a:26379 b:7 \"mymaster\" 0",
            ),
            ("rediss+sentinel://a:1/mymaster/2", "Sentinel tls=true -:- a:1 \"mymaster\" 2"),
            ("redis+cluster://a,b", "Cluster tls=false -:- a:6379 b:6379 \"\" 0"),
            ("rediss+cluster://a:1/", "Cluster tls=true -:- a:1 \"\" 0"),
        ];
        for (url, expected) in cases {
            assert_eq!(told(url), expected, "{url}");
        }
    }

    #[test]
    fn urls_that_are_refused() {
        let cases = [
            ("", UrlError::Scheme),
            ("one:6379", UrlError::Scheme),
            ("http://one", UrlError::Scheme),
            ("redis://", UrlError::NoHost),
            ("redis://ann:secret@", UrlError::NoHost),
            ("redis://one:port", UrlError::Server),
            ("redis://one:0", UrlError::Server),
            ("redis://::1", UrlError::Server),
            ("redis://[::1", UrlError::Server),
            ("redis://[::1]7", UrlError::Server),
            ("redis+cluster://one,,two", UrlError::Server),
            ("redis://one,two", UrlError::ManyHosts),
            ("redis://one/db", UrlError::Database),
            ("redis://one/-1", UrlError::Database),
            ("redis://one/0/1", UrlError::Rest),
            ("redis://one?protocol=resp3", UrlError::Rest),
            ("redis://one/#insecure", UrlError::Rest),
            ("redis+sentinel://one", UrlError::NoMaster),
            ("redis+sentinel://one/", UrlError::NoMaster),
            ("redis+sentinel://one/mymaster/x", UrlError::Database),
            ("redis+cluster://one/1", UrlError::ClusterDatabase),
            ("redis://ann:%zz@one", UrlError::Encoding),
            ("redis://ann:%f@one", UrlError::Encoding),
            ("redis://ann:%ff@one", UrlError::Encoding),
        ];
        for (url, expected) in cases {
            assert_eq!(parse(url).err(), Some(expected), "{url}");
        }
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        let urls = [
            "redis://ann:secret@",
            "redis://ann:secret%@one",
            "http://ann:secret@one",
            "redis://ann:secret/x@one",
            "redis://ann:1/secret@one",
        ];
        for url in urls {
            let error = parse(url).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("secret"), "{url}");
        }
    }
}

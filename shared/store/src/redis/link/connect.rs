//! One attempt to connect, with a new lookup of everything.

use super::error::{self, ConnectTarget, LinkError, LinkErrorKind};
use super::settings::{LoginSource, RedisSettings, Source, TlsFiles};
use super::url::{Mode, ServerAddress};
use futures::stream::{FuturesUnordered, StreamExt as _};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo as _, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisFuture,
    RedisResult, TlsCertificates, Value,
};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// A connection of which every clone may be used at the same time.
#[derive(Clone)]
pub enum RedisConnection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The content of the files.
pub(super) struct Access {
    login: Login,
    sentinel_login: Login,
    /// Present with TLS.
    certificates: Option<TlsCertificates>,
}

#[derive(Default)]
struct Login {
    username: Option<Zeroizing<String>>,
    password: Option<Zeroizing<String>>,
}

/// How often a Cluster's client tries a command, following moved keys and lost nodes, before the error is ours.
const CLUSTER_TRIES: u32 = 4;
const CLUSTER_WAIT_MS: (u64, u64) = (20, 200);
/// Of Redis' list of nodes one may be dead, which is found out only after the first has answered.
const CLUSTER_ROUNDS: u32 = 3;

/// A connection for commands, and the server it leads to.
pub(super) async fn open(
    settings: &RedisSettings,
) -> Result<(RedisConnection, Arc<str>), LinkError> {
    let access = Access::read(settings).await?;
    match settings.mode() {
        Mode::Cluster => {
            let connection = open_cluster(settings, &access).await?;
            Ok((RedisConnection::Cluster(connection), settings.to_string().into()))
        }
        Mode::Single | Mode::Sentinel => {
            let (connection, server) = open_master(settings, &access, None).await?;
            Ok((RedisConnection::Node(connection), server))
        }
    }
}

/// A connection to the server that takes writes.
pub(super) async fn open_master(
    settings: &RedisSettings,
    access: &Access,
    pushes: Option<Arc<dyn AsyncPushSender>>,
) -> Result<(MultiplexedConnection, Arc<str>), LinkError> {
    if settings.mode() == Mode::Sentinel {
        return open_named_by_sentinels(settings, access, pushes).await;
    }
    let mut nobody = LinkError::before_sending(LinkErrorKind::Other, "--store names no server");
    for server in &settings.servers {
        match open_node(settings, access, server, pushes.clone()).await {
            Ok(connection) => return Ok((connection, server.to_string().into())),
            Err(error) => nobody = error,
        }
    }
    Err(nobody)
}

pub(super) async fn open_node(
    settings: &RedisSettings,
    access: &Access,
    server: &ServerAddress,
    pushes: Option<Arc<dyn AsyncPushSender>>,
) -> Result<MultiplexedConnection, LinkError> {
    let config = config(settings);
    let config = match pushes {
        Some(pushes) => config.set_push_sender(pushes),
        None => config,
    };
    let redis = access.login.identify(settings.database);
    connect(settings, access, server, redis, config, &ConnectTarget::server(server)).await
}

/// Asks all Sentinels at once. A Sentinel may be behind, so each master that one of them names is asked for its role, and
/// the first that is one is taken.
async fn open_named_by_sentinels(
    settings: &RedisSettings,
    access: &Access,
    pushes: Option<Arc<dyn AsyncPushSender>>,
) -> Result<(MultiplexedConnection, Arc<str>), LinkError> {
    let asked = settings.servers.iter().map(|sentinel| ask_sentinel(settings, access, sentinel));
    let mut answers: FuturesUnordered<_> = asked.collect();
    let mut tried = Vec::new();
    let mut reason = LinkError::before_sending(
        LinkErrorKind::Unavailable,
        format_args!("Redis at {settings} is away: no Sentinel answers"),
    );
    while let Some(answer) = answers.next().await {
        let master = match answer {
            Ok(master) if tried.contains(&master) => continue,
            Ok(master) => master,
            Err(error) => {
                // The error of a master is more useful than that of an unreachable Sentinel.
                if tried.is_empty() {
                    reason = error;
                }
                continue;
            }
        };
        match open_if_master(settings, access, &master, pushes.clone()).await {
            Ok(connection) => {
                let name = format!("{master} (Sentinel, master {})", settings.master);
                return Ok((connection, name.into()));
            }
            Err(error) => reason = error,
        }
        tried.push(master);
    }
    Err(reason)
}

async fn ask_sentinel(
    settings: &RedisSettings,
    access: &Access,
    sentinel: &ServerAddress,
) -> Result<ServerAddress, LinkError> {
    let target = ConnectTarget { address: sentinel, is_sentinel: true };
    let redis = access.sentinel_login.identify(0);
    let mut connection =
        connect(settings, access, sentinel, redis, config(settings), &target).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(&settings.master);
    let answer: RedisResult<Option<(String, u16)>> =
        within(settings, &target, command.query_async(&mut connection)).await?;
    match answer {
        Ok(Some((host, port))) => Ok(ServerAddress { host, port }),
        Ok(None) => Err(LinkError::before_sending(
            LinkErrorKind::Unavailable,
            format_args!(
                "Redis at {settings} is away: Sentinel {sentinel} knows no master {:?}; check the name in --store",
                settings.master
            ),
        )),
        Err(error) => Err(error::of_connecting(&error, &target)),
    }
}

/// HELLO returns the role, and is the only command for it that needs no permission.
async fn open_if_master(
    settings: &RedisSettings,
    access: &Access,
    server: &ServerAddress,
    pushes: Option<Arc<dyn AsyncPushSender>>,
) -> Result<MultiplexedConnection, LinkError> {
    let mut connection = open_node(settings, access, server, pushes).await?;
    let target = ConnectTarget::server(server);
    let hello = redis::cmd("HELLO");
    let answer: RedisResult<HashMap<String, Value>> =
        within(settings, &target, hello.query_async(&mut connection)).await?;
    let reply = answer.map_err(|error| error::of_connecting(&error, &target))?;
    match reply.get("role") {
        Some(Value::BulkString(role)) if role != b"master" => Err(LinkError::before_sending(
            LinkErrorKind::Unavailable,
            format_args!(
                "Redis at {server} is away: the Sentinels call it the master of {:?} and it is not; a failover is \
                 probably under way",
                settings.master
            ),
        )),
        _ => Ok(connection),
    }
}

async fn open_cluster(
    settings: &RedisSettings,
    access: &Access,
) -> Result<ClusterConnection, LinkError> {
    let addresses = settings.servers.iter().map(|server| access.locate(server));
    let (shortest, longest) = CLUSTER_WAIT_MS;
    let mut builder = ClusterClientBuilder::new(addresses)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(tcp())
        .connection_timeout(settings.connect_timeout)
        .response_timeout(settings.response_timeout)
        .retries(CLUSTER_TRIES)
        .min_retry_wait(shortest)
        .max_retry_wait(longest);
    if let Some(username) = &access.login.username {
        builder = builder.username(username.as_str());
    }
    if let Some(password) = &access.login.password {
        builder = builder.password(password.as_str());
    }
    if let Some(certificates) = &access.certificates {
        builder = builder.certs(certificates.clone());
    }
    let limit = settings.connect_timeout * CLUSTER_ROUNDS;
    let opened = async { builder.build()?.get_async_connection().await };
    let target = ConnectTarget::server(settings);
    match timeout(limit, opened).await {
        Ok(opened) => opened.map_err(|error| error::of_connecting(&error, &target)),
        Err(_) => Err(error::of_silence(&target, limit)),
    }
}

async fn connect(
    settings: &RedisSettings,
    access: &Access,
    server: &ServerAddress,
    redis: RedisConnectionInfo,
    config: AsyncConnectionConfig,
    target: &ConnectTarget<'_>,
) -> Result<MultiplexedConnection, LinkError> {
    let client = access.client(server, redis);
    let opened = async { client?.get_multiplexed_async_connection_with_config(&config).await };
    within(settings, target, opened).await?.map_err(|error| error::of_connecting(&error, target))
}

async fn within<T>(
    settings: &RedisSettings,
    target: &ConnectTarget<'_>,
    work: impl Future<Output = T>,
) -> Result<T, LinkError> {
    let limit = settings.connect_timeout;
    timeout(limit, work).await.map_err(|_| error::of_silence(target, limit))
}

/// Without a limit for connecting: ours goes around it, and has better words.
fn config(settings: &RedisSettings) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(Some(settings.response_timeout))
}

/// Commands are small and wait for their reply, so they are sent at once. A server that vanished without a word is found
/// out also on a connection that is silent, within about twenty seconds.
fn tcp() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

impl Access {
    pub(super) async fn read(settings: &RedisSettings) -> Result<Self, LinkError> {
        let certificates = match &settings.tls {
            Some(files) => Some(read_certificates(files).await?),
            None => None,
        };
        Ok(Self {
            login: Login::read(&settings.login).await?,
            sentinel_login: Login::read(&settings.sentinel_login).await?,
            certificates,
        })
    }

    fn locate(&self, server: &ServerAddress) -> ConnectionAddr {
        let ServerAddress { host, port } = server.clone();
        match self.certificates {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        }
    }

    fn client(&self, server: &ServerAddress, redis: RedisConnectionInfo) -> RedisResult<Client> {
        let info: ConnectionInfo = self.locate(server).into_connection_info()?;
        let info = info.set_tcp_settings(tcp()).set_redis_settings(redis);
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }
}

impl Login {
    async fn read(source: &LoginSource) -> Result<Self, LinkError> {
        Ok(Self {
            username: read_source(source.username.as_ref()).await?,
            password: read_source(source.password.as_ref()).await?,
        })
    }

    fn identify(&self, database: i64) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name()
            .set_db(database);
        if let Some(username) = &self.username {
            info = info.set_username(username.as_str());
        }
        if let Some(password) = &self.password {
            info = info.set_password(password.as_str());
        }
        info
    }
}

async fn read_source(source: Option<&Source>) -> Result<Option<Zeroizing<String>>, LinkError> {
    let path = match source {
        None => return Ok(None),
        Some(Source::Given(text)) => return Ok(Some(text.clone())),
        Some(Source::File(path)) => path,
    };
    let bytes = Zeroizing::new(read(path, LinkErrorKind::Auth).await?);
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(LinkError::before_sending(
            LinkErrorKind::Auth,
            format_args!(
                "{} is empty or not UTF-8; write the user or password into it",
                path.display()
            ),
        ));
    }
    Ok(Some(Zeroizing::new(text.to_owned())))
}

async fn read_certificates(files: &TlsFiles) -> Result<TlsCertificates, LinkError> {
    let root_cert = match &files.ca {
        Some(path) => Some(read(path, LinkErrorKind::Tls).await?),
        None => None,
    };
    let client_tls = match &files.client {
        Some((cert, key)) => Some(ClientTlsConfig {
            client_cert: read(cert, LinkErrorKind::Tls).await?,
            client_key: read(key, LinkErrorKind::Tls).await?,
        }),
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

async fn read(path: &Path, kind: LinkErrorKind) -> Result<Vec<u8>, LinkError> {
    tokio::fs::read(path).await.map_err(|error| {
        LinkError::before_sending(kind, format_args!("cannot read {}: {error}", path.display()))
    })
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Node(connection) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Node(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Node(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "Node",
            Self::Cluster(_) => "Cluster",
        })
    }
}

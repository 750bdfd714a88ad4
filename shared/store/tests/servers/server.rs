use super::certificates::Certificates;
use super::{lifeline, until};
use heliograph_testing::{Port, stress};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult,
};
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One `redis-server`.
pub(crate) struct Server {
    child: Child,
    is_stopped: bool,
    port: Port,
    tls_port: Option<Port>,
    /// Lines of its configuration, as the test gave them.
    lines: Vec<String>,
    arguments: &'static [&'static str],
    directory: TempDir,
}

/// The user that the test itself is; it may do everything, whatever the test does to other users.
const TESTER: &str = "tester";
/// How long a server may take to answer. The client's own limits are too short for a busy machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

impl Server {
    /// An empty server that writes nothing to disk. `lines` go into its configuration, for example `maxmemory 3mb`,
    /// `requirepass secret`, `user ann on >secret ~* &* +@all` or `replicaof 127.0.0.1 7000`.
    pub(crate) async fn start(lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Self::with_arguments(lines, None, &[]).await
    }

    /// With a second port that speaks TLS, and asks for a client's certificate.
    pub(crate) async fn start_tls(certificates: &Certificates, lines: &[&str]) -> Self {
        let port = Port::reserve().unwrap();
        let (certificate, key) = certificates.server();
        let ca = certificates.ca();
        let mut all = vec![
            format!("tls-port {port}"),
            format!("tls-cert-file {}", certificate.display()),
            format!("tls-key-file {}", key.display()),
            format!("tls-ca-cert-file {}", ca.display()),
            "tls-auth-clients yes".to_owned(),
        ];
        all.extend(lines.iter().map(|line| (*line).to_owned()));
        Self::with_arguments(all, Some(port), &[]).await
    }

    pub(super) async fn start_sentinel(lines: Vec<String>) -> Self {
        Self::with_arguments(lines, None, &["--sentinel"]).await
    }

    async fn with_arguments(
        lines: Vec<String>,
        tls_port: Option<Port>,
        arguments: &'static [&'static str],
    ) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), Port::reserve().unwrap());
        let child = spawn(&directory, port.number(), &lines, arguments);
        let is_stopped = false;
        let mut server = Self { child, is_stopped, port, tls_port, lines, arguments, directory };
        assert!(server.is_up().await, "redis-server does not start:\n{}", server.log());
        server
    }

    /// Without TLS.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port.unwrap().number()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Kills it, as a crash or a power cut would.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// And was not started again.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The same server at the same port, without its data. It may be stopped or not.
    pub(crate) async fn restart(&mut self) {
        self.stop();
        let _ = fs::remove_file(self.directory.path().join("dump.rdb"));
        self.start_again().await;
    }

    pub(crate) async fn restart_with(&mut self, lines: &[&str]) {
        self.lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.restart().await;
    }

    /// With the data that it had; it has to be running.
    pub(crate) async fn restart_with_data(&mut self) {
        self.query::<()>(&["SAVE"]).await.unwrap();
        self.stop();
        self.start_again().await;
    }

    /// One that is stopped, with what it saved before.
    pub(crate) async fn restart_stopped(&mut self) {
        self.start_again().await;
    }

    /// Its clients see nothing, not even a closed connection.
    pub(crate) fn pause(&self) {
        stress::hold(self.child.id(), || self.signal("STOP")).unwrap();
    }

    pub(crate) fn resume(&self) {
        stress::release(self.child.id(), || self.signal("CONT")).unwrap();
    }

    /// Its disk is full: it cannot save, and so takes no more writes. The server needs a line `save 3600 1`, as one
    /// that never saves does not care.
    pub(crate) async fn break_disk(&self) {
        // What it saved, or got from its master.
        let _ = fs::remove_file(self.directory.path().join("dump.rdb"));
        // Nothing can be renamed to a directory that is not empty.
        fs::create_dir_all(self.directory.path().join("dump.rdb/full")).unwrap();
        self.save_until("err").await;
    }

    pub(crate) fn is_disk_broken(&self) -> bool {
        self.directory.path().join("dump.rdb").is_dir()
    }

    pub(crate) async fn repair_disk(&self) {
        fs::remove_dir_all(self.directory.path().join("dump.rdb")).unwrap();
        self.save_until("ok").await;
    }

    async fn save_until(&self, status: &str) {
        until("saving ends as expected", async || {
            // Refused while one is under way.
            let _ = self.query::<()>(&["BGSAVE"]).await;
            let told = self.field(&["INFO", "persistence"], "rdb_last_bgsave_status").await;
            told.as_deref() == Some(status)
        })
        .await;
    }

    pub(crate) async fn configure(&self, name: &str, value: &str) {
        self.query::<()>(&["CONFIG", "SET", name, value]).await.unwrap();
    }

    /// As a replica: hears nothing more of its master, which does not know the name that it gives.
    pub(super) async fn part_from_master(&self) {
        self.configure("masteruser", "nobody").await;
        self.configure("masterauth", "nothing").await;
        until("the replica is parted", async || {
            self.query::<()>(&["CLIENT", "KILL", "TYPE", "master"]).await.unwrap();
            let Some(own) = self.replication().await else { return false };
            // The link is down while it gets all data, too, and goes up after that without giving a name again.
            let is = |name, value| own.get(name).is_some_and(|it| it == value);
            is("master_link_status", "down") && is("master_sync_in_progress", "0")
        })
        .await;
    }

    pub(super) async fn rejoin(&self) {
        self.configure("masteruser", "").await;
        self.configure("masterauth", "").await;
    }

    /// As a replica: follows this server, which is a master, and has all that it had a moment ago.
    ///
    /// A link that is up is not enough: it may lead to the master of before, and behind it writes may still be on their
    /// way. A replica that is parted or promoted then lacks them, or everything.
    pub(super) async fn is_synced_with(&self, master: &Self) -> bool {
        let synced = async {
            let of_master = master.replication().await?;
            let own = self.replication().await?;
            let written: u64 = of_master.get("master_repl_offset")?.parse().ok()?;
            let applied: u64 = own.get("slave_repl_offset")?.parse().ok()?;
            let follows = own.get("master_port")? == &master.port().to_string()
                && own.get("master_link_status")? == "up"
                && own.get("master_sync_in_progress")? == "0"
                // Offsets of two histories say nothing about each other.
                && own.get("master_replid")? == of_master.get("master_replid")?;
            Some(of_master.get("role")? == "master" && follows && applied >= written)
        };
        synced.await.unwrap_or(false)
    }

    pub(crate) async fn is_master(&self) -> bool {
        self.field(&["INFO", "replication"], "role").await.as_deref() == Some("master")
    }

    async fn replication(&self) -> Option<HashMap<String, String>> {
        let text: String = self.query(&["INFO", "replication"]).await.ok()?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Some(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// A command as the user of the test, for example `&["SET", "key", "value"]`.
    pub(crate) async fn query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut connection = self.connect().await?;
        let (name, arguments) = words.split_first().unwrap();
        redis::cmd(name).arg(arguments).query_async(&mut connection).await
    }

    pub(crate) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let user = RedisConnectionInfo::default().set_username(TESTER).set_password("any");
        let place = ("127.0.0.1", self.port()).into_connection_info()?;
        connect(place.set_redis_settings(user)).await
    }

    /// A line of the answer to a command such as INFO, by what it begins with.
    pub(crate) async fn field(&self, words: &[&str], field: &str) -> Option<String> {
        let text: String = self.query(words).await.ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }

    async fn start_again(&mut self) {
        self.child = spawn(&self.directory, self.port(), &self.lines, self.arguments);
        self.is_stopped = false;
        assert!(self.is_up().await, "redis-server does not start again:\n{}", self.log());
    }

    /// Whether it answers, or has ended.
    async fn is_up(&mut self) -> bool {
        let port = self.port();
        let child = std::sync::Mutex::new(&mut self.child);
        let ended = || child.lock().unwrap().try_wait().unwrap().is_some();
        until("redis-server answers", async || ended() || answers(port).await).await;
        !ended()
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        stress::keep_if_failing(&format!("redis-{}.log", self.port), || self.log());
    }
}

/// A connection that waits for a busy machine.
pub(crate) async fn connect(to: impl IntoConnectionInfo) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    Client::open(to)?.get_multiplexed_async_connection_with_config(&config).await
}

fn spawn(directory: &TempDir, port: u16, lines: &[String], arguments: &[&str]) -> Child {
    let mut configuration = format!(
        "port {port}\nbind 127.0.0.1\nprotected-mode no\ndir {}\nuser {TESTER} on nopass ~* &* +@all\n",
        directory.path().display()
    );
    // A Sentinel has no data, and knows no line about them.
    if arguments.is_empty() {
        configuration.push_str("save \"\"\nrepl-diskless-sync-delay 0\n");
    }
    configuration.extend(lines.iter().flat_map(|line| [line.as_str(), "\n"]));
    let file = directory.path().join("redis.conf");
    fs::write(&file, configuration).unwrap();
    let log = File::options().create(true).append(true).open(directory.path().join("log")).unwrap();
    let mut command = Command::new(program());
    command.arg(file).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    lifeline::tie(&mut command);
    command.spawn().unwrap()
}

fn program() -> PathBuf {
    let on_path = || {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.exists())
    };
    let program = env::var_os("REDIS_SERVER").map(PathBuf::from).or_else(on_path);
    program.expect(
        "no redis-server: run `scripts/tools redis-server` and set REDIS_SERVER to what it prints",
    )
}

/// Any answer will do: a server that asks for a password is up, one that loads its data is not yet.
async fn answers(port: u16) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 8];
        let length = stream.read(&mut answer).await?;
        Ok::<_, std::io::Error>(length > 0 && !answer.starts_with(b"-LOADING"))
    };
    tokio::time::timeout(Duration::from_secs(1), asked).await.is_ok_and(|up| up.unwrap_or(false))
}

//! The programs over Redis: manifests, a key ring, a translator, distributors, Envoys, and what an operator runs.

use crate::harness::{
    backend, envoy, gateway_with, get, is_alive, replace, route, send, service, write,
};
use crate::servers::{lifeline, until};
use crate::tls::Identity;
use crate::traffic::ask;
use heliograph_testing::{Port, program};
use hyper::StatusCode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

/// One fleet, `default/web`, and all that is needed to serve it. Its route leads to blue.
pub(crate) struct Site {
    /// The port of its HTTP listener. All Envoys listen there: any of them may answer.
    pub(crate) http: u16,
    pub(crate) https: u16,
    /// Whom the HTTPS listener shows itself as.
    pub(crate) identity: Identity,
    /// The flags that lead to the store.
    store: Vec<String>,
    log_level: &'static str,
    backends: [u16; 2],
    scratch: TempDir,
}

/// A running translator, distributor or Envoy.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) admin: u16,
    /// Address of the xDS port, where proxies connect, if it is a distributor.
    pub(crate) xds: u16,
    child: Child,
    log: PathBuf,
}

/// What the programs call the fleet.
pub(crate) const FLEET: &str = "default/web";
/// What a distributor's `/fleets` says once the only fleet is in memory.
pub(crate) const LOADED: &str = "\"loaded\":true";
/// The name that the certificate is for.
pub(crate) const HOST: &str = "web.test";

/// The versions of the resources that an Envoy has, by type.
pub(crate) type Versions = BTreeMap<&'static str, Vec<String>>;

/// The types of which an Envoy shows versions, as its admin port calls them.
const DUMPED: [&str; 4] =
    ["dynamic_active_clusters", "dynamic_active_secrets", "dynamic_listeners", ROUTES];
const ROUTES: &str = "dynamic_route_configs";

impl Site {
    /// `store` is where Redis is.
    pub(crate) async fn new(store: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("manifests")).unwrap();
        let site = Self {
            http: Port::reserve().unwrap().number(),
            https: Port::reserve().unwrap().number(),
            identity: Identity::new("certificate", HOST),
            store: vec!["--store".to_owned(), store.to_owned()],
            log_level: "info",
            backends: [backend("blue").await, backend("green").await],
            scratch,
        };
        assert!(
            site.helio(&["store", "keys", "new", site.keys().to_str().unwrap()]).status.success()
        );
        write(&site.manifests(), "gateway.yaml", &gateway(site.http, site.https));
        write(&site.manifests(), "secret.yaml", &site.identity.secret);
        site.point_services_at("blue", "green");
        site.route_to("blue");
        site
    }

    /// The programs log everything there is.
    pub(crate) fn chatty(mut self) -> Self {
        self.log_level = "trace";
        self
    }

    /// More flags of the programs for their way to the store.
    pub(crate) fn with_flags(mut self, flags: &[(&str, &Path)]) -> Self {
        for (flag, file) in flags {
            self.store.extend([(*flag).to_owned(), file.to_str().unwrap().to_owned()]);
        }
        self
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.file("manifests")
    }

    /// The key ring.
    pub(crate) fn keys(&self) -> PathBuf {
        self.file("keys.yaml")
    }

    /// In the directory of the site.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The other service keeps a route of its own, so that nothing is removed.
    pub(crate) fn route_to(&self, service: &str) {
        let other = if service == "blue" { "green" } else { "blue" };
        write(&self.manifests(), "route.yaml", &route(&[("/", service), ("/other", other)]));
    }

    /// Which backend is the one endpoint of the Service blue, and which of the Service green.
    pub(crate) fn point_services_at(&self, blue: &str, green: &str) {
        let port = |name| self.backends[usize::from(name == "green")];
        let services = service("blue", port(blue)) + &service("green", port(green));
        replace(&self.manifests(), "backends.yaml", &services);
    }

    /// The Gateway has one more listener, for HTTP.
    pub(crate) fn listen_also_on(&self, port: u16) {
        let more = format!("  - {{name: more, protocol: HTTP, port: {port}}}\n");
        let gateway = gateway(self.http, self.https) + &more;
        replace(&self.manifests(), "gateway.yaml", &gateway);
    }

    pub(crate) async fn until_answered_by(&self, backend: &str) {
        let expected = format!("{backend} {HOST} /");
        // An Envoy that was not told of its listeners for 15 seconds is live without them.
        until("the answer comes from there", async || {
            ask(self.http, "/").await.is_ok_and(|answer| answer.body == expected)
        })
        .await;
    }

    /// Asks an HTTPS listener, as a client that trusts the site's certificate alone.
    pub(crate) async fn ask_secure(&self) -> Result<String, String> {
        self.identity.ask(self.https, HOST).await.map_err(|error| error.to_string())
    }

    /// Runs a command of helio's that ends by itself. What leads to the store it has from variables, as not every command
    /// has the flags.
    pub(crate) fn helio(&self, args: &[&str]) -> Output {
        let store = self.store.chunks(2).map(|pair| {
            let variable = pair[0].replace("--", "HELIO_").replace('-', "_").to_uppercase();
            (variable, &pair[1])
        });
        Command::new(program("helio"))
            .args(args)
            .envs(store)
            .env("HELIO_STORE_KEYS", self.keys())
            .env("HELIO_LOG_LEVEL", self.log_level)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub(crate) async fn translator(&self) -> Program {
        self.translator_with_flags(&[]).await
    }

    pub(crate) async fn translator_with_flags(&self, flags: &[&str]) -> Program {
        let mut command = self.program("translator", &self.keys());
        command.arg("--dir").arg(self.manifests()).args(flags);
        self.start("translator", command).await
    }

    pub(crate) async fn distributor(&self, name: &str) -> Program {
        self.distributor_with(name, &self.keys(), 0).await
    }

    /// With a key ring and a port of its own.
    pub(crate) async fn distributor_with(&self, name: &str, keys: &Path, xds: u16) -> Program {
        let mut command = self.program("distributor", keys);
        command.args(["--xds-address", &format!("127.0.0.1:{xds}"), "--replica", name]);
        self.start(name, command).await
    }

    /// With a snapshot cache, which it finds again when it starts under the same name.
    pub(crate) async fn distributor_with_cache(&self, name: &str, xds: u16) -> Program {
        let mut command = self.program("distributor", &self.keys());
        command.args(["--xds-address", &format!("127.0.0.1:{xds}"), "--replica", name]);
        command.arg("--snapshot-cache").arg(self.file(&format!("{name}.cache")));
        self.start(name, command).await
    }

    /// With more flags.
    #[allow(dead_code)] // The program `isolation` uses it.
    pub(crate) async fn distributor_with_flags(&self, name: &str, flags: &[&str]) -> Program {
        let mut command = self.program("distributor", &self.keys());
        command.args(["--xds-address", "127.0.0.1:0", "--replica", name]).args(flags);
        self.start(name, command).await
    }

    /// The same distributor, as it starts now.
    pub(crate) async fn restart(&self, distributor: &mut Program) {
        let (name, xds) = (distributor.name.clone(), distributor.xds);
        assert!(distributor.end().await.success(), "{}", distributor.log());
        *distributor = self.distributor_with(&name, &self.keys(), xds).await;
    }

    /// An Envoy as the example has it, but for its ports.
    pub(crate) async fn envoy(&self, name: &str, distributor: &Program) -> Program {
        self.envoy_with(name, distributor, "").await
    }

    /// The same, with more in its bootstrap.
    pub(crate) async fn envoy_with(
        &self,
        name: &str,
        distributor: &Program,
        more: &str,
    ) -> Program {
        self.envoy_of(name, std::slice::from_ref(distributor), "DELTA_GRPC", more).await
    }

    /// An Envoy that may go to any of these, and speaks this of the two protocols.
    pub(crate) async fn envoy_of(
        &self,
        name: &str,
        distributors: &[Program],
        protocol: &str,
        more: &str,
    ) -> Program {
        self.envoy_from(name, &bootstrap(name, distributors, protocol, more)).await
    }

    /// An Envoy that starts with this.
    pub(crate) async fn envoy_from(&self, name: &str, bootstrap: &str) -> Program {
        let (file, address) =
            (self.file(&format!("{name}.yaml")), self.file(&format!("{name}.admin")));
        fs::write(&file, bootstrap).unwrap();
        let mut command = Command::new(envoy());
        command.arg("--config-path").arg(file).arg("--admin-address-path").arg(&address);
        command.args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]);
        let mut envoy = Program::spawn(name, command, self.file(&format!("{name}.log")));
        until("Envoy listens", async || port_in(&address, "").is_some() || !envoy.is_alive()).await;
        envoy.admin = port_in(&address, "").unwrap();
        envoy
    }

    fn program(&self, name: &str, keys: &Path) -> Command {
        let mut command = Command::new(program(name));
        command.args(&self.store).arg("--store-keys").arg(keys);
        command.args(["--admin-address", "127.0.0.1:0", "--log-level", self.log_level]);
        command
    }

    async fn start(&self, name: &str, command: Command) -> Program {
        let log = self.file(&format!("{name}.log"));
        let mut program = Program::spawn(name, command, log);
        let listens = |program: &Program| port_in(&program.log, " admin=").is_some();
        until("the program listens", async || listens(&program) || !program.is_alive()).await;
        program.admin = port_in(&program.log, " admin=").unwrap();
        program.xds = port_in(&program.log, " xds=").unwrap_or_default();
        program
    }
}

impl Program {
    fn spawn(name: &str, mut command: Command, log: PathBuf) -> Self {
        let output = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        lifeline::tie(&mut command);
        let child = command.spawn().unwrap();
        Self { name: name.to_owned(), admin: 0, xds: 0, child, log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The lines of its log with this text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    pub(crate) async fn until_logged(&self, text: &str) {
        until(text, async || !self.lines(text).is_empty()).await;
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_alive(&self) -> bool {
        is_alive(self.child.id())
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        get(self.admin, path).await.unwrap().1
    }

    /// Of a translator or a distributor.
    pub(crate) async fn is_ready(&self) -> bool {
        get(self.admin, "/readyz").await.is_ok_and(|(status, _)| status == StatusCode::OK)
    }

    pub(crate) async fn until_ready(&self) {
        let what = format!("{} is ready", self.name);
        until(&what, async || self.is_ready().await || !self.is_alive()).await;
        assert!(self.is_alive(), "{} has ended", self.name);
    }

    /// The sum of all metrics of a translator or a distributor that begin so.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.page("/metrics").await;
        let values = page.lines().filter(|line| line.starts_with(name));
        values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// Waits until an Envoy has its whole configuration.
    pub(crate) async fn until_live(&self) {
        let live = async || get(self.admin, "/ready").await.is_ok_and(|(_, body)| body == "LIVE\n");
        until("Envoy has its configuration", async || live().await || !self.is_alive()).await;
        assert!(self.is_alive(), "{} has ended", self.name);
    }

    /// The sum of all counters of an Envoy whose name has this in it.
    pub(crate) async fn counted(&self, part: &str) -> u64 {
        let page = self.page(&format!("/stats?filter={part}")).await;
        page.lines().map(|line| line.rsplit_once(": ").unwrap().1.parse::<u64>().unwrap()).sum()
    }

    /// How many requests an Envoy answered with an error of its own or of a backend, but for those at its admin port,
    /// which answers so until it is ready.
    pub(crate) async fn failures(&self) -> u64 {
        let page = self.page("/stats?filter=downstream_rq_5xx").await;
        // Each is counted for its listener as well.
        let is_counted = |line: &&str| line.starts_with("http.") && !line.contains("admin.");
        let lines = page.lines().filter(is_counted);
        lines.map(|line| line.rsplit_once(": ").unwrap().1.parse::<u64>().unwrap()).sum()
    }

    pub(crate) async fn versions(&self) -> Versions {
        let mut versions = Versions::new();
        for kind in DUMPED {
            let page = self.page(&format!("/config_dump?resource={kind}")).await;
            let mut of_kind = Vec::new();
            find_versions(&serde_json::from_str(&page).unwrap(), &mut of_kind);
            of_kind.sort();
            versions.insert(kind, of_kind);
        }
        versions
    }

    /// Waits until an Envoy has these.
    pub(crate) async fn until_versions(&self, versions: &Versions) {
        let what = format!("{} has the versions that it should", self.name);
        until(&what, async || self.versions().await == *versions).await;
    }

    /// Waits until every route table of an Envoy is another than before: they come one by one.
    pub(crate) async fn until_other_routes(&self, before: &Versions) {
        let what = format!("{} has other routes", self.name);
        until(&what, async || {
            let now = self.versions().await;
            now[ROUTES].iter().all(|version| !before[ROUTES].contains(version))
        })
        .await;
    }

    /// No Envoy may see less than it had, or something that it does not take.
    pub(crate) async fn assert_undisturbed(&self) {
        for part in ["cluster_removed", "listener_removed", "update_rejected"] {
            assert_eq!(self.counted(part).await, 0, "{part} of {}", self.name);
        }
    }

    /// Ends it without a word.
    pub(crate) async fn kill(&mut self) {
        send("KILL", self.child.id());
        self.ended().await;
    }

    /// Asks it to end, and waits.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        send("TERM", self.child.id());
        self.ended().await
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        until(&what, async || !self.is_alive()).await;
        self.child.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read(&self.log).unwrap_or_default();
            let end = &log[log.len().saturating_sub(10_000)..];
            println!("{}:\n{}", self.name, String::from_utf8_lossy(end));
        }
    }
}

/// What an Envoy starts with that the example has but for its ports, with more at its end.
pub(crate) fn bootstrap(
    name: &str,
    distributors: &[Program],
    protocol: &str,
    more: &str,
) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/envoy.yaml");
    let bootstrap = fs::read_to_string(example)
        .unwrap()
        .replace("my-envoy", name)
        .replace("DELTA_GRPC", protocol)
        .replace("port_value: 9901", "port_value: 0");
    let (start, last) = bootstrap.split_at(bootstrap.rfind("- endpoint:").unwrap());
    let endpoint = |it: &Program| last.replace("18000", &it.xds.to_string());
    // Each stands below the one before, as far in.
    let endpoints: Vec<_> = distributors.iter().map(endpoint).collect();
    let indent = " ".repeat(start.len() - start.rfind('\n').unwrap() - 1);
    start.to_owned() + &endpoints.join(&indent) + more
}

/// What a command printed, for people and for pipes.
pub(crate) fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// The port of the first address in a file, behind some text.
fn port_in(file: &Path, before: &str) -> Option<u16> {
    let text = fs::read_to_string(file).ok()?;
    let (_, rest) = text.split_once(&format!("{before}127.0.0.1:"))?;
    rest.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

fn find_versions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let version = fields.get("version_info").and_then(Value::as_str);
            found.extend(version.map(str::to_owned));
            fields.values().for_each(|value| find_versions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_versions(value, found)),
        _ => {}
    }
}

fn gateway(http: u16, https: u16) -> String {
    let spec = format!(
        "listeners:
  - {{name: http, protocol: HTTP, port: {http}}}
  - {{name: https, protocol: HTTPS, port: {https}, tls: {{certificateRefs: [{{name: certificate}}]}}}}"
    );
    gateway_with("web", &spec)
}

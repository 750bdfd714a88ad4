//! The program as people call it: what it prints, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cli/kubeconfig.rs"]
mod kubeconfig;

use heliograph_testing::Port;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn helio(args: &[&str]) -> Outcome {
    helio_with(args, &[])
}

fn helio_with(args: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_helio"))
        .args(args)
        .env_remove("ENVOY")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Outcome {
    /// One line that says what is wrong, and a failure.
    fn is_refused_with(&self, expected: &str) {
        assert_eq!(self.stderr.lines().count(), 1, "not one line: {}", self.stderr);
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert!(self.stderr.contains(expected), "{:?} is not in {}", expected, self.stderr);
        assert_eq!(self.code, Some(1));
        assert_eq!(self.stdout, "");
    }
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

fn examples() -> PathBuf {
    example("quickstart")
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

const BROKEN: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: [a\n";

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let scratch = directory(&[]);
    let missing = path(&scratch, "missing");
    helio(&["standalone", "--dir", &missing]).is_refused_with(&format!("{missing} does not exist"));
    helio(&["standalone", "--dir", &missing, "--status"]).is_refused_with("does not exist");
}

#[test]
fn a_broken_directory_is_refused_with_file_and_line() {
    let scratch = directory(&[
        ("a.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"),
        ("b.yaml", BROKEN),
    ]);
    let dir = path(&scratch, "");
    helio(&["standalone", "--dir", &dir]).is_refused_with("b.yaml line ");
    fs::write(scratch.path().join("c.yaml"), BROKEN).unwrap();
    helio(&["standalone", "--dir", &dir]).is_refused_with("(and 1 more like it)");
}

#[test]
fn a_port_in_use_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let scratch = directory(&[]);
    let dir = path(&scratch, "");
    for (flag, other) in
        [("--admin-address", "--xds-address"), ("--xds-address", "--admin-address")]
    {
        let outcome = helio(&["standalone", "--dir", &dir, flag, &address, other, "127.0.0.1:0"]);
        outcome.is_refused_with(&format!("{address} is in use"));
        assert!(outcome.stderr.contains(flag), "{}", outcome.stderr);
    }
}

#[test]
fn one_address_for_two_purposes_is_refused() {
    let scratch = directory(&[]);
    let dir = path(&scratch, "");
    let address = "127.0.0.1:18999";
    let args = ["standalone", "--dir", &dir, "--admin-address", address, "--xds-address", address];
    helio(&args).is_refused_with("the same");
}

#[test]
fn an_envoy_that_is_not_there_is_refused() {
    let scratch = directory(&[]);
    let addresses = ["--xds-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"];
    let dir = path(&scratch, "");
    let start = [&["standalone", "--dir", &dir, "--envoy"], &addresses[..]].concat();
    helio_with(&start, &[("PATH", "")]).is_refused_with("no envoy on PATH");
    // An empty variable is as good as none.
    helio_with(&start, &[("PATH", ""), ("ENVOY", "")]).is_refused_with("no envoy on PATH");
    helio_with(&start, &[("ENVOY", "/nonexistent/envoy")])
        .is_refused_with("/nonexistent/envoy is not a program");
    helio_with(&start, &[("ENVOY", "/bin/false")])
        .is_refused_with("/bin/false is not an Envoy: point --envoy-binary or ENVOY at one");
}

#[test]
fn settings_come_from_flags_environment_and_file() {
    let scratch = directory(&[(
        "config.yaml",
        "dir: /from/file\nxds-address: 127.0.0.1:1\nadmin-address: 127.0.0.1:2\n",
    )]);
    let config = path(&scratch, "config.yaml");
    let outcome = helio_with(
        &["standalone", "--config", &config, "--print-config", "--xds-address", "127.0.0.1:3"],
        &[("HELIO_ADMIN_ADDRESS", "127.0.0.1:4")],
    );
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for expected in ["dir: /from/file", "xds-address: 127.0.0.1:3", "admin-address: 127.0.0.1:4"] {
        assert!(outcome.stdout.contains(expected), "{expected:?} is not in {}", outcome.stdout);
    }
    fs::write(scratch.path().join("config.yaml"), "dirr: /from/file\n").unwrap();
    let outcome = helio(&["standalone", "--config", &config]);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("did you mean \"dir\"?"), "{}", outcome.stderr);
    assert_ne!(outcome.code, Some(0));
}

#[test]
fn status_is_a_table_for_people_and_data_for_programs() {
    let dir = examples();
    let dir = dir.to_str().unwrap();
    let table = helio(&["standalone", "--dir", dir, "--status"]);
    assert_eq!(table.code, Some(0), "{}", table.stderr);
    assert!(table.stdout.starts_with("OBJECT "), "{}", table.stdout);
    assert!(table.stdout.contains("HTTPRoute default/hello"), "{}", table.stdout);
    let json = helio(&["standalone", "--dir", dir, "--status", "-o", "json"]);
    let page: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let objects = page["objects"].as_array().unwrap();
    let gateway = objects.iter().find(|object| object["kind"] == "Gateway").unwrap();
    assert_eq!(gateway["status"]["conditions"][0]["status"], "True", "{gateway}");
}

#[test]
fn translate_prints_resources_in_a_stable_order() {
    let dir = examples();
    let dir = dir.to_str().unwrap();
    let yaml = helio(&["translate", dir]);
    assert_eq!((yaml.code, yaml.stderr.as_str()), (Some(0), ""));
    assert_eq!(yaml.stdout, helio(&["translate", dir]).stdout);
    let json = helio(&["translate", dir, "-o", "json"]);
    let translation: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let fleet = &translation["fleets"]["default/web"];
    for kind in ["cluster", "endpoints", "listener", "route"] {
        assert!(!fleet[kind].as_array().unwrap().is_empty(), "no {kind} in {fleet}");
    }
    // The files of a directory, one by one and in another order, are the same.
    let files = ["route.yaml", "gateway.yaml", "backends.yaml"].map(|name| format!("{dir}/{name}"));
    let [route, gateway, backends] = files.each_ref().map(String::as_str);
    assert_eq!(helio(&["translate", route, gateway, backends]).stdout, yaml.stdout);
}

#[test]
fn translate_says_what_it_cannot_read_and_prints_the_rest() {
    let scratch = directory(&[
        ("broken.yaml", BROKEN),
        ("other.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"),
    ]);
    let broken = path(&scratch, "broken.yaml");
    let dir = examples();
    let outcome =
        helio(&["translate", dir.to_str().unwrap(), &broken, &path(&scratch, "other.yaml")]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stdout.contains("default/web"), "{}", outcome.stdout);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", outcome.stderr);
    assert!(lines[0].starts_with(&format!("error: {broken} line ")), "{}", outcome.stderr);
    assert!(lines[1].starts_with("ignored: "), "{}", outcome.stderr);

    let missing = path(&scratch, "missing.yaml");
    helio(&["translate", &missing]).is_refused_with(&format!("{missing} does not exist"));
}

#[test]
fn translate_tells_problems_with_the_object_that_has_them() {
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: lost}\nspec:\n  parentRefs: [{name: web}]\n  rules: [{backendRefs: [{name: nowhere, port: 80}]}]\n";
    let scratch = directory(&[("lost.yaml", route)]);
    let dir = examples();
    let outcome = helio(&["translate", dir.to_str().unwrap(), &path(&scratch, "lost.yaml")]);
    assert_eq!(outcome.code, Some(0), "a problem of an object is no failure of the program");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("problem: HTTPRoute default/lost"), "{}", outcome.stderr);
}

const LOST: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: lost}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: nowhere, port: 80}]}]
";

#[test]
fn check_says_object_by_object_what_is_wrong() {
    let dir = examples();
    let dir = dir.to_str().unwrap();
    for fine in [dir, example("tcp").to_str().unwrap()] {
        let fine = helio(&["check", fine]);
        assert_eq!((fine.code, fine.stdout.as_str()), (Some(0), ""), "{}", fine.stderr);
        assert!(fine.stderr.ends_with(" objects, nothing is wrong\n"), "{}", fine.stderr);
    }

    // A GatewayClass of another controller is no problem; one that no controller accepts is.
    let others = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other}
spec: {gatewayClassName: other, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: stray}
spec: {gatewayClassName: nobodys, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
";
    let files = [
        ("lost.yaml", LOST),
        ("broken.yaml", BROKEN),
        ("others.yaml", others),
        ("again.yaml", LOST),
    ];
    let scratch = directory(&files);
    let wrong = helio(&["check", dir, &path(&scratch, "")]);
    assert_eq!(wrong.code, Some(1));
    let lines: Vec<&str> = wrong.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{}", wrong.stdout);
    assert!(lines[0].starts_with("OBJECT "), "{}", wrong.stdout);
    let has =
        |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(
        has(&["Gateway default/stray", "GatewayClass nobodys does not exist"]),
        "{}",
        wrong.stdout
    );
    assert!(
        has(&["HTTPRoute default/lost", "parent web", "BackendNotFound", "nowhere"]),
        "{}",
        wrong.stdout
    );
    assert!(has(&["broken.yaml line ", "Unreadable"]), "{}", wrong.stdout);
    assert!(has(&["lost.yaml", "Duplicate"]), "{}", wrong.stdout);
    let summary = "4 problems; 1 document is of a kind that is not translated\n";
    assert!(wrong.stderr.ends_with(summary), "{}", wrong.stderr);

    let json = helio(&["check", dir, &path(&scratch, ""), "-o", "json"]);
    assert_eq!(json.code, Some(1));
    let findings: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(findings["problems"].as_array().unwrap().len(), 4, "{findings}");
    assert_eq!(findings["ignored"].as_array().unwrap().len(), 1, "{findings}");
}

#[test]
fn colours_are_for_terminals() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let scratch = directory(&[("lost.yaml", LOST)]);
    let file = path(&scratch, "lost.yaml");
    let on_a_terminal = |environment: &[(&str, &str)]| {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let end = fs::OpenOptions::new().write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_helio"));
        command.args(["check", &file]).env_remove("NO_COLOR").env("TERM", "xterm");
        let mut child = command.envs(environment.iter().copied()).stdout(end).spawn().unwrap();
        drop(command);
        // It is short enough to wait there until it is read.
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let mut text = [0; 4096];
        let length = fs::File::from(terminal).read(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert!(on_a_terminal(&[]).contains("\x1b[31m"));
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let text = on_a_terminal(&[plain]);
        assert!(text.starts_with("OBJECT ") && !text.contains('\x1b'), "{plain:?}: {text}");
    }
    assert!(!helio(&["check", &file]).stdout.contains('\x1b'));
}

#[test]
fn shells_can_complete() {
    for (shell, expected) in
        [("bash", "complete -F _helio"), ("zsh", "#compdef helio"), ("fish", "complete -c helio")]
    {
        let outcome = helio(&["completion", shell]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains(expected), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("rollback"), "{shell}");
    }
}

#[test]
fn nobody_to_ask_is_one_clear_line() {
    let scratch = directory(&[]);
    let home = [("HOME", path(&scratch, "")), ("KUBECONFIG", path(&scratch, "none"))];
    let home: Vec<_> = home.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for command in [&["status"][..], &["proxies"], &["config", "a"], &["collect"]] {
        helio_with(command, &home).is_refused_with("set --admin http://HOST:PORT");
    }
    let nobody = Port::reserve().unwrap();
    let closed = format!("127.0.0.1:{nobody}");
    let outcome = helio(&["status", "--admin", &closed]);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let silent = format!("{closed} did not answer: cannot connect: Connection refused");
    assert!(lines[0].starts_with(&silent), "{}", outcome.stderr);
    assert_eq!((lines[1], outcome.code), ("error: no program responded", Some(1)));
    let outcome = helio(&["proxies", "--admin", "https://a:1"]);
    assert!(outcome.stderr.contains("write http://HOST:PORT"), "{}", outcome.stderr);
    assert_eq!(outcome.code, Some(2));
}

/// An admin port that has these pages, and no answer for those without a text. Where it is.
fn admin_port(pages: &'static [(&str, Option<&str>)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || answer(connection, pages));
        }
    });
    address
}

fn answer(connection: TcpStream, pages: &[(&str, Option<&str>)]) -> Option<()> {
    let mut lines = BufReader::new(connection.try_clone().ok()?).lines();
    while let Some(Ok(request)) = lines.next() {
        let path = request.split_whitespace().nth(1)?;
        while !lines.next()?.ok()?.is_empty() {}
        let page = pages.iter().find(|(page, _)| path.starts_with(page));
        let (status, text) = match page {
            Some((_, Some(text))) => ("200 OK", *text),
            Some((_, None)) => continue,
            None => ("404 Not Found", ""),
        };
        let length = text.len();
        write!(&connection, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}").ok()?;
    }
    None
}

#[test]
fn collect_keeps_what_came_of_a_program_that_hangs_at_the_rest() {
    let fleets = r#"{"a/one":{"loaded":true},"a/slow":{"loaded":true},"a/two":{"loaded":true}}"#;
    let told = r#"{"head":"0.1.1","resources":[]}"#;
    let port = admin_port(Box::leak(Box::new([
        ("/readyz", Some("ready\n")),
        ("/metrics", None),
        ("/fleets", Some(fleets)),
        ("/status", Some("[]")),
        ("/snapshot/a/slow", None),
        ("/snapshot/", Some(told)),
        ("/clients", None),
    ])));
    let hangs = admin_port(&[("/", None)]);
    let scratch = directory(&[]);
    let (file, ports) = (path(&scratch, "bundle.tar.gz"), format!("{port},{hangs}"));
    let outcome = helio(&["collect", "--admin", &ports, "--timeout", "1s", "--file", &file]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let archive = fs::File::open(&file).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        (path, io::read_to_string(&mut entry).unwrap())
    });
    let files: Vec<_> = files.collect();
    let of = |end: &str| {
        files.iter().find(|(path, _)| path.ends_with(end)).map(|(_, text)| text.as_str())
    };
    assert_eq!(of("/readyz.txt"), Some("ready\n"));
    assert_eq!(of("/metrics.txt"), Some("it cannot be read: no answer within 1s\n"));
    assert_eq!(of("/objects.json"), Some("[]"));
    for fleet in ["/fleets/a/one.json", "/fleets/a/two.json"] {
        assert!(of(fleet).unwrap().contains("0.1.1"), "{fleet}");
    }
    assert!(of("/fleets/a/slow.json").unwrap().contains("no answer within 1s"));
    for said in [
        format!("{port} did not answer: metrics.txt: no answer within 1s"),
        format!("{port} did not answer: 1 of 3 fleets: no answer within 1s"),
        format!("{port} did not answer: no answer within 6s"),
        format!("{hangs} did not answer: no answer within 1s"),
    ] {
        assert_eq!(outcome.stderr.matches(&said).count(), 1, "{said} in {}", outcome.stderr);
        let (name, why) = said.split_once(" did not answer: ").unwrap();
        let about = of("/about.json").unwrap();
        assert!(about.contains(name) && about.contains(why), "{said} in {about}");
    }
}

/// Kills what is still there at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nobody_who_reads_what_goes_wrong_is_no_reason_to_end() {
    // What a pipe is whose reader is gone.
    let unread = || io::pipe().unwrap().1;
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio"));
    let status = command.args(["check", "/nowhere"]).stderr(unread()).status().unwrap();
    assert_eq!(status.code(), Some(1));

    let port = Port::reserve().unwrap();
    let port = format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio"));
    command.args(["standalone", "--xds-address=127.0.0.1:0", "--admin-address", &port, "--dir"]);
    let child = command.arg(examples()).stdout(Stdio::null()).stderr(unread()).spawn().unwrap();
    let mut running = Running(child);
    let started = Instant::now();
    while helio(&["status", "--admin", &port]).code != Some(0) {
        assert!(running.0.try_wait().unwrap().is_none(), "it ended");
        assert!(started.elapsed() < Duration::from_secs(60), "it does not serve");
    }
}

#[test]
fn translate_never_prints_a_private_key() {
    let key = rcgen::generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    let (certificate, private_key) = (key.cert.pem(), key.signing_key.serialize_pem());
    let indent = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let secret = format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: tls}}\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indent(&certificate),
        indent(&private_key),
    );
    let gateway = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: h}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: h
  listeners:
  - {name: https, protocol: HTTPS, port: 8443, tls: {certificateRefs: [{name: tls}]}}
";
    let scratch = directory(&[("secret.yaml", &secret), ("gateway.yaml", gateway)]);
    let outcome = helio(&["translate", &path(&scratch, "")]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(outcome.stdout.contains("private_key"), "{}", outcome.stdout);
    let body = private_key.lines().nth(1).unwrap();
    // As it is, and as bytes are written in JSON.
    for hidden in [body, "PRIVATE KEY", "LS0tLS1CRUdJTiBQUklWQVRF"] {
        assert!(!outcome.stdout.contains(hidden), "{}", outcome.stdout);
    }
}

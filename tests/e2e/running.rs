//! A helio without Envoys: how it ends, what it logs, what its admin port answers.

use crate::harness::{Helio, get, until, write};
use hyper::StatusCode;
use std::fs;
use tokio::net::TcpStream;

const HUP: u32 = 1;
const INT: u32 = 2;
const TERM: u32 = 15;

fn service(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{{port: {port}}}]}}\n"
    )
}

#[tokio::test]
async fn a_signal_ends_it_also_while_it_reads() {
    let mut helio = Helio::without_envoys(|directory| {
        let document = service(1) + "---\n";
        write(directory, "0.yaml", &document.repeat(4 * 1024 * 1024 / document.len()));
        // Far more than can be read before the deadline.
        for number in 1..100 {
            let link = directory.join(format!("{number}.yaml"));
            fs::hard_link(directory.join("0.yaml"), link).unwrap();
        }
    });
    // The shell that starts it catches INT, too, but not TERM.
    let catches = |signal| helio.has_signal("SigCgt", signal);
    until("it catches signals", || async { catches(INT) && catches(TERM) }).await.unwrap();
    assert!(helio.end("INT").await.success(), "{}", helio.log());
    assert!(!helio.log().contains("serving"), "it was done reading: {}", helio.log());
}

#[tokio::test]
async fn a_closed_terminal_ends_it_unless_it_was_told_to_stay() {
    let mut helio = Helio::without_envoys(|_| {});
    helio.until_logged("serving").await;
    assert!(helio.end("HUP").await.success(), "{}", helio.log());
    let mut helio = Helio::start_with("trap '' HUP;", &[], |_| {});
    helio.until_logged("serving").await;
    assert!(helio.has_signal("SigIgn", HUP), "nohup has no effect");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test]
async fn while_it_drains_its_admin_port_says_so() {
    let mut helio = Helio::start_with("", &["--drain-time", "8s"], |_| {});
    helio.until_ready().await;
    let log = helio.log();
    let xds = log.split("xds=").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut connections = Vec::new();
    for _ in 0..20 {
        connections.push(TcpStream::connect(xds).await.unwrap());
    }
    let says = async |page: &str, expected: &str| {
        get(helio.admin, page).await.is_ok_and(|(_, text)| text.contains(expected))
    };
    let open = "heliograph_distributor_connections 20";
    until("connections", || says("/metrics", open)).await.unwrap();
    helio.signal("TERM");
    until("not ready", || says("/readyz", "awaiting: shutdown")).await.unwrap();
    assert_eq!(get(helio.admin, "/livez").await.unwrap().0, StatusCode::OK);
    // Two tasks hear of it, either one first.
    let closed = || async { TcpStream::connect(xds).await.is_err() };
    until("nobody listens any more", closed).await.unwrap();
    assert!(says("/readyz", "awaiting: shutdown").await, "it has not ended");
    assert!(helio.ended().await.success(), "{}", helio.log());
}

#[tokio::test]
async fn it_logs_what_an_edit_did() {
    let helio = Helio::without_envoys(|directory| write(directory, "a.yaml", &service(1)));
    helio.until_logged("translated 1 object, among them 0 Gateways and 0 routes").await;
    write(&helio.directory(), "a.yaml", &service(2));
    helio.until_logged("translated again: 1 object changed").await;
    write(&helio.directory(), "a.yaml", "kind: [");
    helio.until_logged("a.yaml line 1").await;
    write(&helio.directory(), "a.yaml", &service(2));
    helio.until_logged("a.yaml: has no error any more").await;
    let lost = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: lost}\nspec: {parentRefs: [{name: web}]}\n";
    write(&helio.directory(), "lost.yaml", lost);
    helio.until_logged("HTTPRoute default/lost: Ignored: ").await;
    let log = helio.log();
    let line = log.lines().find(|line| line.contains("Ignored")).unwrap();
    assert!(line.contains("INFO"), "{line}");
    let class = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: h}\nspec: {controllerName: heliograph.dev/gateway-controller}\n---\n";
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web}\nspec:\n  gatewayClassName: h\n  listeners: [{name: http, protocol: HTTP, port: 8080}]\n";
    write(&helio.directory(), "web.yaml", &format!("{class}{gateway}"));
    write(
        &helio.directory(),
        "lost.yaml",
        &lost.replace("]}", "], rules: [{backendRefs: [{name: x, port: 1}]}]}"),
    );
    helio.until_logged("BackendNotFound").await;
    // A change elsewhere does not say it again.
    let edits = || helio.log().matches("translated again").count();
    let before = edits();
    write(&helio.directory(), "a.yaml", &service(3));
    until("the last edit", || async { edits() > before }).await.unwrap();
    let log = helio.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("BackendNotFound")).collect();
    assert!(lines.len() == 1 && lines[0].contains("WARN"), "{log}");
}

#[tokio::test]
async fn the_admin_port_says_what_it_does_not_know() {
    let helio = Helio::without_envoys(|_| {});
    helio.until_logged("translated 0 objects").await;
    let refused = get(helio.admin, "/status?format=xml").await.unwrap();
    let said = "format is not one of json, yaml, text\n".to_owned();
    assert_eq!(refused, (StatusCode::BAD_REQUEST, said));
    assert_eq!(get(helio.admin, "/status?format=yaml").await.unwrap().0, StatusCode::OK);
    let said = "there is no page /nowhere: / lists all pages\n".to_owned();
    assert_eq!(get(helio.admin, "/nowhere").await.unwrap(), (StatusCode::NOT_FOUND, said));
}

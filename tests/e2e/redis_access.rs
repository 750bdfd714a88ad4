//! No Redis, a wrong password, a wrong CA: logged in one line, tried again, and gone once it is repaired.

use crate::redis_site::{LOADED, Program, Site};
use crate::servers::{Certificates, Server, until};
use std::fs;
use std::time::{Duration, Instant};

/// How soon the programs do their work once the fault is repaired. They try again every two seconds at least.
const RECOVERY: Duration = Duration::from_secs(10);
/// How often a program asks for something in vain before its log is looked at: a line for each time would show.
const TRIES: f64 = 10.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_wait_for_a_redis_that_is_not_there() {
    let mut redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    redis.stop();
    let programs = start_in_vain(&site, "Connection refused").await;
    redis.restart().await;
    recover(programs, "Connection refused").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_read_again_until_it_is_right() {
    let user = "user ann on >right ~* &* +@all";
    let redis = Server::start(&["user default off", user]).await;
    let site = Site::new(&redis.url()).await;
    let (username, password) = (site.file("username"), site.file("password"));
    fs::write(&username, "ann\n").unwrap();
    fs::write(&password, "a-good-guess\n").unwrap();
    let flags = [("--store-username-file", &*username), ("--store-password-file", &*password)];
    let site = site.with_flags(&flags);
    let programs =
        start_in_vain(&site, "check --store-username-file and --store-password-file").await;
    for program in &programs {
        assert!(!program.log().contains("a-good-guess"), "a password is in the log");
    }
    fs::write(&password, "right\n").unwrap();
    recover(programs, "--store-password-file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_is_read_again_until_it_is_right() {
    let certificates = Certificates::new();
    let redis = Server::start_tls(&certificates, &[]).await;
    let site = Site::new(&redis.tls_url()).await;
    let ca = site.file("ca.pem");
    fs::copy(Certificates::new().ca(), &ca).unwrap();
    let (certificate, key) = certificates.client();
    let site = site.with_flags(&[
        ("--store-ca", &ca),
        ("--store-cert", &certificate),
        ("--store-key", &key),
    ]);
    let programs = start_in_vain(&site, "check --store-ca").await;
    fs::copy(certificates.ca(), &ca).unwrap();
    recover(programs, "--store-ca").await;
}

/// Starts a translator and a distributor, which try some times and say once what is wrong.
async fn start_in_vain(site: &Site, fault: &str) -> [Program; 2] {
    let programs = [site.translator().await, site.distributor("distributor").await];
    for program in &programs {
        until("it tries", async || {
            program.metric("heliograph_store_operations_total").await >= TRIES
        })
        .await;
        assert!(program.is_alive(), "{} has ended: {}", program.name, program.log());
        assert!(!program.is_ready().await, "{} is ready", program.name);
        assert_eq!(program.page("/livez").await, "alive\n");
        assert_said_once(program, fault);
    }
    programs
}

/// A translator adds once how many fleets wait because of it.
fn assert_said_once(program: &Program, fault: &str) {
    let (waiting, said): (Vec<_>, Vec<_>) = program
        .lines(fault)
        .into_iter()
        .partition(|line| line.contains("cannot write to the store"));
    assert_eq!(said.len(), 1, "{}: {}", program.name, program.log());
    assert!(said[0].contains("; retrying"), "{}", said[0]);
    assert!(waiting.len() <= usize::from(program.name == "translator"), "{}", program.log());
}

async fn recover([translator, distributor]: [Program; 2], fault: &str) {
    let repaired = Instant::now();
    for program in [&translator, &distributor] {
        program.until_ready().await;
    }
    until("the fleet is served", async || distributor.page("/fleets").await.contains(LOADED)).await;
    let took = repaired.elapsed();
    assert!(took < RECOVERY, "it took {took:?}");
    for program in [&translator, &distributor] {
        assert_said_once(program, fault);
    }
}

//! The private key of a certificate goes from a manifest to the Envoys, and shows itself nowhere on the way.

use crate::redis_site::{FLEET, Program, Site, printed};
use crate::servers::{Server, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::KeyPair;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The guises in which a key could show itself, each with a name.
struct Traces(Vec<(&'static str, Vec<u8>)>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_key_is_found_nowhere() {
    // Compressed, a key could hide from the search.
    let redis = Server::start(&["rdbcompression no"]).await;
    let site = Site::new(&redis.url()).await.chatty();
    let traces = Traces::of(&site.identity.key);
    let translator = site.translator().await;
    let distributor = site.distributor_with_cache("one", 0).await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    site.route_to("green");
    site.until_answered_by("green").await;
    assert_eq!(site.ask_secure().await.unwrap(), "green web.test /");

    // Those who cannot use what they find, say so in words.
    let foreign = site.file("foreign.yaml");
    assert!(site.helio(&["store", "keys", "new", foreign.to_str().unwrap()]).status.success());
    let stranger = site.distributor_with("stranger", &foreign, 0).await;
    stranger.until_logged("it has a MAC that is not of this key ring's root").await;
    assert!(!stranger.page("/fleets").await.contains(FLEET));
    let sealless = site.file("sealless.yaml");
    fs::write(&sealless, without_sealing_keys(&site)).unwrap();
    let blind = site.distributor_with("blind", &sealless, 0).await;
    blind.until_logged("not in this process's key ring").await;

    let keys = site.keys();
    let (keys, manifests) = (keys.to_str().unwrap(), site.manifests());
    let manifests = manifests.to_str().unwrap();
    let (foreign, sealless) = (foreign.to_str().unwrap(), sealless.to_str().unwrap());
    let commands: [(&[&str], &str); 10] = [
        (&["translate", manifests], "certificate"),
        (&["translate", "--output", "json", manifests], "certificate"),
        (&["snapshot", "list", FLEET], "newest: "),
        (&["snapshot", "list", FLEET, "--output", "json"], "newest"),
        (&["snapshot", "diff", FLEET, "1", "2"], "~ route "),
        (&["snapshot", "rollback", FLEET, "1"], "nothing was changed"),
        (&["snapshot", "list", FLEET, "--store-keys", foreign], "different key rings"),
        (&["snapshot", "diff", FLEET, "1", "2", "--store-keys", sealless], "~ route "),
        (&["store", "keys", "list", keys], "k"),
        (&["store", "adopt"], "nothing was changed"),
    ];
    for (command, expected) in commands {
        let output = printed(&site.helio(command));
        assert!(output.contains(expected), "{command:?}: {output}");
        traces.are_not_in(&format!("{command:?}"), output.as_bytes());
    }
    for program in [&translator, &distributor, &stranger, &blind] {
        for path in pages(program).await {
            let page = program.page(&path).await;
            traces.are_not_in(&format!("{path} of {}", program.name), page.as_bytes());
        }
        assert!(program.log().contains(" TRACE "), "{} does not log all", program.name);
        traces.are_not_in(&format!("the log of {}", program.name), program.log().as_bytes());
    }
    traces.are_not_in("Redis", &dump(&redis).await);
    let cached = "heliograph_store_cache_fleets";
    until("it is on the disk", async || distributor.metric(cached).await == 1.0).await;
    for entry in fs::read_dir(site.file("one.cache")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        traces.are_not_in(&path.display().to_string(), &fs::read(&path).unwrap());
    }
    let page = distributor.page(&format!("/snapshot/{FLEET}?type=secret")).await;
    assert!(page.contains(&STANDARD.encode("[redacted]")), "{page}");

    // The search finds what is there.
    let manifest = fs::read(site.manifests().join("secret.yaml")).unwrap();
    assert_eq!(traces.first_in(&manifest), Some("a line of PEM"));
    let mut connection = redis.connect().await.unwrap();
    for (index, (_, trace)) in traces.0.iter().enumerate() {
        let value = [b"before ", &trace[..], b" behind"].concat();
        let set = redis::cmd("SET").arg(index).arg(value).take();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    let spoilt = dump(&redis).await;
    for (name, trace) in &traces.0 {
        assert!(is_in(&spoilt, trace), "{name} is not found");
    }
}

impl Traces {
    fn of(key: &KeyPair) -> Self {
        let (pem, der) = (key.serialize_pem(), key.serialize_der());
        let lines: Vec<_> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let body = lines.join("\n");
        let mut traces =
            vec![("DER", der.clone()), ("base64 of DER", STANDARD.encode(&der).into())];
        for line in &lines {
            traces.push(("a line of PEM", line.as_bytes().to_vec()));
        }
        // Base64 of something that has the PEM in it, wherever that begins.
        for offset in 0..3 {
            let part = &body.as_bytes()[offset..offset + 48];
            traces.push(("base64 of PEM", STANDARD.encode(part).into()));
        }
        for (name, bytes) in [("DER", &der[..]), ("PEM", body.as_bytes()), ("number", number(&der))]
        {
            let mut hex = String::new();
            bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
            traces.push((name, hex.to_uppercase().into()));
            traces.push((name, hex.into()));
            // As Rust prints bytes, of which there may be more around.
            let list = format!("{bytes:?}");
            traces.push((name, list.trim_matches(['[', ']']).into()));
        }
        traces.push(("the number", number(&der).to_vec()));
        Self(traces)
    }

    /// The name of one that is there.
    fn first_in(&self, haystack: &[u8]) -> Option<&'static str> {
        self.0.iter().find(|(_, trace)| is_in(haystack, trace)).map(|(name, _)| *name)
    }

    fn are_not_in(&self, place: &str, haystack: &[u8]) {
        assert_eq!(self.first_in(haystack), None, "the key is in {place}");
    }
}

fn is_in(haystack: &[u8], trace: &[u8]) -> bool {
    haystack.windows(trace.len()).any(|window| window == trace)
}

/// What is secret of a key on the curve P-256: 32 bytes, behind the version of its structure and their own tag and length.
fn number(der: &[u8]) -> &[u8] {
    let before = [0x02, 0x01, 0x01, 0x04, 0x20];
    let at = der.windows(before.len()).position(|window| window == before).unwrap() + before.len();
    &der[at..at + 32]
}

/// The pages of an admin port, as its index lists them.
async fn pages(program: &Program) -> Vec<String> {
    let index = program.page("/").await;
    let page = |line: &str| line.split(' ').next().unwrap().replace("NAMESPACE/NAME", FLEET);
    let mut pages: Vec<_> = index.lines().map(page).collect();
    assert!(pages.contains(&"/metrics".to_owned()), "{index}");
    pages.push("/".to_owned());
    pages
}

/// All that Redis holds, as it writes it to disk.
async fn dump(redis: &Server) -> Vec<u8> {
    redis.query::<()>(&["SAVE"]).await.unwrap();
    let (_, directory): (String, String) = redis.query(&["CONFIG", "GET", "dir"]).await.unwrap();
    fs::read(Path::new(&directory).join("dump.rdb")).unwrap()
}

fn without_sealing_keys(site: &Site) -> String {
    let ring = fs::read_to_string(site.keys()).unwrap();
    let (root, _) = ring.split_once("seal:").unwrap();
    format!("{root}seal: []\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distributor_without_the_key_serves_all_else_and_the_rest_once_it_has_it() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    translator.until_ready().await;
    let ring = site.file("ring.yaml");
    fs::write(&ring, without_sealing_keys(&site)).unwrap();
    let distributor = site.distributor_with("blind", &ring, 0).await;
    distributor.until_ready().await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    assert!(site.ask_secure().await.is_err(), "the certificate is not there");
    let said = "because the key that seals them is not in this process's key ring";
    assert_eq!(distributor.lines(said).len(), 1, "{}", distributor.log());

    fs::copy(site.keys(), &ring).unwrap();
    until("HTTPS is served", async || site.ask_secure().await.is_ok()).await;
    assert_eq!(distributor.lines(said).len(), 1, "{}", distributor.log());
    distributor.until_logged("all secrets can be opened").await;
    envoy.assert_undisturbed().await;
}

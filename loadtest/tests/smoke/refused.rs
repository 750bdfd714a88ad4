use crate::program::{Ran, loadtest};
use heliograph_loadtest::scenario::BUILT_IN;
use heliograph_testing::Port;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Where nothing listens.
fn nowhere() -> String {
    format!("127.0.0.1:{}", Port::reserve().unwrap().number())
}

/// A server that does this with every connection, for as long as the tests run.
fn server(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

/// The last line is what it says.
fn idle(flags: &[&str]) -> (Ran, String) {
    let ran = loadtest(&[&["run", "idle", "--brief"], flags].concat());
    let line = ran.text.lines().last().unwrap_or_default().to_owned();
    (ran, line)
}

#[test]
fn a_server_that_is_not_there() {
    let address = nowhere();
    let (ran, line) = idle(&["--server", &format!("http://{address}")]);
    assert_eq!(ran.status, 1, "{}", ran.text);
    assert!(line.ends_with(&format!("nothing listens at {address}")), "{line}");
}

#[test]
fn a_server_that_speaks_something_else() {
    let address = server(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let (ran, line) = idle(&["--server", &format!("http://{address}")]);
    assert_eq!(ran.status, 1, "{}", ran.text);
    assert!(line.contains(&format!("{address} does not speak HTTP/2")), "{line}");
}

#[test]
fn a_server_with_the_wrong_certificate() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let address = server(move |mut stream| {
        let mut tls = ServerConnection::new(config.clone()).unwrap();
        let _ = tls.complete_io(&mut stream);
    });
    let other = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let scratch = tempfile::TempDir::new().unwrap();
    let trusted = scratch.path().join("ca.pem");
    std::fs::write(&trusted, other.cert.pem()).unwrap();
    let server = format!("https://{address}");
    let (ran, line) = idle(&["--server", &server, "--tls-ca", trusted.to_str().unwrap()]);
    assert_eq!(ran.status, 1, "{}", ran.text);
    assert!(line.contains(&format!("the certificate of {address} is not the right one")), "{line}");
}

#[test]
fn what_cannot_be_meant_is_said_in_one_line() {
    let here = "http://127.0.0.1:1";
    let cases: [(&[&str], &str); 8] = [
        (&["run", "idle"], "against what?"),
        (&["run", "no-such", "--server", here], "loadtest list"),
        (&["run", "rolling-restart", "--server", here], "--launch heliograph"),
        (&["run", "endpoint-churn", "--server", here], "--drive store"),
        (&["run", "many-fleets", "--launch", "linear-cache"], "serve one"),
        (&["run", "idle", "--server", "https://127.0.0.1:1"], "--tls-ca"),
        (&["run", "idle", "--server", "127.0.0.1:1"], "http://HOST:PORT"),
        (&["show", "no-such"], "loadtest list"),
    ];
    for (arguments, part) in cases {
        let Ran { status, text } = loadtest(arguments);
        assert_eq!(status, 2, "{arguments:?}: {text}");
        assert!(text.contains(part) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}

#[test]
fn scenarios_are_listed_and_shown() {
    let list = loadtest(&["list"]);
    assert_eq!((list.status, list.text.lines().count()), (0, BUILT_IN.len()));
    assert!(list.text.contains("endpoint-churn"));
    let shown = loadtest(&["show", "soak"]);
    assert!(shown.status == 0 && shown.text.contains("about: "), "{}", shown.text);
}

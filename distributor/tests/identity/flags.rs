use crate::pki::{CertificateAuthority, ISSUER, Signer};
use heliograph_distributor::{DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_shared::admin::Readiness;
use heliograph_store::{DistributorStore, Embedded};
use prometheus::Registry;
use std::path::PathBuf;
use std::sync::Arc;

async fn refusal(address: &str, insecure: bool, security: &SecurityArgs) -> Option<String> {
    let args = DistributorArgs {
        xds_address: address.parse().unwrap(),
        insecure_plaintext: insecure,
        replica: None,
        load: LoadArgs::default(),
    };
    let store = DistributorStore::new(Arc::new(Embedded::new()));
    let registry = Registry::new();
    let built =
        heliograph_distributor::build(&args, security, store, &registry, &Readiness::new()).await;
    built.err().map(|error| error.to_string())
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let ca = CertificateAuthority::new();
    let issued = ca.issue("127.0.0.1");
    let cert = file("cert.pem", &issued.certificate);
    let key = file("key.pem", &issued.key);
    let ca = file("ca.pem", &ca.pem());
    let jwks = file("jwks.json", &Signer::jwks(&[&Signer::new("one")]));
    let bad = file("bad", "bad");
    let none = || SecurityArgs::default();
    let tls = || SecurityArgs { xds_cert: cert.clone(), xds_key: key.clone(), ..none() };
    let mutual = || SecurityArgs { xds_client_ca: ca.clone(), ..tls() };
    let issuer = Some(ISSUER.to_owned());
    let tokens =
        || SecurityArgs { xds_jwks: jwks.clone(), xds_token_issuer: issuer.clone(), ..none() };
    let token = file("token", "secret-of-the-test\n");
    let review = || SecurityArgs {
        xds_token_review: true,
        kubernetes_ca: ca.clone(),
        kubernetes_token: token.clone(),
        ..none()
    };
    let at = |url: &str| Some(url.to_owned());
    let nowhere = || Some(PathBuf::from("/nowhere"));

    let (here, anywhere) = ("127.0.0.1:0", "0.0.0.0:0");
    for (args, expected) in [
        (SecurityArgs { xds_key: None, ..mutual() }, "--xds-cert requires --xds-key"),
        (SecurityArgs { xds_cert: None, ..mutual() }, "--xds-key requires --xds-cert"),
        (SecurityArgs { xds_client_ca: ca.clone(), ..none() }, "client certificates need TLS"),
        (tls(), "TLS alone lets everybody read"),
        (SecurityArgs { xds_token_issuer: None, ..tokens() }, "--xds-jwks requires"),
        (SecurityArgs { xds_jwks: None, ..tokens() }, "--xds-token-issuer requires"),
        (SecurityArgs { xds_token_review: true, ..tokens() }, "set only one of them"),
        (SecurityArgs { kubernetes_ca: nowhere(), ..review() }, "/nowhere"),
        (SecurityArgs { kubernetes_ca: bad.clone(), ..review() }, "bad: has no certificate"),
        (SecurityArgs { kubernetes_token: file("empty", "\n"), ..review() }, "has no token"),
        (SecurityArgs { xds_token_review: false, ..review() }, "requires --xds-token-review"),
        (
            SecurityArgs { xds_token_review_rate: Some(1), ..tokens() },
            "--xds-token-review-rate requires --xds-token-review",
        ),
        (SecurityArgs { kubernetes_api: at("http://127.0.0.1"), ..review() }, "https://HOST:PORT"),
        (SecurityArgs { kubernetes_api: at("https://127.0.0.1/x"), ..review() }, "https://HOST"),
        (SecurityArgs { xds_access: bad.clone(), ..none() }, "needs authentication of clients"),
        (SecurityArgs { xds_cert: nowhere(), ..mutual() }, "/nowhere"),
        (SecurityArgs { xds_client_ca: bad.clone(), ..mutual() }, "bad: has no certificate"),
        (SecurityArgs { xds_jwks: bad.clone(), ..tokens() }, "not a JSON Web Key Set"),
        (SecurityArgs { xds_access: bad.clone(), ..mutual() }, "--xds-access"),
    ] {
        let error = refusal(here, false, &args).await.unwrap();
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
        assert!(!error.contains("PRIVATE KEY") && !error.contains("secret-of"), "{error}");
    }
    assert_eq!(refusal(here, false, &none()).await, None);
    assert_eq!(refusal(here, false, &tokens()).await, None);
    assert_eq!(refusal(anywhere, false, &mutual()).await, None);
    assert_eq!(refusal(anywhere, true, &tokens()).await, None);
    for args in [none(), tokens()] {
        let error = refusal(anywhere, false, &args).await.unwrap();
        assert!(error.contains("--insecure-plaintext") && error.contains("--xds-cert"), "{error}");
    }
    let error = refusal(anywhere, true, &mutual()).await.unwrap();
    assert!(error.contains("contradict"), "{error}");
}

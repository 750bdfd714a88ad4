use super::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

struct Issuer {
    key: EcdsaKeyPair,
    id: &'static str,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self { key: EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap(), id }
    }

    fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": x, "y": y })
    }

    fn keys(&self) -> KeySet {
        KeySet::parse(json!({ "keys": [self.jwk()] }).to_string().as_bytes()).unwrap()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": "ES256", "kid": self.id }), claims)
    }
}

fn expected() -> Expected {
    Expected { issuer: "https://issuer.example".into(), audience: "heliograph".into() }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Good claims, with these instead; null takes one away.
fn claims(other: Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "heliograph", "sub": "proxy", "exp": NOW + 60,
    });
    for (name, value) in other.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

#[test]
fn a_good_token_tells_its_subject() {
    let issuer = Issuer::new("one");
    for good in [
        claims(json!({})),
        claims(json!({ "aud": ["x", "heliograph"], "nbf": NOW, "exp": NOW as f64 + 60.0 })),
        claims(json!({ "nbf": NOW + 29 })),
    ] {
        let found = issuer.keys().verify(&issuer.token(&good), &expected(), at(NOW)).unwrap();
        let expires = at(NOW + 60 + 30);
        assert_eq!(found, Claims { subject: "proxy".into(), expires, pod: None });
    }
    for (bound, pod) in [
        (json!({ "namespace": "edge", "pod": { "name": "envoy-1", "uid": "f3c2" } }), Some("f3c2")),
        (json!({ "namespace": "edge" }), None),
        (json!({ "pod": { "uid": 7 } }), None),
        (json!("of somebody else"), None),
    ] {
        let token = issuer.token(&claims(json!({ "kubernetes.io": bound })));
        let found = issuer.keys().verify(&token, &expected(), at(NOW)).unwrap();
        assert_eq!(found.pod.as_deref(), pod);
    }
    let anonymous = issuer.sign(&json!({ "alg": "ES256" }), &claims(json!({})));
    assert!(issuer.keys().verify(&anonymous, &expected(), at(NOW)).is_ok());
}

#[test]
fn claims_that_are_not_for_us_or_not_for_now_are_refused() {
    let issuer = Issuer::new("one");
    for (other, refused) in [
        (
            json!({ "iss": "https://evil.example" }),
            TokenRefused::Issuer("https://evil.example".into()),
        ),
        (json!({ "aud": "kubernetes" }), TokenRefused::Audience("heliograph".into())),
        (json!({ "aud": [] }), TokenRefused::Audience("heliograph".into())),
        (json!({ "exp": NOW - 30 }), TokenRefused::Expired),
        (json!({ "nbf": NOW + 31 }), TokenRefused::NotYet),
        (json!({ "iss": null }), TokenRefused::Malformed),
        (json!({ "aud": null }), TokenRefused::Malformed),
        (json!({ "sub": null }), TokenRefused::Malformed),
        (json!({ "exp": null }), TokenRefused::Malformed),
        (json!({ "exp": "1900000000" }), TokenRefused::Malformed),
        (json!({ "nbf": "1700000000" }), TokenRefused::Malformed),
        (json!({ "exp": -1 }), TokenRefused::Malformed),
        (json!({ "exp": 1e300 }), TokenRefused::Malformed),
    ] {
        let token = issuer.token(&claims(other.clone()));
        assert_eq!(issuer.keys().verify(&token, &expected(), at(NOW)), Err(refused), "{other}");
    }
    let good = issuer.token(&claims(json!({ "exp": NOW - 29 })));
    assert!(issuer.keys().verify(&good, &expected(), at(NOW)).is_ok());
}

#[test]
fn a_signature_of_somebody_else_is_refused() {
    let (issuer, other) = (Issuer::new("one"), Issuer::new("one"));
    let verify = |token: &str| issuer.keys().verify(token, &expected(), at(NOW)).unwrap_err();
    assert_eq!(verify(&other.token(&claims(json!({})))), TokenRefused::Signature);
    let stranger = Issuer::new("two").token(&claims(json!({})));
    assert_eq!(verify(&stranger), TokenRefused::UnknownKey);
    // Other claims under a good signature.
    let good = issuer.token(&claims(json!({})));
    let changed = issuer.token(&claims(json!({ "sub": "admin" })));
    let [head, _, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
    let body = changed.split('.').nth(1).unwrap();
    assert_eq!(verify(&format!("{head}.{body}.{signature}")), TokenRefused::Signature);
}

#[test]
fn a_token_does_not_choose_how_it_is_checked() {
    let issuer = Issuer::new("one");
    let verify = |token: &str| issuer.keys().verify(token, &expected(), at(NOW)).unwrap_err();
    for algorithm in ["none", "None", "HS256", "EdDSA", ""] {
        let token = issuer.sign(&json!({ "alg": algorithm, "kid": "one" }), &claims(json!({})));
        assert_eq!(verify(&token), TokenRefused::Algorithm, "{algorithm}");
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert_eq!(verify(&unsigned), TokenRefused::Algorithm, "{algorithm}");
    }
    for algorithm in ["RS256", "ES384"] {
        let token = issuer.sign(&json!({ "alg": algorithm, "kid": "one" }), &claims(json!({})));
        assert_eq!(verify(&token), TokenRefused::UnknownKey, "not with this key");
    }
    let critical = json!({ "alg": "ES256", "kid": "one", "crit": ["b64"] });
    assert_eq!(verify(&issuer.sign(&critical, &claims(json!({})))), TokenRefused::Algorithm);
}

#[test]
fn what_is_no_token_is_refused() {
    let issuer = Issuer::new("one");
    let good = issuer.token(&claims(json!({})));
    for wrong in ["", ".", "..", "a.b.c", "x", &format!("{good}="), &format!("a.{good}")] {
        let refused = issuer.keys().verify(wrong, &expected(), at(NOW));
        assert_eq!(refused, Err(TokenRefused::Malformed), "{wrong}");
    }
    for end in 0..good.len() {
        assert!(issuer.keys().verify(&good[..end], &expected(), at(NOW)).is_err(), "{end}");
    }
}

/// Keys and tokens that another implementation made.
#[test]
fn what_others_sign_is_understood() {
    let others: Value = serde_json::from_str(include_str!("others.json")).unwrap();
    let keys = KeySet::parse(others["keys"].to_string().as_bytes()).unwrap();
    assert_eq!(format!("{keys:?}"), r#"[Some("rsa"), Some("ec")]"#);
    let verify = |name: &str| keys.verify(others[name].as_str().unwrap(), &expected(), at(NOW));
    for name in ["RS256", "ES384"] {
        assert_eq!(verify(name).unwrap().subject, "system:serviceaccount:edge:envoy");
    }
    assert_eq!(verify("RS512"), Err(TokenRefused::UnknownKey), "the key says that it signs RS256");
}

#[test]
fn a_set_without_usable_keys_is_refused() {
    for wrong in ["", "[]", "{}", r#"{"keys":[{}]}"#] {
        let error = KeySet::parse(wrong.as_bytes()).unwrap_err();
        assert!(matches!(error, KeySetError::Malformed(_)), "{wrong}");
    }
    let small = json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode([255; 128]), "e": "AQAB" });
    let short = json!({ "kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA" });
    for keys in [json!([]), json!([small]), json!([short]), json!([{ "kty": "oct", "k": "AAAA" }])]
    {
        let text = json!({ "keys": keys }).to_string();
        assert_eq!(KeySet::parse(text.as_bytes()).unwrap_err(), KeySetError::NoKeys, "{text}");
    }
}

#[test]
fn what_a_token_says_of_itself_is_read_without_proof() {
    let part = |value: &str| URL_SAFE_NO_PAD.encode(value);
    let token = |body: &str| format!("{}.{}.AAAA", part(r#"{"alg":"RS256"}"#), part(body));
    let expires = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let read = |token: &str| Unproven::read(token).map(|unproven| unproven.expires);
    assert_eq!(read(&token(r#"{"exp":1700000000}"#)), Some(expires(1_700_000_000)));
    assert_eq!(read(&token("{}")), Some(None), "there are some that do not end");
    let whole = token("{}");
    for wrong in
        ["", "rubbish", "a.b.c", "..", &whole[1..], &format!("{whole}.AAAA"), &format!("{whole}!")]
    {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    for body in ["", "[]", r#"{"exp":"soon"}"#, r#"{"exp":-1}"#, r#"{"exp":1e300}"#] {
        assert_eq!(read(&token(body)), None, "{body}");
    }
}

#[test]
fn what_is_judged_by_another_is_refused_before_only_where_that_one_would_refuse_it() {
    let (issuer, forger) = (Issuer::new("one"), Issuer::new("one"));
    let screen = |token: &str| issuer.keys().screen(token, "heliograph", at(NOW));
    // Of a token that is reviewed afterwards, only the audience and the expiry are checked.
    let claims = |other: Value| {
        let mut with = json!({ "iss": null, "sub": null });
        with.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        claims(with)
    };
    for good in [
        json!({}),
        json!({ "aud": ["x", "heliograph"], "nbf": NOW + 600 }),
        json!({ "exp": NOW - 29 }),
        json!({ "aud": null, "exp": null }),
        json!({ "exp": "never" }),
    ] {
        assert_eq!(screen(&issuer.token(&claims(good.clone()))), Ok(true), "{good}");
    }
    let good = claims(json!({}));
    // Nothing can be said of a token of another issuer.
    assert_eq!(screen(&Issuer::new("two").token(&good)), Ok(false));
    assert_eq!(screen(&forger.sign(&json!({ "alg": "ES256" }), &good)), Ok(false));
    let audience = TokenRefused::Audience("heliograph".into());
    for (refused, why) in [
        (forger.token(&good), TokenRefused::Signature),
        (issuer.sign(&json!({ "alg": "HS256", "kid": "one" }), &good), TokenRefused::Signature),
        (issuer.sign(&json!({ "alg": "none", "kid": "one" }), &good), TokenRefused::Signature),
        (issuer.token(&claims(json!({ "aud": "kubernetes" }))), audience),
        (issuer.token(&claims(json!({ "exp": NOW - 30 }))), TokenRefused::Expired),
        ("a.b.c".to_owned(), TokenRefused::Malformed),
        ("rubbish".to_owned(), TokenRefused::Malformed),
    ] {
        assert_eq!(screen(&refused), Err(why), "{refused}");
    }
}

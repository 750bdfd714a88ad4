//! Tokens that are verified without a request: JSON Web Tokens (RFC 7519) against a set of public keys (RFC 7517). No
//! clock: callers pass the time.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Public keys, those of a JWKS file that can check a signature.
pub(crate) struct KeySet(Vec<Key>);

/// The claims that a token must have to be for us.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) issuer: String,
    pub(crate) audience: String,
}

/// The claims of a valid token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) expires: SystemTime,
    /// The UID of the pod that Kubernetes bound it to.
    pub(super) pod: Option<Arc<str>>,
}

/// The claims of a token before its signature is verified. To be used only where false claims harm only the token's
/// sender.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unproven {
    pub(super) expires: Option<SystemTime>,
}

/// Says nothing of the token that was not proven to be from its issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenRefused {
    #[error("the token is no JSON Web Token")]
    Malformed,
    #[error(
        "the signature algorithm of the token is not accepted: use RS256, RS384, RS512, ES256 or ES384"
    )]
    Algorithm,
    #[error("the file of --xds-jwks does not have the key that signed the token")]
    UnknownKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is of the issuer {0:?}, but --xds-token-issuer requires another one")]
    Issuer(String),
    #[error("the token is not for the audience {0:?}")]
    Audience(String),
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeySetError {
    #[error("not a JSON Web Key Set: {0}")]
    Malformed(String),
    #[error(
        "it has no public key that can verify tokens: RSA of 2048 bits or more, P-256 or P-384"
    )]
    NoKeys,
}

struct Key {
    id: Option<String>,
    /// The only algorithm that the key may be used with, if the file names one.
    algorithm: Option<String>,
    public: Public,
}

enum Public {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed points.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood, and none is.
    crit: Option<serde_json::Value>,
}

/// Of the right types, so that a claim of another type is not taken for one that is missing.
#[derive(Deserialize)]
struct Body {
    iss: String,
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    /// Of any type: only tokens of Kubernetes have to be as Kubernetes makes them.
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct UnprovenBody {
    exp: Option<f64>,
}

/// The claims of a token that are checked before the API server reviews it. Claims that are missing, or of another type,
/// are left to the API server.
#[derive(Default, Deserialize)]
struct ScreenedBody {
    aud: Option<Audience>,
    exp: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// How far clocks may be apart.
const LEEWAY: Duration = Duration::from_secs(30);
/// Smaller keys are insecure, and ring rejects them.
const SMALLEST_MODULUS: usize = 2048 / 8;

impl KeySet {
    /// Keys of other kinds and for other uses are left out: a set may serve others too.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        let set: JwkSet = serde_json::from_slice(text)
            .map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let keys: Vec<Key> = set.keys.into_iter().filter_map(Key::of).collect();
        if keys.is_empty() { Err(KeySetError::NoKeys) } else { Ok(Self(keys)) }
    }

    /// The claims of a token that one of these keys signed, for us, for now.
    pub(super) fn verify(
        &self,
        token: &str,
        expected: &Expected,
        now: SystemTime,
    ) -> Result<Claims, TokenRefused> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefused::Malformed)?;
        let (header, body) = signed.split_once('.').ok_or(TokenRefused::Malformed)?;
        let header: Header = json(header)?;
        if header.crit.is_some() {
            return Err(TokenRefused::Algorithm);
        }
        let signature = decoded(signature).ok_or(TokenRefused::Malformed)?;
        self.check_signature(&header, signed.as_bytes(), &signature)?;
        let Body { iss, aud, sub, exp, nbf, kubernetes } = json(body)?;
        if iss != expected.issuer {
            return Err(TokenRefused::Issuer(iss.chars().take(256).collect()));
        }
        if !aud.has(&expected.audience) {
            return Err(TokenRefused::Audience(expected.audience.clone()));
        }
        let expires = time(exp)?.checked_add(LEEWAY).ok_or(TokenRefused::Malformed)?;
        if expires <= now {
            return Err(TokenRefused::Expired);
        }
        if let Some(from) = nbf
            && time(from)? > now + LEEWAY
        {
            return Err(TokenRefused::NotYet);
        }
        let pod = kubernetes.as_ref().and_then(|bound| bound.get("pod")?.get("uid")?.as_str());
        let pod = pod.map(Arc::from);
        Ok(Claims { subject: sub, expires, pod })
    }

    /// Whether one of these keys signed the token, for this audience, and it has not expired; `false` if the key that it
    /// names is none of these, so that nothing is known of it. For tokens that the API server reviews afterwards: it
    /// would reject, too, what is rejected here, and a token that passes is not accepted yet.
    pub(super) fn screen(
        &self,
        token: &str,
        audience: &str,
        now: SystemTime,
    ) -> Result<bool, TokenRefused> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefused::Malformed)?;
        let (header, body) = signed.split_once('.').ok_or(TokenRefused::Malformed)?;
        let header: Header = json(header)?;
        let signature = decoded(signature).ok_or(TokenRefused::Malformed)?;
        // Issuers that are unknown here may leave it out.
        let Some(id) = &header.kid else { return Ok(false) };
        let mut named = self.0.iter().filter(|key| key.id.as_ref() == Some(id)).peekable();
        if named.peek().is_none() {
            return Ok(false);
        }
        let verifies = |key: &Key| key.public.verify(&header.alg, signed.as_bytes(), &signature);
        if !named.any(|key| verifies(key) == Some(true)) {
            return Err(TokenRefused::Signature);
        }
        let ScreenedBody { aud, exp } = json(body).unwrap_or_default();
        if aud.is_some_and(|aud| !aud.has(audience)) {
            return Err(TokenRefused::Audience(audience.to_owned()));
        }
        let expires = exp.and_then(|exp| time(exp).ok()?.checked_add(LEEWAY));
        if expires.is_some_and(|expires| expires <= now) {
            return Err(TokenRefused::Expired);
        }
        Ok(true)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key decides in which ways it may have been used: a token cannot choose how it is checked.
    fn check_signature(
        &self,
        header: &Header,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenRefused> {
        if !["RS256", "RS384", "RS512", "ES256", "ES384"].contains(&header.alg.as_str()) {
            return Err(TokenRefused::Algorithm);
        }
        let named = |key: &&Key| match (&header.kid, &key.id) {
            (Some(wanted), Some(found)) => wanted == found,
            // A token that names no key may be signed by any of them.
            (None, _) | (_, None) => true,
        };
        let mut tried = self.0.iter().filter(named).filter_map(|key| {
            let fits = key.algorithm.as_ref().is_none_or(|algorithm| *algorithm == header.alg);
            fits.then(|| key.public.verify(&header.alg, signed, signature)).flatten()
        });
        match tried.next() {
            None => Err(TokenRefused::UnknownKey),
            Some(first) if first || tried.any(|good| good) => Ok(()),
            Some(_) => Err(TokenRefused::Signature),
        }
    }
}

impl Audience {
    fn has(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

impl Unproven {
    /// `None` if it is no JSON Web Token.
    pub(super) fn read(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (header, body, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let _: Header = json(header).ok()?;
        let UnprovenBody { exp } = json(body).ok()?;
        decoded(signature).filter(|_| parts.next().is_none())?;
        Some(Self { expires: exp.map(time).transpose().ok()? })
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        let Jwk { kty, kid, alg, used_for, crv, n, e, x, y } = jwk;
        if used_for.is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        let point = |size: usize| {
            let (x, y) = (decoded(x.as_deref()?)?, decoded(y.as_deref()?)?);
            (x.len() == size && y.len() == size).then(|| [&[4], &x[..], &y[..]].concat())
        };
        let public = match (kty.as_str(), crv.as_deref()) {
            ("RSA", _) => {
                let modulus = without_zeros(decoded(n.as_deref()?)?);
                let exponent = without_zeros(decoded(e.as_deref()?)?);
                (modulus.len() >= SMALLEST_MODULUS).then_some(Public::Rsa { modulus, exponent })?
            }
            ("EC", Some("P-256")) => Public::P256(point(32)?),
            ("EC", Some("P-384")) => Public::P384(point(48)?),
            _ => return None,
        };
        Some(Self { id: kid, algorithm: alg, public })
    }
}

impl Public {
    /// `None` if this is no key for such signatures.
    fn verify(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> Option<bool> {
        let verified = match (self, algorithm) {
            (Self::Rsa { modulus, exponent }, "RS256" | "RS384" | "RS512") => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA512,
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, signed, signature)
            }
            (Self::P256(point), "ES256") => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
                key.verify(signed, signature)
            }
            (Self::P384(point), "ES384") => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point);
                key.verify(signed, signature)
            }
            _ => return None,
        };
        Some(verified.is_ok())
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn json<T: for<'a> Deserialize<'a>>(part: &str) -> Result<T, TokenRefused> {
    let bytes = decoded(part).ok_or(TokenRefused::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenRefused::Malformed)
}

/// Some issuers write numbers with a zero in front, which ring refuses.
fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    number.into_iter().skip_while(|byte| *byte == 0).collect()
}

fn time(seconds: f64) -> Result<SystemTime, TokenRefused> {
    let since_epoch = Duration::try_from_secs_f64(seconds).map_err(|_| TokenRefused::Malformed)?;
    SystemTime::UNIX_EPOCH.checked_add(since_epoch).ok_or(TokenRefused::Malformed)
}

#[cfg(test)]
mod tests;
